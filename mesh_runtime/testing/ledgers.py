"""What a ledger must do, as tests that any ledger can be put to.

An author who writes a ledger of his own writes one class of tests::

    class TestMyLedger(LedgerSpecification):
        @pytest.fixture
        def open_ledger(self, ...) -> Callable[[], Ledger]:
            return lambda: MyLedger(...)        # each call: another process that opens the same place

and runs it. A ledger keeps records whole; what stands in them is none of its business.
"""

# ruff: noqa: D102 - the name of a test is its description

import asyncio
from collections.abc import Callable

from mesh_runtime.grants.ledger import Ledger, Login, Moved, Record

OpenLedger = Callable[[], Ledger]

#: Texts that a ledger must keep as they are, wherever they stand. NUL is not among them: PostgreSQL has no text with it.
HARD = (
    "plain",
    "it's",
    'a "b"',
    "x; DROP TABLE record; --",
    "%s %(a)s {0} $1",
    "back\\slash",
    "ü€😀",
    "a/b%2Fc",
    " blank ",
    "line\nline",
    "n" * 3000,
)


def record_of(resource: str = "thing.1/one", consumer: str = "reader@alpha", logins: int = 3) -> Record:
    """A record that was never written, with every field filled."""
    made = tuple(
        Login(
            sequence=number,
            login=f"{consumer}.{number}",
            state=state,
            key="0f" * 32,
            sealed=f"c2VhbGVk+/{number}=",
            issuer="maker@alpha",
            since="2026-11-30T12:00:00.000+00:00",
            confirmed="2026-11-30T12:00:01.000+00:00" if state in ("confirmed", "retiring") else "",
        )
        for number, state in zip(range(1, logins + 1), ("retiring", "confirmed", "issued", "drawn"), strict=False)
    )
    given = {"resource": resource, "fields": '{"name": "one"}', "consumer": consumer, "key": "0f" * 32}
    return Record(**given, sequence=logins, granted=logins, logins=made)


async def _moved(ledger: Ledger, record: Record) -> bool:
    try:
        await ledger.write(record)
    except Moved:
        return True
    return False


class LedgerSpecification:
    """Subclass it in a test module under a name that begins with ``Test``, with a fixture ``open_ledger``."""

    async def test_of_a_grant_that_never_was_there_is_no_record(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert await ledger.read("thing.1/one", "reader@alpha") is None
        assert await ledger.all() == ()
        await ledger.write(record_of())
        assert await ledger.read("thing.1/one", "reader@beta") is None
        assert await ledger.read("thing.1/on", "reader@alpha") is None

    async def test_a_record_is_kept_whole_and_its_version_counts(self, open_ledger: OpenLedger) -> None:
        ledger, record = open_ledger(), record_of()
        written = await ledger.write(record)
        assert written.version > 0
        assert written == record.model_copy(update={"version": written.version})
        assert await ledger.read(record.resource, record.consumer) == written
        bare = Record(resource="thing.1/two", fields="{}", consumer="reader@alpha")
        assert await ledger.read("thing.1/two", "reader@alpha") is None
        assert (await ledger.write(bare)).logins == ()
        again = await ledger.write(written.model_copy(update={"revoked": "by operator@alpha", "logins": (), "key": ""}))
        assert again.version > written.version
        assert await ledger.read(record.resource, record.consumer) == again

    async def test_what_was_written_is_there_for_the_next_process(self, open_ledger: OpenLedger) -> None:
        written = await open_ledger().write(record_of())
        assert await open_ledger().all() == (written,)

    async def test_all_gives_every_record_once(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        names = {(f"thing.1/{resource}", f"reader-{consumer}@alpha") for resource in range(4) for consumer in range(4)}
        written = {await ledger.write(record_of(*name)) for name in names}
        assert len(await ledger.all()) == len(names)
        assert set(await ledger.all()) == written

    async def test_whoever_read_an_older_version_has_moved_and_changes_nothing(self, open_ledger: OpenLedger) -> None:
        one, other = open_ledger(), open_ledger()
        first = await one.write(record_of())
        second = await other.write(first.model_copy(update={"revoked": "by operator@alpha"}))
        assert await _moved(one, first.model_copy(update={"key": ""})), "a writer that had read an older version was let write"
        assert await _moved(one, record_of()), "a second first record was let write"
        assert await one.read(first.resource, first.consumer) == second

    async def test_a_record_that_was_never_written_cannot_be_changed(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        assert await _moved(ledger, record_of().model_copy(update={"version": 1}))
        assert await ledger.all() == ()

    async def test_of_many_writers_of_one_version_one_wins(self, open_ledger: OpenLedger) -> None:
        ledgers = [open_ledger() for _ in range(6)]
        for at in range(4):
            stored = await ledgers[0].read("thing.1/one", "reader@alpha")
            record = record_of() if stored is None else stored
            tries = [record.model_copy(update={"revoked": f"by {at}.{number}"}) for number in range(len(ledgers))]
            moved = await asyncio.gather(*(_moved(ledger, one) for ledger, one in zip(ledgers, tries, strict=True)))
            assert moved.count(False) == 1
            now = await ledgers[0].read("thing.1/one", "reader@alpha")
            assert now is not None
            assert now.revoked == tries[moved.index(False)].revoked

    async def test_names_of_every_hard_form_are_kept_as_they_are(self, open_ledger: OpenLedger) -> None:
        ledger = open_ledger()
        for hard in HARD:
            record = record_of(f"thing.1/{hard}", f"{hard}@alpha").model_copy(update={"fields": hard, "revoked": hard})
            written = await ledger.write(record)
            assert await ledger.read(record.resource, record.consumer) == written
        assert {one.fields for one in await ledger.all()} == set(HARD)

    async def test_a_write_that_is_cut_leaves_the_old_record_or_the_new_one(self, open_ledger: OpenLedger) -> None:
        first = await open_ledger().write(record_of())
        written = [first]
        for turns in range(12):
            ledger = open_ledger()
            old = await ledger.read(first.resource, first.consumer)
            assert old is not None
            new = old.model_copy(update={"revoked": f"{turns}", "logins": ()})
            writing = asyncio.ensure_future(ledger.write(new))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            written.append(new)
            # What was cut, now or a turn ago, may still be on its way: it comes whole, or it has moved.
            now = await open_ledger().read(first.resource, first.consumer)
            assert now is not None
            assert now.version >= old.version
            assert now.model_copy(update={"version": 0}) in [one.model_copy(update={"version": 0}) for one in written]
