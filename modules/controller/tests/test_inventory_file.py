"""The inventory's file: waited for, founded once, refused when it is damaged, lost or another mesh's. Field case B46."""

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from mesh_runtime.contracts import Found, OverlayPeers
from mesh_runtime.startup import Kind, StageFault
from mesh_runtime_controller.tables import metadata

if TYPE_CHECKING:
    from conftest import Desk


async def fault_of(desk: "Desk") -> StageFault:
    with pytest.raises(StageFault) as raised:
        await desk.controller.prepare()
    return raised.value


async def test_a_key_that_is_not_there_yet_is_waited_for(unprepared: "Desk") -> None:
    key = unprepared.directory / "controller.key"
    text = key.read_bytes()
    key.unlink()
    with pytest.raises(FileNotFoundError, match=r"controller\.key"):
        await unprepared.controller.prepare()
    key.write_bytes(text)
    await unprepared.controller.prepare()


async def test_a_key_of_another_kind_is_blocked(unprepared: "Desk") -> None:
    (unprepared.directory / "controller.key").write_text("no key")
    fault = await fault_of(unprepared)
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "bad-key")


async def test_without_store_and_founding_it_waits_and_makes_nothing(unprepared: "Desk") -> None:
    founding = unprepared.directory / "founding.json"
    text = founding.read_bytes()
    founding.unlink()
    fault = await fault_of(unprepared)
    assert (fault.cause.kind, fault.cause.code) == (Kind.WAITING, "no-history")
    assert "MESH_CONTROLLER_FOUNDING" in fault.cause.text
    assert not unprepared.file.exists()
    founding.write_bytes(text)
    await unprepared.controller.prepare()


async def test_an_empty_store_takes_up_the_founding_and_no_later_one(unprepared: "Desk") -> None:
    await unprepared.controller.prepare()
    founding = json.loads((unprepared.directory / "founding.json").read_text())
    founding["machines"].append({"name": "gamma", "address": "10.0.0.9"})
    (unprepared.directory / "founding.json").write_text(json.dumps(founding))
    await unprepared.controller.prepare()
    peers = await unprepared.controller.overlay_peers(OverlayPeers(of="alpha"))
    assert isinstance(peers, Found)
    assert [(peer.machine, peer.address) for peer in peers.value] == [("beta", "10.0.0.2")]


async def test_the_founding_is_not_needed_once_there_is_a_store(unprepared: "Desk") -> None:
    await unprepared.controller.prepare()
    (unprepared.directory / "founding.json").unlink()
    await unprepared.controller.prepare()


async def test_a_founding_that_was_cut_short_is_begun_anew(unprepared: "Desk") -> None:
    unprepared.file.with_name("inventory.sqlite.new").write_bytes(b"half of a")
    await unprepared.controller.prepare()
    assert sorted(one.name for one in unprepared.directory.glob("inventory.sqlite*") if "-" not in one.name) == [
        "inventory.sqlite",
        "inventory.sqlite.founded",
    ]
    assert unprepared.file.stat().st_mode & 0o777 == 0o600


async def test_a_store_of_another_mesh_is_blocked_with_both_ids(unprepared: "Desk") -> None:
    await unprepared.controller.prepare()
    founding = json.loads((unprepared.directory / "founding.json").read_text())
    (unprepared.directory / "founding.json").write_text(json.dumps(founding | {"mesh": "m-2"}))
    fault = await fault_of(unprepared)
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "other-mesh")
    assert "'m-1'" in fault.cause.text
    assert "'m-2'" in fault.cause.text


