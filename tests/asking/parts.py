"""Modules whose handlers do what handlers should not, and one that asks."""

import asyncio
import time
from typing import Any, Literal

from mesh_runtime import Absent, Contract, Found, Lookup, ModuleRuntime, Tell, Tool, answers, told
from mesh_runtime.contracts.base import Provision
from mesh_runtime.contracts.outcomes import Outcome, Refused


class Word(Contract):
    text: str


class Say(Lookup[Found[Word] | Absent], answered_by="oracle"):
    """``how`` is what its handler does."""

    how: str


class Quick(Lookup[Found[Word]], answered_by="oracle"):
    """Answered at once."""


class Slow(Lookup[Found[Word]], answered_by="oracle"):
    """Blocks its thread for so many seconds."""

    seconds: float


class Granted(Outcome):
    outcome: Literal["granted"] = "granted"
    what: str


class Give(Provision[Granted | Refused], answered_by="oracle"):
    """Its handler asks a lookup of its own."""

    ask: str = "below"


class Act(Tool[Granted | Refused], answered_by="oracle"):
    """An operator's."""


class Wanted(Tell):
    how: str = "keep"
    number: int = 0


class OfTheHost(Tell, told_by="host"):
    number: int = 0


class Unwritable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Oracle(ModuleRuntime):
    """Does as it is asked and told."""

    tells = (Wanted,)

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # passed on as they come
        self.seen: list[str] = []
        self.budgets: list[float] = []
        self.kept: list[int] = []
        self.go = asyncio.Event()
        self.held = asyncio.Event()

    @answers(Say)
    async def say(self, ask: Say) -> Found[Word] | Absent:
        self.seen.append(ask.how)
        match ask.how:
            case "absent":
                return Absent(revision=3)
            case "raise":
                raise RuntimeError("as it was asked to")
            case "wrong type":
                wrong: Any = "no outcome"
                return wrong  # type: ignore[no-any-return]  # the mistake that is meant
            case "wrong value":
                return Found(value={"no": "word"}, revision=1)
            case "exit":
                raise SystemExit(3)
            case "cancel itself":
                raise asyncio.CancelledError("of its own making")
            case "unwritable":
                raise Unwritable
            case "surrogate":
                raise RuntimeError("\udcff")
            case "own time-out":
                raise TimeoutError("its own")
            case "never":
                await asyncio.Event().wait()
            case "hold":
                self.held.set()
                await self.go.wait()
        return Found(value=Word(text=ask.how), revision=3)

    @answers(Quick)
    async def quick(self, ask: Quick) -> Found[Word]:
        return Found(value=Word(text="quick"), revision=1)

    @answers(Slow)
    def slow(self, ask: Slow) -> Found[Word]:
        time.sleep(ask.seconds)
        return Found(value=Word(text="slow"), revision=1)

    @answers(Give)
    async def give(self, ask: Give) -> Granted | Refused:
        if ask.ask == "own level":
            await self.ask(Give())
        found = await self.ask(Say(how="nested"))
        return Granted(what=type(found).__name__)

    @answers(Act)
    async def act(self, ask: Act) -> Granted | Refused:
        return Granted(what=self.asked_by)

    @told(Wanted)
    async def want(self, tell: Wanted) -> None:
        self.seen.append(f"{tell.how} {tell.number}")
        match tell.how:
            case "raise":
                raise RuntimeError("as it was told to")
            case "exit":
                raise SystemExit(3)
            case "never":
                await asyncio.Event().wait()
            case "hold":
                self.held.set()
                await self.go.wait()
        self.kept.append(tell.number)

    @told(OfTheHost)
    async def of_the_host(self, tell: OfTheHost) -> None:
        self.kept.append(tell.number)


class Seeker(ModuleRuntime):
    """Asks and tells."""

    tells = (Wanted,)


class Operator(ModuleRuntime):
    """Logs in as an operator does."""
