"""One grant of a consumer, over all its logins: asked for, entered, rotated, revoked.

It promises that a login is confirmed only when nothing of this runtime uses an older one, that a rotated grant which cannot be opened or
entered leaves the one in force untouched, and that whatever comes from another login than the one that issued it changes nothing.
"""

import asyncio
import contextvars
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from mesh_runtime.asking.words import words_of
from mesh_runtime.contracts.granting import GrantAsk, GrantConfirmed, Granted, GrantRevoked, GrantRotated, ask_for
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.outcomes import Reason, Refused, Unanswered
from mesh_runtime.grants.entering import Entered, Grant
from mesh_runtime.grants.granted import GrantedMethod
from mesh_runtime.grants.opening import opened, read_key
from mesh_runtime.logging import mask_text
from mesh_runtime.startup import PACES, Cause, Stage, StageFault, blocked, waiting
from mesh_runtime.tasks import attempt
from mesh_runtime.telling import NotSent, SendUnknown
from mesh_runtime.trust.sealing import PrivateKey

log = structlog.stdlib.get_logger(__name__)

#: Seconds for one attempt at a grant, from the ask to the entered context: less than the stage has, so that the fault can name the grant.
OBTAIN_WITHIN = PACES[Stage.GRANTS].deadline - 2.0
#: Seconds that an issuer may take to answer.
ASK_WITHIN = 20.0
#: Different errors of one trial that are kept in mind, so that each one's traceback is logged once.
TRACED = 64


@dataclass(frozen=True, slots=True)
class Consumer:
    """Who is granted something, and its ways to the mesh.

    ``ask`` raises Unanswered; ``confirm`` tells an issuer, under a message id, and raises NotSent or SendUnknown; ``again`` has the stages
    climbed again, for the reason given.
    """

    module: object
    identity: Identity
    key_file: Path | None
    ask: Callable[[GrantAsk], Awaitable[Granted | Refused]]
    confirm: Callable[[GrantConfirmed, Identity, str], Awaitable[object]]
    again: Callable[[str], None]
    context: contextvars.Context