@pytest.mark.parametrize(
    ("founding", "words"),
    [
        ({"mesh": "m", "machines": []}, "machines"),
        ({"mesh": "m", "machines": [{"name": "A", "address": "10.0.0.1"}]}, "machines.0.name"),
        ({"mesh": "m", "machines": [{"name": "a", "address": "10.0.0.1/24"}]}, "machines.0.address"),
        ({"mesh": "m", "machines": [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.1"}]}, "10.0.0.1"),
    ],
)
async def test_a_malformed_founding_is_blocked_and_says_where(unprepared: "Desk", founding: Any, words: str) -> None:
    (unprepared.directory / "founding.json").write_text(json.dumps(founding))
    fault = await fault_of(unprepared)
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "malformed-founding")
    assert words in fault.cause.text
    assert not unprepared.file.exists()


def cut_to_nothing(file: Path) -> None:
    file.write_bytes(b"")


def cut_in_half(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def spoil_a_page(file: Path) -> None:
    """One page of the many is not what was written: found only by looking at all of them."""
    whole = bytearray(file.read_bytes())
    at = whole.index(b"10.0.0.2") // 4096 * 4096
    whole[at : at + 8] = b"\x0d\x00\x00\x00\xff\xff\xff\xff"
    file.write_bytes(whole)


def overwrite(file: Path) -> None:
    file.write_bytes(b"not a database at all\n" * 500)


def empty_database(file: Path) -> None:
    file.unlink()
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE something (a)")
    other.close()


def forget_whose(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("DELETE FROM mesh")
    other.commit()
    other.close()


@pytest.mark.parametrize("damage", [cut_to_nothing, cut_in_half, spoil_a_page, overwrite, empty_database, forget_whose, Path.unlink])
async def test_b46_a_damaged_store_composes_nothing_and_is_never_made_anew(unprepared: "Desk", damage: Any) -> None:
    """Held by: the marker and ``_check_size``, ``quick_check`` and the missing version in ``store.py``."""
    await unprepared.controller.prepare()
    await unprepared.close()
    unprepared.controller._store = None
    damage(unprepared.file)
    before = unprepared.file.read_bytes() if unprepared.file.exists() else None
    for _ in range(2):
        fault = await fault_of(unprepared)
        assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "damaged-store")
        assert str(unprepared.file) in fault.cause.text
        assert ("cut to 0 bytes" in fault.cause.text) == (damage is cut_to_nothing)
    assert (unprepared.file.read_bytes() if unprepared.file.exists() else None) == before
    with pytest.raises(StageFault):
        await unprepared.controller.overlay_peers(OverlayPeers(of="alpha"))


async def test_b46_a_store_cut_while_it_is_open_answers_nothing(desk: "Desk") -> None:
    await desk.close()  # its connections are opened anew: nothing of it is left in memory
    cut_in_half(desk.file)
    for name in ("-wal", "-shm"):
        desk.file.with_name(desk.file.name + name).unlink(missing_ok=True)
    fault = await fault_of(desk)
    assert fault.cause.code == "damaged-store"


async def test_a_store_of_a_newer_controller_is_blocked(unprepared: "Desk") -> None:
    await unprepared.controller.prepare()
    other = sqlite3.connect(unprepared.file)
    other.execute("UPDATE alembic_version SET version_num = '9999'")
    other.commit()
    other.close()
    fault = await fault_of(unprepared)
    assert (fault.cause.kind, fault.cause.code) == (Kind.BLOCKED, "newer-store")


@pytest.mark.parametrize("version", ["0001", "0002"])
async def test_an_inventory_of_an_older_form_is_migrated_with_what_it_holds(placed: "Desk", version: str) -> None:
    await placed.push()
    await placed.close()
    other = sqlite3.connect(placed.file)
    other.execute("DROP TABLE keys")
    other.execute("ALTER TABLE machines DROP COLUMN pushed_revision")
    if version == "0001":
        other.execute("ALTER TABLE reports DROP COLUMN number")
    other.execute("UPDATE alembic_version SET version_num = ?", (version,))
    other.commit()
    other.close()
    await placed.controller.prepare()
    assert (await placed.push())["alpha"].verdict == "unchanged"
    await placed.hosts["alpha"].say("standing", number=1)


async def test_migrations_make_just_the_tables_that_the_code_uses(desk: "Desk") -> None:
    def differences(connection: Any) -> Any:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    async with desk.controller.store.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_every_connection_is_safe_against_loss_of_power(desk: "Desk") -> None:
    async with desk.controller.store.write() as connection:
        said = [(await connection.exec_driver_sql(f"PRAGMA {one}")).scalar() for one in ("journal_mode", "synchronous", "foreign_keys")]
    assert said == ["wal", 2, 1]
