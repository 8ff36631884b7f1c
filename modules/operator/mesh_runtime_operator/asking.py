"""One act of an operator: dial within a bounded time, ask the controller one thing, close.

It uses the library's own session and asker, under the operator's login, and climbs the same stages as a runtime. What differs: a command
does not wait for ever. A blocked cause ends it at once, since somebody must act; a waiting one when ``wait`` is over.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from mesh_runtime.asking import Asker
from mesh_runtime.asking.visiting import visit
from mesh_runtime.broker import Session, SessionLost, open_session
from mesh_runtime.contracts import Manifest, Reason, Tool, Unanswered
from mesh_runtime.startup import Kind, StageFault, climbing_waits
from mesh_runtime_operator.context import Context
from mesh_runtime_operator.exits import Ended, Exit

#: Seconds that an act which waits for no machine may take.
BUDGET = 40.0

A = TypeVar("A")


async def ask_controller(context: Context, question: Tool[A], *, wait: float, budget: float = BUDGET) -> A:
    """The outcome of one tool ask. ``wait`` and ``budget`` are seconds: to reach the broker, and to be answered.

    Raises Ended: no session, nobody, unanswered.
    """
    async with asker_of(context, wait) as (asker, address):
        try:
            return await asker.ask(question, budget=budget)  # type: ignore[no-any-return]  # one question gives its own outcome
        except Unanswered as unanswered:
            raise unanswered_by_the_controller(unanswered, address) from None


def unanswered_by_the_controller(unanswered: Unanswered, address: str) -> Ended:
    """How the command ends where the controller gave no answer: nobody is there, or it is unknown whether it acted."""
    missing = unanswered.missing[0]
    if missing.reason is Reason.NOBODY:
        return Ended(Exit.NOBODY, f"nobody is there: no controller answers at {address} ({missing.detail})")
    return Ended(Exit.UNANSWERED, f"unanswered: {missing}; whether the controller acted is unknown")


@asynccontextmanager
async def asker_of(context: Context, wait: float) -> AsyncIterator[tuple[Asker, str]]:
    """What asks under the operator's login, and the broker's address. Raises Ended (no session)."""
    async with session_of(context, wait) as session:
        asker = await _asker(context, session)
        try:
            yield asker, session.address
        finally:
            asker.detach("the command is done")


@asynccontextmanager
async def session_of(context: Context, wait: float) -> AsyncIterator[Session]:
    """A session with the context's broker, closed at the end. Raises Ended (no session), naming stage and cause."""
    session = await _open(context, wait)
    try:
        yield session
    finally:
        await session.close()


async def _open(context: Context, wait: float) -> Session:
    waits = climbing_waits()
    words = "it neither refuses nor answers"
    try:
        async with asyncio.timeout(wait):
            while True:
                try:
                    return await open_session(context.broker, str(context.identity))
                except StageFault as fault:
                    words, cause, stage = f"{fault.stage}: {fault.cause.text}", fault.cause, fault.stage
                if cause.kind is Kind.BLOCKED:
                    raise Ended(Exit.NO_SESSION, f"no session with the broker, somebody must act: {words}")
                await asyncio.sleep(waits.after(stage, cause))
    except TimeoutError:
        raise Ended(Exit.NO_SESSION, f"no session with the broker within {wait:g} s: {words}") from None


async def _asker(context: Context, session: Session) -> Asker:
    manifest = Manifest(module=context.identity.module, version="0", command=("mesh",))
    try:
        return await visit(session, context.identity, manifest)
    except StageFault as fault:
        raise Ended(Exit.NO_SESSION, f"the session cannot be used: {fault.stage}: {fault.cause.text}") from None
    except SessionLost as lost:
        raise Ended(Exit.NO_SESSION, f"the session was lost at once: {lost}") from None
