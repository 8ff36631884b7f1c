"""Brings the machine to the declaration accepted last, and looks again: finished is only what was read back as declared.

The same act applies a new declaration, finishes one that a crash cut, and mends what was changed or deleted: it compares with reality,
never with memory. Each write is done under the lock, after asking there whether something newer was accepted meanwhile: an older one never
overwrites a newer. What is about to be written is entered in the ledger before, so what is ours is always known; what is not ours is left
as it is, and its element fails, unless it is already exactly as declared. One element's failure is no other's.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import structlog

from mesh_runtime.contracts import ElementReport, Statement
from mesh_runtime_host import disk
from mesh_runtime_host.beneath import OutOfBounds, directory_of
from mesh_runtime_host.disk import NOTHING, Seen
from mesh_runtime_host.judging import Layout, Refusal, elements_declared, inherited
from mesh_runtime_host.rendering import Element
from mesh_runtime_host.store import Floor, Held, Store, Superseded, Version

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Brought:
    """What stands now. `drifted` names what was changed or deleted since it was last seen; `superseded`: something newer was accepted;
    `refused`: why the declaration accepted last cannot be applied any more; `number`: greater than that of whatever was seen before.
    """

    floor: Floor
    elements: tuple[ElementReport, ...]
    number: int = 0
    drifted: tuple[str, ...] = ()
    superseded: bool = False
    refused: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        """Every element that is not as declared, with why."""
        return tuple(f"{one.element}: {one.detail}" for one in self.elements if one.state in ("failed", "stale"))


@dataclass(slots=True)
class _Work:
    """One declaration on its way: what is ours, what is to be written and removed, and what failed."""

    floor: Floor
    statement: Statement | None
    elements: tuple[Element, ...]
    held: dict[str, Held]
    directories: set[str]
    writes: list[Element] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    drifted: list[str] = field(default_factory=list)
    seen: dict[str, Seen] = field(default_factory=dict)
    refused: str = ""


class Applier:
    """Applies under one root what one store accepted. Blocking; call it in a thread."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def bring(self) -> Brought:
        """Bring the machine to what was accepted last. Raises OSError if the store cannot be used."""
        with self._store.locked():
            work = self._planned()
        try:
            acts: list[Element | str] = [*work.removes, *work.writes]
            for act in acts:
                with self._store.locked():
                    self._store.check_current(work.floor.number)  # at the moment of writing
                    self._do(act, work)
            with self._store.locked():
                self._store.check_current(work.floor.number)
                return self._looked_again(work)
        except Superseded:
            return Brought(work.floor, (), superseded=True)

    def look(self) -> Brought:
        """What stands, without touching anything. Raises as `bring` does."""
        with self._store.locked():
            work = self._begun()
            self._look_at_all(work)
            return Brought(work.floor, tuple(self._reports(work)), self._store.next_number(), refused=work.refused)

    # ------------------------------------------------------------------------------------------------ before

    def _begun(self) -> _Work:
        floor, statement, ledger = self._store.floor(), self._store.accepted(), self._store.ledger()
        held, directories = dict(ledger.elements), set(ledger.directories)
        try:
            elements = () if statement is None else elements_declared(statement, self._layout)
        except Refusal as refusal:  # accepted once and not any more: the host or its settings are others now
            return _Work(floor, None, (), held, directories, refused=str(refusal))
        return _Work(floor, statement, elements, held, directories)

    def _planned(self) -> _Work:
        work = self._begun()
        if work.statement is None:
            return work
        self._store.raise_floor(work.floor)
        named = [one.element for one in work.statement.removes]
        for element in work.elements:
            with self._told_of(element.name, work):
                self._plan(element, named, work)
        paths = {one.path for one in work.elements}
        for name in named:
            if name in work.held and work.held[name].path in paths:
                del work.held[name]  # its place has passed to another element
        work.removes = [name for name in named if name in work.held]
        self._store.keep_ledger(work.held, work.directories)
        return work

    def _plan(self, element: Element, named: list[str], work: _Work) -> None:
        seen = work.seen[element.name] = self._seen(element.path, swept=True)
        ours = inherited(element, work.held, named)
        wanted = _version(element)
        known = [] if ours is None else [one for one in ours.versions if one.stands_as(seen)]
        if seen != NOTHING and not known and not wanted.stands_as(seen) and (ours is None or not ours.made):
            work.held.pop(element.name, None)
            work.faults[element.name] = f"a {seen.kind} that is not the host's stands at {element.path}; it is left as it is"
            return
        made = wanted.stands_as(seen) or bool(known) or (ours is not None and ours.made)
        if ours is not None and ours.made and not known:
            work.drifted.append(element.name)
        versions = (*(one for one in known if one != wanted), wanted)
        work.held[element.name] = Held(path=element.path, versions=versions, made=made)
        if not wanted.stands_as(seen):
            work.writes.append(element)
            work.directories.update(self._missing_directories(element.path))

    def _missing_directories(self, path: str) -> Iterator[str]:
        for parent in list(PurePosixPath(path).parents)[:-1]:
            try:
                with self._directory(f"{parent}/x"):
                    return
            except FileNotFoundError:
                yield str(parent)

    # ------------------------------------------------------------------------------------------------ the act

    def _do(self, act: Element | str, work: _Work) -> None:
        name = act if isinstance(act, str) else act.name
        with self._told_of(name, work):
            if isinstance(act, str):
                self._remove(act, work)
            else:
                self._write(act, work)

    def _write(self, element: Element, work: _Work) -> None:
        name = PurePosixPath(element.path).name
        with self._directory(element.path, make=True) as directory:
            seen = disk.look(directory, name)
            if seen.kind == "directory":
                raise IsADirectoryError(f"a directory stands in the file's place at {element.path}")
            if seen != NOTHING and not work.held[element.name].made:
                raise FileExistsError(f"a {seen.kind} that is not the host's came to {element.path}; it is left as it is")
            disk.write_whole(directory, name, element.content, element.mode)
        work.held[element.name] = work.held[element.name].model_copy(update={"made": True})

    def _remove(self, name: str, work: _Work) -> None:
        held = work.held[name]
        seen = self._seen(held.path, swept=True)
        if seen.kind not in (NOTHING.kind, "file"):
            raise FileExistsError(f"a {seen.kind} stands at {held.path}; only a file that is the host's is removed")
        if seen != NOTHING and (held.made or any(one.stands_as(seen) for one in held.versions)):
            with self._directory(held.path) as directory:
                disk.remove(directory, PurePosixPath(held.path).name)
        del work.held[name]
        for parent in PurePosixPath(held.path).parents:
            if str(parent) in work.directories and self._removed_if_empty(parent):
                work.directories.discard(str(parent))

    def _removed_if_empty(self, directory: PurePosixPath) -> bool:
        """Whether a directory that was made for an element is gone; one that is used by somebody stays, and is no longer ours."""
        with suppress(FileNotFoundError):
            try:
                with self._directory(str(directory)) as above:
                    os.rmdir(directory.name, dir_fd=above)
            except OSError as used:
                if isinstance(used, FileNotFoundError):
                    raise
                return False
        return True

    # ------------------------------------------------------------------------------------------------ after

    def _looked_again(self, work: _Work) -> Brought:
        self._look_at_all(work)  # read back from the disk, after the act
        reports = tuple(self._reports(work))
        in_force = {one.element for one in reports if one.state == "in-force"}
        for element in work.elements:
            held = work.held.get(element.name)
            if held is None:
                continue
            if element.name in in_force:
                work.held[element.name] = Held(path=held.path, versions=(_version(element),), made=True)
            elif not held.made:
                del work.held[element.name]
        if work.statement is not None:
            self._store.keep_ledger(work.held, work.directories)
        for name in work.drifted:
            log.warning("an element was changed or deleted from outside", element=name, mended=name in in_force)
        return Brought(work.floor, reports, self._store.next_number(), tuple(work.drifted), refused=work.refused)

    def _look_at_all(self, work: _Work) -> None:
        paths = {name: held.path for name, held in work.held.items()} | {one.name: one.path for one in work.elements}
        work.seen.clear()
        for name, path in paths.items():
            try:
                work.seen[name] = self._seen(path)
            except (OSError, OutOfBounds) as unseen:
                work.faults.setdefault(name, _words(unseen))

    def _reports(self, work: _Work) -> Iterator[ElementReport]:
        declared = {one.name for one in work.elements}
        named = [] if work.statement is None else [one.element for one in work.statement.removes]
        for element in work.elements:
            yield self._report(element.name, element.path, _version(element), work)
        for name in named:
            if name not in work.held:
                yield ElementReport(element=name, state="removed")
        for name, held in sorted(work.held.items()):
            if name in named:
                older = _standing(held, work.seen.get(name))
                detail = work.faults.get(name, "not removed yet")
                yield ElementReport(element=name, state="failed", detail=detail, digest=older.digest if older else "")
            elif name not in declared:
                yield self._report(name, held.path, held.versions[-1], work)

    def _report(self, name: str, path: str, wanted: Version, work: _Work) -> ElementReport:
        seen = work.seen.get(name)
        if seen is not None and wanted.stands_as(seen):
            return ElementReport(element=name, state="in-force", digest=wanted.digest)
        looked = "it cannot be looked at" if seen is None else f"looked at again: {_shown(seen)} at {path}, not what is declared"
        detail = work.faults.get(name, looked)
        older = _standing(work.held.get(name), seen)
        if older is not None:
            return ElementReport(element=name, state="stale", detail=f"an older one stands: {detail}", digest=older.digest)
        return ElementReport(element=name, state="failed", detail=detail)

    # ------------------------------------------------------------------------------------------------ the disk

    @contextmanager
    def _directory(self, path: str, make: bool = False) -> Iterator[int]:
        with directory_of(self._layout.root, path, closed=self._store.directory, make=make) as directory:
            yield directory

    def _seen(self, path: str, swept: bool = False) -> Seen:
        name = PurePosixPath(path).name
        try:
            with self._directory(path) as directory:
                if swept:
                    disk.sweep(directory, name)
                return disk.look(directory, name)
        except FileNotFoundError:
            return NOTHING

    @contextmanager
    def _told_of(self, name: str, work: _Work) -> Iterator[None]:
        """One element's failure is kept as its own, in words."""
        try:
            yield
        except (OSError, OutOfBounds) as fault:
            work.faults[name] = _words(fault)
            log.error("an element could not be brought to what is declared", element=name, error=work.faults[name])


def _version(element: Element) -> Version:
    return Version(digest=element.digest, sha256=element.sha256, mode=element.mode)


def _standing(held: Held | None, seen: Seen | None) -> Version | None:
    """Which version of an element of ours it is that stands, if it is one."""
    if held is None or seen is None:
        return None
    return next((one for one in held.versions if one.stands_as(seen)), None)


def _shown(seen: Seen) -> str:
    return f"a file of mode {seen.mode:04o}" if seen.kind == "file" else ("nothing" if seen == NOTHING else f"a {seen.kind}")


def _words(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}" if isinstance(fault, OSError) else str(fault)
