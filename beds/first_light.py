"""The first bed: runtimes that are started before their broker wait, connect, answer, and compose completely or refuse.

Every part is real: the modules' own console scripts, a RabbitMQ under TLS, files on disk, the operator's command. Each step asserts facts
that are seen from outside; ``--break STEP`` breaks that step's part, and only that step is false then.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from beds.breaking import directory_in_place_of, ended, frozen, port_held, read_only_for_the_issuer
from beds.grants import Granting
from beds.lab import MACHINE, Lab, Ran, left_of
from beds.outside import accepted_tls, answered
from beds.recording import Facts, Record, StepFailed, check
from beds.swallowing import SWALLOWED, Swallowing
from mesh_runtime.contracts import Identity, Machine, OverlayPeers, StoreReachableFrom
from mesh_runtime.testing.processes import program_of, script
from mesh_runtime.testing.waiting import until
from mesh_runtime.trust import Authority

NAME = "first-light"

#: Seconds after the runtimes' start before which no broker is even started.
LATE = 3.0
#: Seconds within which all must be ready once the broker accepts, on a machine that is busy.
READY_WITHIN = 20.0

STORE = "store.mesh:5000"
STORE_CA = f"/etc/docker/certs.d/{STORE}/ca.crt"
OVERLAY = "/etc/mesh/overlay.json"
LOOKUP = StoreReachableFrom.type_name()

STEPS = (
    *("waiting", "ready", "push", "unanswered", "swallowed", "repaired", "no-store", "broker-restart"),
    *("granted", "rotated", "revoked"),
    "taken-down",
)


@dataclass
class FirstLight:
    """One run. ``broken`` names the steps to break."""

    lab: Lab
    record: Record
    broken: Collection[str] = ()
    ready_after: dict[str, float] = field(default_factory=dict)
    _breaks_now: str = ""

    def __post_init__(self) -> None:
        self.granting = Granting(self.lab)

    async def bring_up(self) -> bool:
        """The steps until all are ready."""
        return await self._step("waiting", self.waiting) and await self._step("ready", self.ready)

    async def run(self) -> None:
        """All steps."""
        if not await self.bring_up():
            for name in STEPS[2:-1]:
                self.record.steps[name] = {"ok": False, "why": "not run: the mesh did not come up", "seconds": 0.0}
            return
        await self._step("push", self.push)
        await self._step("unanswered", self.unanswered)
        await self._step("swallowed", self.swallowed)
        await self._step("repaired", self.repaired)
        await self._step("no-store", self.no_store)
        await self._step("broker-restart", self.broker_restart)
        await self._step("granted", self.granted)
        await self._step("rotated", self.rotated)
        await self._step("revoked", self.revoked)

    def runtimes(self) -> dict[str, Facts]:
        """What is known of each runtime at the end. Restarts: lines in ``starts`` less the starts that the bed ordered."""
        return {
            name: {
                "restarts": one.restarts,
                "ready_after_broker_s": self.ready_after.get(name),
                "ordered_starts": one.ordered_starts,
                "asked": self._asks(name),
            }
            for name, one in self.lab.runtimes.items()
        }

    def grantees(self) -> dict[str, Facts]:
        """The same of those that were started later, when there was something to grant."""
        started = {name: one for name, one in self.lab.grantees.items() if one.ordered_starts}
        return {name: {"restarts": one.restarts, "ordered_starts": one.ordered_starts} for name, one in started.items()}

    # ------------------------------------------------------------------------------------------------ steps

    async def waiting(self) -> Facts:
        """Started before the broker, they wait in process, and say for whom."""
        async with self._broken(lambda: port_held(self.lab.broker.ports.amqps)):
            late = time.monotonic() + LATE
            await self.lab.start_runtimes()
            pids = {name: one.pid for name, one in self.lab.runtimes.items()}
            await asyncio.gather(*(one.states.until(lambda seen: seen["cause"] is not None) for one in self.lab.runtimes.values()))
            await asyncio.sleep(late - time.monotonic())
            facts: Facts = {}
            for name, one in self.lab.runtimes.items():
                seen = await one.states.until(lambda seen: seen["cause"] is not None)
                facts[name] = {key: seen[key] for key in ("pid", "state", "stage", "attempts")} | {"cause": seen["cause"]["text"]}
                check(seen["pid"] == pids[name] and one.restarts == 0, f"{name} was started again while it waited", **facts)
                check((seen["state"], seen["stage"]) == ("waiting", "reach"), f"{name} is {seen['state']} at {seen['stage']}", **facts)
                check(self.lab.broker.address in seen["cause"]["text"], f"{name}'s cause names no address", **facts)
            return facts

    async def ready(self) -> Facts:
        """The broker comes; an outside ask is answered within a moment; the host has reported."""
        async with self._broken(lambda: frozen(self.lab.runtimes["networking"])):
            if not self.lab.broker.running:
                await self._start_broker_and_measure()
            await self.lab.all_ready(READY_WITHIN)
            await until(self._heard, "the controller has heard of the host", within=READY_WITHIN, every=0.2)
            return {"ready_after_broker_s": dict(self.ready_after), "pids": {name: one.pid for name, one in self.lab.runtimes.items()}}

    async def push(self) -> Facts:
        """A push composes, applies and is verified; the files are read back."""
        ca = self._store_ca("store-ca")
        await asyncio.gather(self.place_networking(), self._done("place", "store", MACHINE, f"address={STORE}", f"ca={ca}"))
        async with self._broken(lambda: directory_in_place_of(self._on_disk(STORE_CA))):
            ran = await self._push(0)
        return self._read_back(ran, ca)

    async def unanswered(self) -> Facts:
        """Nobody answers the store's lookup: the push refuses, names it, and touches nothing."""
        before = self.lab.files()
        await self._lookup_gone()
        async with self._broken(lambda: ended(self.lab.runtimes["networking"])):
            return await self._refused(before)

    async def swallowed(self) -> Facts:
        """The module's code hides the error; it is refused all the same."""
        before = self.lab.files()
        await asyncio.gather(self.lab.restart("networking", program_of(Swallowing)), self._lookup_gone())
        logs = self.lab.runtimes["networking"].logs
        hidden = len(logs.records(event=SWALLOWED))
        async with self._broken(self._lookup_answered):
            facts = await self._refused(before)
        check(len(logs.records(event=SWALLOWED)) > hidden, "the code that swallows the error did not run", **facts)
        return {**facts, "swallowed_by": Swallowing.__name__}

    async def repaired(self) -> Facts:
        """The lookup is answered again; another push composes, and brings what has changed meanwhile."""
        ca = self._store_ca("next-store-ca")
        await asyncio.gather(
            self.lab.restart("networking", script("networking")),
            self.lab.bind_lookup(LOOKUP, OverlayPeers.type_name()),
            self._done("place", "store", MACHINE, f"address={STORE}", f"ca={ca}"),
        )
        async with self._broken(self._lookup_unbound):
            ran = await self._push(0)
        return self._read_back(ran, ca)

    async def no_store(self) -> Facts:
        """The store is truly absent: that composes *no store*, and the removal has its evidence and is carried out."""
        removed = await self.lab.mesh("remove", "store", MACHINE)
        check(removed.code == 0 or "not placed" in removed.output, f"{removed.command}: exit {removed.code}: {removed.output}")
        plan = await self.lab.mesh("plan")
        self._show(plan)
        going = [line.strip() for line in plan.output.splitlines() if line.strip().startswith("- registry-trust/networking/")]
        async with self._broken(lambda: directory_in_place_of(self._on_disk(STORE_CA))):
            ran = await self._push(0)
        files = self.lab.files()
        facts: Facts = {"exit": ran.code, "removed": going, "files": files}
        check(len(going) == 1 and "(absent: " in going[0], "the plan names no removal with the evidence *absent*", **facts)
        check(STORE_CA not in files, f"{STORE_CA} is still there", **facts)
        check(OVERLAY in files, f"{OVERLAY} is gone", **facts)
        return facts

    async def broker_restart(self) -> Facts:
        """The broker is stopped and started: all wait, then all are ready again, in the same processes."""
        pids = {name: one.pid for name, one in self.lab.runtimes.items()}
        sessions = {name: (await one.states.until_ready())["sessions"] for name, one in self.lab.runtimes.items()}
        await asyncio.to_thread(self.lab.broker.stop)
        await asyncio.gather(*(one.states.until_at("reach", "waiting") for one in self.lab.runtimes.values()))
        async with self._broken(lambda: frozen(self.lab.runtimes["controller"])):
            await self.lab.start_broker()
            begun = time.monotonic()
            await self.lab.all_ready(READY_WITHIN)
        facts: Facts = {"all_ready_after_s": round(time.monotonic() - begun, 3)}
        for name, one in self.lab.runtimes.items():
            seen = await one.states.until_ready()
            facts[name] = {"pid": seen["pid"], "sessions": seen["sessions"], "last_loss": seen["last_loss"]}
            check(seen["pid"] == pids[name] and one.restarts == 0, f"{name} was started again", **facts)
            check(seen["sessions"] == sessions[name] + 1, f"{name} has had {seen['sessions']} sessions, not one more than before", **facts)
        ran = await self._push(0)
        return {**facts, "exit": ran.code}

    async def granted(self) -> Facts:
        """A login is issued, entered, confirmed and used."""
        await self.granting.start()
        async with self._broken(lambda: frozen(self.lab.grantees["database"])):
            return await self.granting.granted()

    async def rotated(self) -> Facts:
        """It is rotated under load, and no write is lost."""
        async with self._broken(lambda: read_only_for_the_issuer(self.lab.postgres)):
            return await self.granting.rotated()

    async def revoked(self) -> Facts:
        """It is revoked, and refused by the server from then on."""
        async with self._broken(lambda: read_only_for_the_issuer(self.lab.postgres)):
            return await self.granting.revoked()

    async def taken_down(self) -> Facts:
        """Everything ends in order, and nothing is left behind."""
        pids = [one.pid for one in self.lab.everybody.values() if one.running] + self.lab.broker.pids + self.lab.postgres.pids
        port, directories = self.lab.broker.ports.amqps, [self.lab.broker.directory, self.lab.postgres.directory]
        begun = time.monotonic()
        codes = await self.lab.take_down()
        async with self._broken(lambda: port_held(port)):
            facts: Facts = {
                "exits": codes,
                "took_s": round(time.monotonic() - begun, 2),
                **left_of(pids, directories, port),
            }
            check(not any(codes.values()), "a runtime did not end in order", **facts)
            left = [*facts["processes"], *facts["directories"], *facts["ports"]]
            check(not left, f"left behind: {left}", **facts)
            return facts

    # ------------------------------------------------------------------------------------------------ breaking

    async def _step(self, name: str, perform: Callable[[], Awaitable[Facts]]) -> bool:
        """One step. One that was broken on purpose is mended and done again, unrecorded, so that the next finds what it needs."""
        self._breaks_now = name if name in self.broken else ""
        ok = await self.record.step(name, perform)
        if self._breaks_now:
            self._breaks_now = ""
            return await self.record.step(name, perform, recorded=False)
        return ok

    async def finish(self) -> None:
        """The last step. What it leaves because it was broken, it has mended itself."""
        self._breaks_now = "taken-down" if "taken-down" in self.broken else ""
        await self.record.step("taken-down", self.taken_down)

    @asynccontextmanager
    async def _broken(self, how: Callable[[], AbstractAsyncContextManager[None]]) -> AsyncIterator[None]:
        """Break this step's part while the body runs, if it is the step to be broken."""
        if not self._breaks_now:
            yield
            return
        async with how():
            self.record.say(f"{self._breaks_now}: broken on purpose", "red")
            yield

    @asynccontextmanager
    async def _lookup_answered(self) -> AsyncIterator[None]:
        await self.lab.bind_lookup(LOOKUP, OverlayPeers.type_name())
        try:
            yield
        finally:
            await self.lab.unbind_lookup(LOOKUP)

    @asynccontextmanager
    async def _lookup_unbound(self) -> AsyncIterator[None]:
        await self.lab.unbind_lookup(LOOKUP)
        try:
            yield
        finally:
            await self.lab.bind_lookup(LOOKUP, OverlayPeers.type_name())

    # ------------------------------------------------------------------------------------------------ parts of steps

    async def _start_broker_and_measure(self) -> None:
        """From the first accepted TLS handshake to the first outside ask answered: by the controller, by networking; the host, ready."""
        founded, broker = self.lab.founded, self.lab.broker
        starting = asyncio.ensure_future(self.lab.start_broker())
        accepting = asyncio.ensure_future(accepted_tls("127.0.0.1", broker.ports.amqps))
        await asyncio.wait([starting, accepting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and starting.exception() is not None:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            starting.result()
        accepted = await accepting
        self.record.say("the broker accepts TLS", "bold")
        machine = Machine(name=MACHINE, address="10.77.0.1")
        measures: dict[str, Awaitable[float]] = {
            "controller": answered(founded, Identity("bed", MACHINE), lambda asker: asker.ask(OverlayPeers(of=MACHINE), budget=2.0)),
            "networking": answered(founded, Identity("controller", "bed"), lambda asker: asker.compose("networking", machine, budget=2.0)),
            "host": self._ready_at("host"),
        }
        await asyncio.gather(starting, *(self._measured(name, accepted, one) for name, one in measures.items()))

    async def _measured(self, name: str, accepted: float, answered_at: Awaitable[float]) -> None:
        try:
            async with asyncio.timeout(READY_WITHIN):
                self.ready_after[name] = round(await answered_at - accepted, 3)
        except TimeoutError:
            raise StepFailed(f"no outside ask of {name} was answered within {READY_WITHIN:g} s of the broker's accepting TLS") from None

    async def _ready_at(self, name: str) -> float:
        await self.lab.runtimes[name].states.until_ready(READY_WITHIN)
        return time.monotonic()

    def _asks(self, name: str) -> str:
        asks = {"controller": "overlay-peers, by bed@alpha", "networking": "compose, by controller@bed"}
        return asks.get(name, "its own state: it answers no asks")

    async def _heard(self) -> bool:
        """Whether the controller knows what the host holds: until then a push is *unheard*."""
        async with self.lab.management() as management:
            queue = await management.queue(self.lab.founded.broker.vhost, f"tells.{self.lab.founded.identity('controller')}")
        heard = self.lab.runtimes["controller"].logs.records(event="reported")
        return bool(heard) and not queue.get("messages", 0)

    async def place_networking(self) -> None:
        """Record the placement whose runtime runs already."""
        await self._done("place", "networking", MACHINE)

    def any_store_ca(self) -> Path:
        """A file with some store's CA, for whoever tries the held mesh."""
        return self._store_ca("store-ca")

    def _store_ca(self, name: str) -> Path:
        """A CA's certificate, new each time it is asked for by another name."""
        path = self.lab.directory / f"{name}.pem"
        if not path.exists():
            path.write_bytes(Authority.create(name).pem)
        return path

    def _on_disk(self, path: str) -> Path:
        return self.lab.founded.host_root / path.lstrip("/")

    def _show(self, ran: Ran) -> None:
        self.record.say(f"$ {ran.command}    (exit {ran.code})")
        self.record.show(ran.output)

    async def _done(self, *arguments: str) -> None:
        ran = await self.lab.mesh(*arguments)
        check(ran.code == 0, f"{ran.command}: exit {ran.code}: {ran.output.strip()}")

    async def _push(self, expected: int) -> Ran:
        ran = await self.lab.mesh("push")
        self._show(ran)
        check(
            ran.code == expected, f"the push ended with {ran.code}, not {expected}: {ran.output.strip()}", exit=ran.code, output=ran.output
        )
        return ran

    def _read_back(self, ran: Ran, ca: Path) -> Facts:
        files = self.lab.files()
        facts: Facts = {"exit": ran.code, "files": files}
        check(OVERLAY in files, f"{OVERLAY} is not there", **facts)
        trust = self._on_disk(STORE_CA)
        check(trust.is_file() and trust.read_bytes() == ca.read_bytes(), f"{STORE_CA} is not the store's CA", **facts)
        return facts

    async def _lookup_gone(self) -> None:
        if await self._lookup_bound():
            await self.lab.unbind_lookup(LOOKUP)
        check(not await self._lookup_bound(), "somebody is still bound to the store's lookup")

    async def _lookup_bound(self) -> bool:
        async with self.lab.management() as management:
            bindings = await management.bindings(self.lab.founded.broker.vhost)
        return any(row["routing_key"].endswith(LOOKUP) for row in bindings)

    async def _refused(self, before: dict[str, str]) -> Facts:
        ran = await self._push(3)
        after = self.lab.files()
        facts: Facts = {"exit": ran.code, "output": ran.output, "untouched": after == before, "files": after}
        named = f"unanswered: {StoreReachableFrom.contract}(machine='{MACHINE}'): nobody"
        check(named in ran.output, f"the refusal does not say {named!r}", **facts)
        check(after == before, "the files were touched", **facts)
        return facts