class Held:
    """One granted method. Used from the loop alone, its slot apart."""

    def __init__(self, consumer: Consumer, method: GrantedMethod[Any]) -> None:
        self.resource = method.resource
        self._text = method.resource.text
        self._consumer = consumer
        self._method = method
        self._slot = method.slot(consumer.module)
        self._now: Entered | None = None
        self._key: PrivateKey | None = None
        self._old: list[Entered] = []
        self._confirmed = ("", 0)
        self._turn = asyncio.Lock()
        self._traced: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------------ the stage

    async def climb(self) -> None:
        """Have it in force and confirmed; what is already done is not done again. Raises StageFault (grants)."""
        async with self._turn:
            if self._now is None:
                await self._leave_all(None)
                key = read_key(self._consumer.key_file)
                self._now = await self._within(self._obtained(key), f"{self._text} was not granted and entered")
                self._key = key
                self._slot.put(self._now)
                log.info("a grant is in force", resource=self._text, sequence=self._now.grant.sequence, issuer=self._now.grant.issuer)
        for one in [each for each in self._old if not each.held]:
            await self._leave(one)
        if (grant := self._to_confirm()) is None:
            return
        try:
            await self._confirm(grant)
        except (NotSent, SendUnknown) as unsent:
            raise waiting(Stage.GRANTS, "not-confirmed", f"{self._text} is in force and not confirmed yet: {unsent}", self._on) from None

    def _to_confirm(self) -> Grant | None:
        """What is in force, unless it is confirmed, or an older one is still used: its tell is being handled, or comes again."""
        if self._now is None or self._old or self._confirmed == _name(self._now.grant):
            return None
        return self._now.grant

    async def _obtained(self, key: PrivateKey) -> Entered:
        try:
            outcome = await self._consumer.ask(ask_for(type(self.resource))(resource=self.resource, key=str(key.public_key)))
        except Unanswered as unanswered:
            if unanswered.reasons == (Reason.NOBODY,):
                words = f"{self._text} is provided by the module {self._on!r}, and no runtime of it is there"
                raise waiting(Stage.GRANTS, "nobody-provides", words, self._on) from None
            raise waiting(Stage.GRANTS, "unanswered", f"{self._text} is asked of the module {self._on!r}: {unanswered}", self._on) from None
        if isinstance(outcome, Refused):
            words = f"{self._text} is refused by {outcome.by}: {mask_text(outcome.why)}"
            raise (waiting if outcome.again else blocked)(Stage.GRANTS, outcome.code, words, outcome.by)
        return await self._entered(opened(outcome, self.resource, str(self._consumer.identity), outcome.by, key))

    @property
    def _on(self) -> str:
        return type(self.resource).provided_by

    async def _entered(self, grant: Grant) -> Entered:
        """Entering is the trial. Raises StageFault (grants) for whatever the author's code raises."""
        one = Entered(grant, self._method, self._consumer.module, self._ended)
        if (error := await attempt(one.enter(self._consumer.context.copy()))) is None:
            return one
        if isinstance(error, StageFault):
            cause = error.cause
            raise StageFault(Stage.GRANTS, Cause(cause.kind, cause.code, mask_text(f"{self._text}: {cause.text}"), cause.on)) from None
        words = f"{self._text}, entering {one.where} raised {words_of(error)}"
        if words not in self._traced:
            self._traced[words] = None
            if len(self._traced) > TRACED:  # texts that quote a time or a port never read the same
                del self._traced[next(iter(self._traced))]
            log.error("a grant could not be entered", grant=one.where, error=words, exc_info=error)
        raise waiting(Stage.GRANTS, type(error).__name__, words, grant.issuer)

    async def _within(self, work: Awaitable[Entered], words: str) -> Entered:
        limit = asyncio.timeout(OBTAIN_WITHIN)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise waiting(Stage.GRANTS, "time-out", f"{words} within {OBTAIN_WITHIN:g} s", self._on) from None

    async def _confirm(self, grant: Grant) -> None:
        """Tell its issuer that it is used and nothing older is; the same message id whenever the same is told again."""
        number = hashlib.sha256(f"{self._consumer.identity} {grant.resource} {grant.issuer} {grant.sequence}".encode()).hexdigest()[:32]
        tell = GrantConfirmed(resource=grant.resource, sequence=grant.sequence)
        await self._consumer.confirm(tell, Identity.parse(grant.issuer), number)
        self._confirmed = _name(grant)
        log.info("a grant is confirmed", resource=grant.resource, sequence=grant.sequence, issuer=grant.issuer)

    # ------------------------------------------------------------------------------------------------ what the issuer tells

    async def rotated(self, tell: GrantRotated, sender: str) -> None:
        """A new one of what is held: enter it beside the one in force, switch, leave the old when nothing uses it, confirm.

        Raises what keeps it from being opened or entered, so that the tell is tried again; the one in force stays.
        """
        now, key = self._mine("rotated", sender), self._key_of(tell)
        if now is None or key is None:
            return
        async with self._turn:
            now = self._now
            if now is None or tell.sequence < now.grant.sequence:
                log.info("an older grant than the one in force was told", resource=self._text, sequence=tell.sequence)
                return
            if tell.sequence > now.grant.sequence:
                grant = opened(tell, self.resource, str(self._consumer.identity), sender, key)
                new = await self._within(self._entered(grant), f"{self._text} was not entered")
                self._now, self._key = new, key
                self._old.append(now)
                self._slot.put(new)
                log.info("a rotated grant is in force", resource=self._text, sequence=tell.sequence, issuer=sender)
        await self._only(tell.sequence)

    async def _only(self, sequence: int) -> None:
        """Leave all older ones as soon as nothing uses them, then confirm; unless a newer one is in force by then, which does it."""
        while self._old:
            oldest = self._old[0]
            await oldest.free()
            await self._leave(oldest)
        if self._now is not None and self._now.grant.sequence == sequence:
            await self._confirm(self._now.grant)

    async def revoked(self, tell: GrantRevoked, sender: str) -> None:
        """It has ended: leave it, and have the stages climbed again, where the issuer says why. One that was told before the grant that is
        in force now was issued changes nothing.
        """
        if self._mine("revoked", sender) is None:
            return
        async with self._turn:
            now = self._now
            if now is None or tell.sequence < now.grant.sequence:
                log.info("a grant was issued after the one that is revoked", resource=self._text, revoked=tell.sequence)
                return
            why = f"the grant of {self._text} was revoked by {sender}: {mask_text(tell.why)}"
            log.error("a grant is revoked", resource=self._text, sequence=now.grant.sequence, issuer=sender, why=mask_text(tell.why))
            self._slot.put(None, why)
            self._old.append(now)
            self._now = None
        # First the session ends, so that tells whose handlers find nothing to work with any more come again instead of being parked.
        self._consumer.again(why)

    def _mine(self, what: str, sender: str) -> Entered | None:
        """The one in force, if ``sender`` issued it; else it is said, and nothing is done."""
        now = self._now
        if now is None:
            log.warning(f"a grant that is not held was told to be {what}", resource=self._text, sender=sender)
        elif sender != now.grant.issuer:
            log.warning(
                f"a grant was told to be {what} by another than its issuer", resource=self._text, sender=sender, issuer=now.grant.issuer
            )
            return None
        return now

    def _key_of(self, tell: GrantRotated) -> PrivateKey | None:
        """The key that it is sealed to: of the file, or that of the grant in force."""
        ours = [] if self._key is None else [self._key]
        try:
            ours.append(read_key(self._consumer.key_file))
        except StageFault as fault:
            log.warning("the placement's key cannot be read now", why=fault.cause.text)
        found = next((one for one in ours if str(one.public_key) == tell.key), None)
        if found is None:
            known = ", ".join(str(one.public_key) for one in ours)
            log.warning("a rotated grant is sealed to another key", resource=self._text, sequence=tell.sequence, key=tell.key, ours=known)
        return found

    # ------------------------------------------------------------------------------------------------ its end

    def _ended(self, one: Entered) -> None:
        """Its context ended though nobody left it: it is in force no more, and must be entered anew."""
        if one in self._old:
            self._old.remove(one)
        if one is self._now:
            why = f"{one.where} ended by itself"
            self._now = None
            self._slot.put(None, why)
            log.error("a grant's context ended by itself", grant=one.where, sequence=one.grant.sequence)
            self._consumer.again(why)

    async def _leave_all(self, within: float | None) -> None:
        await asyncio.gather(*(self._leave(one, within) for one in self._old))

    async def _leave(self, one: Entered, within: float | None = None) -> None:
        await one.leave(within)
        if one in self._old:
            self._old.remove(one)
            log.info("an older grant is left", resource=self._text, sequence=one.grant.sequence)

    async def leave(self, within: float) -> None:
        """Leave all that is open, in bounded time: the process ends."""
        self._slot.put(None, "the runtime has stopped")
        if self._now is not None:
            self._old.append(self._now)
            self._now = None
        await self._leave_all(within)


def _name(grant: Grant) -> tuple[str, int]:
    return grant.issuer, grant.sequence
