"""More elements than a report can name: that is said, and stands in nobody's way."""

from typing import TYPE_CHECKING

from mesh_runtime.contracts import Report
from mesh_runtime.testing.waiting import until

if TYPE_CHECKING:
    from conftest import HostRoot


async def test_a_report_that_no_message_can_hold_is_a_failure_without_elements_and_blocks_no_other(hostroot: "HostRoot") -> None:
    """Held by: ``_shortened``."""
    hostroot.ears.limit = 5000
    many = {f"/etc/{number}": "" for number in range(100)}
    async with hostroot.running() as host:
        await host.declared(hostroot.files(1, many))
        await until(lambda: host.store.floor().told and host.store.floor().generation == 1, "the verdict on 1 told", within=20)
        (first,) = [one for one in hostroot.ears.heard if one.generation == 1]
        await host.declared(hostroot.files(2, {"/etc/1": ""}, removes=[f"files/motd{path}" for path in many if path != "/etc/1"]))
        await until(lambda: host.store.floor().told and host.store.floor().generation == 2, "the verdict on 2 told", within=20)
    assert (first.verdict, first.elements) == ("failed", ())
    assert "100 elements are too many for one message" in first.why
    assert hostroot.ears.heard[-1].generation == 2


def refusals(hostroot: "HostRoot") -> list[Report]:
    return [one for one in hostroot.ears.heard if one.verdict == "refused"]


async def test_a_refusal_whose_reason_alone_is_too_long_is_told_shortened_and_blocks_no_other(hostroot: "HostRoot") -> None:
    """It names every element that would have gone, and there may be nothing else to leave out."""
    hostroot.ears.limit = 5000
    async with hostroot.running() as host:
        why = "unnamed-removal: " + "x" * 9000
        refused = Report(machine="node-1", mesh="", epoch=1, generation=1, verdict="refused", why=why, elements=(), knows=())
        host.reporter.put(refused)
        host.reporter.put(refused.model_copy(update={"generation": 2, "why": "short"}))
        await until(lambda: len(refusals(hostroot)) == 2, "both told")
        first, second = refusals(hostroot)
    assert (first.verdict, first.why[:17], second.why) == ("refused", "unnamed-removal: ", "short")
