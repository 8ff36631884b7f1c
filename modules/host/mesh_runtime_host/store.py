"""What the host must not forget: the declaration it accepted, what on the machine is its own, and how far it has come.

Four files in the state directory, each replaced whole: `declaration.json` (as signed), `ledger.json` (each element that is ours: its path
and what was written there), `floor.json` (mesh, greatest epoch and generation ever accepted, whether its verdict was told), `reports.json`
(below which number all reports are). Two of them bound a replay, so one damaged file opens nothing; with both lost, whatever the
controller's key has signed is taken, since refusing all for ever would leave the machine to nobody.

A file that is damaged is set aside as `<name>.damaged-<time>` and said; it never means *empty*: what stands on the machine stays, and
only a declaration above the greatest number known in what is left is accepted. All writing is done under one lock, also between processes.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mesh_runtime.contracts import SignedDeclaration, Statement
from mesh_runtime_host.disk import Seen, write_whole

log = structlog.stdlib.get_logger(__name__)

DECLARATION = "declaration.json"
LEDGER = "ledger.json"
FLOOR = "floor.json"
REPORTS = "reports.json"
LOCK = "lock"
_PRIVATE = 0o600
#: Errors of reading that say something of the file itself, and not of this process or this moment.
_OF_THE_FILE = frozenset({errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENXIO})
#: Numbers of reports that are reserved on disk at once, so that not every look at the machine writes.
_RESERVED = 1000

Number = tuple[int, int]
M = TypeVar("M", bound=BaseModel)


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Version(_Stored):
    """One state of a file as we wrote it: its element's digest, the SHA-256 of its bytes, its mode."""

    digest: str
    sha256: str
    mode: int

    def stands_as(self, seen: Seen) -> bool:
        """Whether just this is what was seen."""
        return seen == Seen("file", self.sha256, self.mode)


class Held(_Stored):
    """An element that is ours. `made` is false while it was only about to be written for the first time."""

    path: str
    versions: tuple[Version, ...]
    made: bool


class Ledger(_Stored):
    """All that is ours: elements by name, and the directories that were made for them."""

    elements: dict[str, Held] = Field(default_factory=dict)
    directories: tuple[str, ...] = ()


class Floor(_Stored):
    """Nothing at or below this is ever accepted again. `told`: the verdict on this very generation has been heard."""

    mesh: str = ""
    epoch: int = -1
    generation: int = -1
    told: bool = True

    @property
    def number(self) -> Number:
        """(epoch, generation)."""
        return self.epoch, self.generation


class Reserved(_Stored):
    """Every number that a report was ever given is below this."""

    below: int = 0


class Superseded(Exception):
    """Something newer was accepted while an older declaration was being applied."""


class Store:
    """The state directory of one host. Every method that names it is called under `locked`, and raises OSError if it cannot be used."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.directory = directory
        self._now = now
        self._damaged: list[str] = []
        self._last: tuple[str, Statement] | None = None
        self._next_number = 0
        self._reserved = Reserved()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the one lock of this state directory, against other threads and processes. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def damage(self) -> tuple[str, ...]:
        """What was found damaged and set aside since this process began, in words."""
        return tuple(self._damaged)

    # ------------------------------------------------------------------------------------------------ under the lock

    def accepted(self) -> Statement | None:
        """The statement accepted last, if it is known."""
        signed = self._read(DECLARATION, SignedDeclaration)
        if signed is None:
            return None
        if self._last is None or self._last[0] != signed.statement:
            try:
                self._last = signed.statement, Statement.model_validate_json(signed.statement)
            except ValidationError:
                self._set_aside(DECLARATION, "its statement cannot be read")
                return None
        return self._last[1]

    def signed(self) -> SignedDeclaration | None:
        """The same as it was told."""
        return self._read(DECLARATION, SignedDeclaration)

    def floor(self) -> Floor:
        """The greatest that was accepted, by whichever file knows the greater number."""
        floor = self._read(FLOOR, Floor) or Floor()
        statement = self.accepted()
        if statement is not None and number_of(statement) > floor.number:  # accepted, then killed before the floor was raised
            return Floor(mesh=statement.mesh, epoch=statement.epoch, generation=statement.generation, told=False)
        return floor

    def check_current(self, number: Number) -> None:
        """Raise Superseded if something greater than `number` has been accepted meanwhile, by whatever process."""
        if (self._read(FLOOR, Floor) or Floor()).number > number:
            raise Superseded

    def accept(self, signed: SignedDeclaration, statement: Statement) -> None:
        """Keep a declaration that was judged under this same lock; on disk when this returns. Raises OSError, and the old one stands."""
        self._write(DECLARATION, signed)
        self.raise_floor(Floor(mesh=statement.mesh, epoch=statement.epoch, generation=statement.generation, told=False))

    def raise_floor(self, floor: Floor) -> None:
        """Write the floor down, if it is not there already."""
        if self._read(FLOOR, Floor) != floor:
            self._write(FLOOR, floor)

    def ledger(self) -> Ledger:
        """What is ours."""
        return self._read(LEDGER, Ledger) or Ledger()

    def keep_ledger(self, elements: Mapping[str, Held], directories: set[str]) -> None:
        """Write down what is ours, if it has changed."""
        ledger = Ledger(elements=dict(sorted(elements.items())), directories=tuple(sorted(directories)))
        if ledger != self.ledger():
            self._write(LEDGER, ledger)

    def told(self, number: Number) -> None:
        """The verdict on `number` has been heard."""
        floor = self.floor()
        if floor.number == number:
            self.raise_floor(floor.model_copy(update={"told": True}))

    def next_number(self) -> int:
        """A number for what is seen now: above every one given before, also by an earlier process. Never raises OSError.

        The clock only helps where the file is lost or cannot be written; then it must have gone on since the last number was given.
        """
        if self._next_number >= self._reserved.below:
            self._reserve()
        self._next_number += 1
        return self._next_number - 1

    def _reserve(self) -> None:
        by_clock = int(self._now().timestamp() * 1000)
        try:
            known = self._read(REPORTS, Reserved) or Reserved()
            self._next_number = max(self._next_number, known.below, by_clock)
            reserved = Reserved(below=self._next_number + _RESERVED)
            self._write(REPORTS, reserved)
            self._reserved = reserved
        except OSError as unkept:
            self._next_number = max(self._next_number, by_clock)
            log.warning("numbers of reports could not be reserved: the clock stands in", error=str(unkept))

    # ------------------------------------------------------------------------------------------------ files

    def _read(self, name: str, model: type[M]) -> M | None:
        try:
            return model.model_validate_json((self.directory / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as unsound:
            self._set_aside(name, type(unsound).__name__)
            return None
        except OSError as unreadable:
            if unreadable.errno not in _OF_THE_FILE:  # of this moment: what stands there may be sound
                raise
            self._set_aside(name, str(unreadable))
            return None

    def _set_aside(self, name: str, why: str) -> None:
        aside = f"{name}.damaged-{self._now():%Y%m%dT%H%M%S.%fZ}"
        (self.directory / name).rename(self.directory / aside)
        self._damaged.append(f"{name} could not be read ({why}) and was set aside as {aside}")
        log.error("a state file cannot be read and is set aside", file=name, aside=aside, error=why)

    def _write(self, name: str, model: BaseModel) -> None:
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            write_whole(directory, name, model.model_dump_json().encode(), _PRIVATE)
        finally:
            os.close(directory)


def number_of(statement: Statement) -> Number:
    """(epoch, generation): the greater wins."""
    return statement.epoch, statement.generation
