"""A light load that never ends: tells at a steady rate, each told until the broker has confirmed it, through broker restarts."""

import asyncio
import secrets
from types import TracebackType
from typing import Self

from beds.greeting import Greeted
from beds.outside import broker_at
from mesh_runtime.broker import SessionLost, open_session
from mesh_runtime.contracts import Identity
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.startup import StageFault
from mesh_runtime.telling import NotSent, SendUnknown, Teller
from mesh_runtime.testing.founding import FoundedMesh

#: Tells a second.
RATE = 20.0
#: Seconds for one tell, and before it is told again.
BUDGET, AGAIN = 5.0, 0.2


class SteadyLoad:
    """Use it with ``async with``. ``confirmed`` are the ids that the broker has taken over."""

    def __init__(self, founded: FoundedMesh, who: Identity) -> None:
        self.confirmed: set[str] = set()
        self._founded, self._who = founded, who
        self._run = secrets.token_hex(4)
        self._number = 0
        self._message_id = ""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._tell_for_ever(), name="the load")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def check(self) -> None:
        """Raise what has ended it, if it has ended."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _tell_for_ever(self) -> None:
        while True:
            try:
                session = await open_session(broker_at(self._founded, self._who), str(self._who))
            except StageFault:
                await asyncio.sleep(AGAIN)
                continue
            try:
                teller = Teller(self._who, rights_of(self._who, self._founded.manifests[self._who]))
                teller.attach(await session.confirmed())
                while not session.closed:
                    await self._tell(teller)
            except (SessionLost, StageFault):
                await asyncio.sleep(AGAIN)
            finally:
                await session.close()

    async def _tell(self, teller: Teller) -> None:
        """The next one, or again the one that is not confirmed yet."""
        number = f"{self._run}-{self._number}"
        try:
            await teller.tell(Greeted(id=number), message_id=self._message_id, budget=BUDGET)
        except SendUnknown as unknown:
            self._message_id = unknown.message_id
            await asyncio.sleep(AGAIN)
        except NotSent:
            await asyncio.sleep(AGAIN)
        else:
            self.confirmed.add(number)
            self._number, self._message_id = self._number + 1, ""
            await asyncio.sleep(1 / RATE)
