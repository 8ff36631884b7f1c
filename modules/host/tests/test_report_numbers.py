"""Reports carry a number that only grows: of two reports of one generation, the controller takes the one that was seen later."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.testing.waiting import until
from mesh_runtime_host.store import Store

if TYPE_CHECKING:
    from conftest import HostRoot

FILES = {"/etc/motd": "hello"}
PAST = datetime(2001, 1, 1, tzinfo=UTC)


def drawn(store: Store, count: int = 1) -> list[int]:
    with store.locked():
        return [store.next_number() for _ in range(count)]


async def test_each_report_has_a_greater_number_than_those_before_also_after_a_restart(hostroot: "HostRoot") -> None:
    for generation in (1, 2):
        async with hostroot.running() as host:
            await host.declared(hostroot.files(generation, {"/etc/motd": str(generation)}))
            await until(lambda: host.store.floor().told and (hostroot.root / "etc/motd").exists(), "the verdict told")
            (hostroot.root / "etc/motd").write_text("somebody's")
            await until(lambda: "mended" in hostroot.ears.heard[-1].why, "the drift told")
    numbers = [one.number for one in hostroot.ears.heard]
    assert len(numbers) >= 4
    assert numbers == sorted(set(numbers))


def test_numbers_grow_over_a_clock_that_is_set_back(hostroot: "HostRoot") -> None:
    before = drawn(Store(hostroot.state_dir), 3)
    after = drawn(Store(hostroot.state_dir, now=lambda: PAST), 3)
    assert [*before, *after] == sorted({*before, *after})


def test_numbers_grow_over_many_more_than_are_reserved_at_once(hostroot: "HostRoot") -> None:
    many = drawn(Store(hostroot.state_dir, now=lambda: PAST), 2500)
    assert many == sorted(set(many))
    assert drawn(Store(hostroot.state_dir, now=lambda: PAST))[0] > many[-1]


@pytest.mark.parametrize("damage", [None, b"", b"{"])
def test_with_their_file_lost_the_clock_stands_in(hostroot: "HostRoot", damage: bytes | None) -> None:
    (before,) = drawn(Store(hostroot.state_dir))
    file = hostroot.state_dir / "reports.json"
    file.unlink() if damage is None else file.write_bytes(damage)
    later = datetime.fromtimestamp(before / 1000 + 5, UTC)
    assert drawn(Store(hostroot.state_dir, now=lambda: later))[0] > before


def test_a_disk_that_takes_no_number_keeps_no_report_back(hostroot: "HostRoot", monkeypatch: pytest.MonkeyPatch) -> None:
    host = hostroot.host()
    host.take(hostroot.files(1, FILES))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.store, "_write", full)
    first, second = host.applier.look().number, host.applier.look().number
    assert 0 < first < second
