"""Networking as careless authors might write it: each class hides in another way that a question went unanswered.

All ask the two questions of the real one, and all return sections as if nothing had happened.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mesh_runtime import Absent, Found, Machine, ModuleRuntime, NoStore, Overlay, OverlayPeers, StoreReachableFrom, TrustStore
from mesh_runtime.contracts.base import Ask

Sections = tuple[Overlay, TrustStore | NoStore]


def answered(outcome: object) -> Any:
    """What a careless author makes of an outcome or an error: the value, or nothing."""
    return outcome.value if isinstance(outcome, Found) else None


def seen(task: asyncio.Task[Any]) -> None:
    """Look at how it ended, so that nobody complains."""
    if not task.cancelled():
        task.exception()


def questions(machine: Machine) -> tuple[OverlayPeers, StoreReachableFrom]:
    return OverlayPeers(of=machine.name), StoreReachableFrom(machine=machine.name)


def short(machine: Machine, peers: Any = (), store: Any = None) -> Sections:
    """What is composed of what there is: the fault that the library must not let out."""
    trust: TrustStore | NoStore = NoStore() if store is None else TrustStore(address=store.address, ca=store.ca)
    return Overlay(address=machine.address, peers=peers or ()), trust


class Careless(ModuleRuntime):
    """Asks each question by ``heard``, which hides how it ended."""

    module = "networking"

    async def heard(self, question: Ask[Any]) -> Any:
        raise NotImplementedError

    async def compose(self, machine: Machine) -> Sections:
        peers, store = [await self.heard(question) for question in questions(machine)]
        return short(machine, peers, store)


class ExceptException(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        try:
            return answered(await self.ask(question))
        except Exception:  # noqa: BLE001 - what careless code does
            return None


class GatherReturnExceptions(Careless):
    async def compose(self, machine: Machine) -> Sections:
        got = await asyncio.gather(*(self.ask(question) for question in questions(machine)), return_exceptions=True)
        return short(machine, *map(answered, got))


class HelperTask(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        task = asyncio.create_task(self.ask(question))
        task.add_done_callback(seen)
        await asyncio.wait([task])
        return None if task.exception() else answered(task.result())


class TaskOfAnEmptyContext(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        async def hidden() -> Any:
            try:
                return answered(await self.ask(question))
            except Exception:  # noqa: BLE001 - what careless code does
                return None

        return await asyncio.create_task(hidden(), context=contextvars.Context())


class ToThread(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        return await asyncio.to_thread(quietly, self.ask, question, asyncio.get_running_loop())


class Executor(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, quietly, self.ask, question, loop)


class PlainThread(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        loop = asyncio.get_running_loop()
        return await in_plain_thread(lambda: quietly(self.ask, question, loop))


class ThreadWithItsOwnLoop(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        def alone() -> Any:
            try:
                return answered(asyncio.run(self.ask(question)))
            except Exception:  # noqa: BLE001 - what careless code does
                return None

        return await in_plain_thread(alone)


class InnerTimeout(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        try:
            async with asyncio.timeout(0.02):
                return answered(await self.ask(question))
        except Exception:  # noqa: BLE001 - what careless code does
            return None


class TaskNeverAwaited(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        self.left = asyncio.create_task(self.ask(question))
        self.left.add_done_callback(seen)


class CoroutineNeverAwaited(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        self.ask(question).close()


class CancelledHelper(Careless):
    """The error that comes out is a cancellation of the author's own making."""

    async def heard(self, question: Ask[Any]) -> Any:
        task = asyncio.create_task(self.ask(question))
        await asyncio.sleep(0)
        task.cancel()
        return answered(await task)


class SystemExitInstead(Careless):
    async def heard(self, question: Ask[Any]) -> Any:
        try:
            return answered(await self.ask(question))
        except Exception:  # noqa: BLE001 - what careless code does
            raise SystemExit(0) from None


class ShortOnPurpose(Careless):
    """Swallows everything that it can, its own cancellation too."""

    async def heard(self, question: Ask[Any]) -> Any:
        try:
            return answered(await self.ask(question))
        except BaseException:  # noqa: BLE001 - what careless code does
            return None


#: Those in which each question is asked, whatever became of the one before; and those in which the code ends at the first failure.
ASKS_BOTH: tuple[type[Careless], ...] = (
    ExceptException,
    GatherReturnExceptions,
    HelperTask,
    TaskOfAnEmptyContext,
    ToThread,
    Executor,
    PlainThread,
    ThreadWithItsOwnLoop,
    InnerTimeout,
    ShortOnPurpose,
)
LEAVES_OPEN: tuple[type[Careless], ...] = (TaskNeverAwaited, CoroutineNeverAwaited)
ENDS_AT_THE_FIRST: tuple[type[Careless], ...] = (CancelledHelper, SystemExitInstead)


def quietly(ask: Callable[[Ask[Any]], Coroutine[Any, Any, Any]], question: Ask[Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Ask from a thread, on the runtime's loop, and hide how it ended."""
    try:
        return answered(asyncio.run_coroutine_threadsafe(ask(question), loop).result())
    except Exception:  # noqa: BLE001 - what careless code does
        return None


def in_plain_thread(work: Callable[[], Any]) -> Awaitable[Any]:
    """Run ``work`` in a thread of the author's own making, which knows no context."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def end(result: Any) -> None:
        if not ended.done():
            ended.set_result(result)

    def run() -> None:
        result = work()
        loop.call_soon_threadsafe(end, result)

    threading.Thread(target=run, daemon=True).start()
    return ended


FOUND_PEERS: Found[Any] = Found(value=({"machine": "beta", "address": "10.77.0.2"},), revision=4)
FOUND_STORE: Found[Any] = Found(value={"address": "store.mesh:5000", "ca": "a CA"}, revision=4)
NO_STORE = Absent(revision=4)
