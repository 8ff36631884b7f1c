"""What can go wrong between a caller and the broker, sorted by what became of the message.

Not sent (``TooLarge``, ``NotRouted``, ``PublishRefused``, a ``SessionLost`` that was raised before anything was written), or unknown
(``OutcomeUnknown``). The broker client's own exceptions never leave this package.
"""


class SessionLost(ConnectionError):
    """The session is over; the text says why. What it was used for is not done, or its outcome is unknown where the caller says so."""

    def again(self) -> "SessionLost":
        """A fresh one with the same words, for one more caller: an exception that is raised again and again grows its traceback."""
        return type(self)(*self.args)


class ChannelLost(SessionLost):
    """This channel was closed here, by ``close()``; its session may go on. A channel that the *broker* closes ends its session."""


class TooLarge(ValueError):
    """A body or its properties are larger than a sender may send. Nothing was written; the channel lives.

    ``size`` and ``limit`` are bytes, ``what`` is ``body`` or ``headers``.
    """

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(f"the {what} of this message would be {size} bytes, {limit} are allowed")
        self.size = size
        self.limit = limit
        self.what = what


class NotRouted(Exception):
    """The broker returned the message (312 NO_ROUTE): no queue is bound to its key. It was certainly not sent.

    Source: AMQP 0-9-1, ``basic.return``; RabbitMQ sends it before the confirmation.
    """


class PublishRefused(Exception):
    """The broker refused the message (``basic.nack``), for example because its queue is full. It was not stored."""


class OutcomeUnknown(Exception):
    """The message was written, and no confirmation came in time or before the session was lost. It may well arrive."""
