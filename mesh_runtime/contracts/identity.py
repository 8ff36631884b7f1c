"""Who is who: ``<module>@<machine>`` is a runtime's identity and its user name at the broker."""

import re
from dataclasses import dataclass

WORD = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class BadName(ValueError):
    """A name does not keep to the grammar ``[a-z0-9-]``, 1 to 63 characters, no '-' at either end."""


def check_name(what: str, name: str) -> str:
    """``name`` itself, or ``BadName`` that says what was wrong and what would be right."""
    if not WORD.match(name):
        raise BadName(f"{what} is {name!r}: it must be 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
    return name


@dataclass(frozen=True, slots=True)
class Identity:
    """A placement's name. ``str()`` gives ``module@machine``, one word of a routing key."""

    module: str
    machine: str

    def __post_init__(self) -> None:
        check_name("a module's name", self.module)
        check_name("a machine's name", self.machine)

    def __str__(self) -> str:
        return f"{self.module}@{self.machine}"

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """From ``module@machine``; raises ``BadName``."""
        module, at, machine = text.partition("@")
        if not at:
            raise BadName(f"{text!r} is no identity: it must read module@machine")
        return cls(module, machine)
