"""Demotes what the broker client reports as errors though a runtime treats it as the normal case.

A runtime waits: each attempt to connect that fails, and each session that is lost, is told by the stage's own state, with its
cause. The client's own record of the same event (an ERROR per attempt, a WARNING with traceback per loss) becomes DEBUG,
where it is still to be found.
"""

import logging

_TOLD_ELSEWHERE = {
    "aiormq.connection": (
        "error when creating transport",
        "Cancelling cause reader exited abnormally",
        "Server connection %r was stuck",
        "Unexpected connection close from remote",
    ),
    "aiormq.channel": ("Closing channel %r because RPC call", "Closing channel %r locally because RPC call"),
}


class _Demote(logging.Filter):
    def __init__(self, beginnings: tuple[str, ...]) -> None:
        super().__init__()
        self._beginnings = beginnings

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.DEBUG and str(record.msg).startswith(self._beginnings):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        # The logger has let it pass at its old level; the handlers judge it again by the new one.
        return True


def demote_client_noise() -> None:
    """Put the demotion in force; done again it changes nothing."""
    for name, beginnings in _TOLD_ELSEWHERE.items():
        logger = logging.getLogger(name)
        if not any(isinstance(each, _Demote) for each in logger.filters):
            logger.addFilter(_Demote(beginnings))
