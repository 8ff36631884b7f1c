"""The broker's refusal of a declaration, a binding or a subscription, as a cause of the stage *topology*.

By the reply code, never by the text: the text differs between versions and is only passed on. Source: AMQP 0-9-1, *reply codes*.
"""

import re

from mesh_runtime.startup import Stage, StageFault, blocked, waiting

_RESOURCE = re.compile(r"(queue|exchange|topic) '([^']*)'")


def refusal(code: int, text: str, what: str) -> StageFault:
    """What it means that the broker closed a channel with these words while it was asked for ``what``."""
    found = _RESOURCE.search(text)
    on = found.group(2) if found else ""
    said = f"{what}: {code} {text}"
    match code:
        case 403 if "exclusive use" in text:
            return waiting(Stage.TOPOLOGY, "locked", said, on)
        case 403:
            return blocked(Stage.TOPOLOGY, "no-permission", said, on)
        case 404:
            return waiting(Stage.TOPOLOGY, "no-exchange" if "exchange" in text else "no-queue", said, on)
        case 405:
            return waiting(Stage.TOPOLOGY, "locked", said, on)
        case 406 if "inequivalent arg" in text:
            return blocked(Stage.TOPOLOGY, "foreign-queue", said, on)
    return waiting(Stage.TOPOLOGY, f"refused-{code}", said, on)
