"""Where a container engine looks for a registry's CA (field case B57)."""

import stat
from typing import TYPE_CHECKING

import pytest

from mesh_runtime.contracts import TrustStore
from mesh_runtime_host.registries import certs_directory

if TYPE_CHECKING:
    from conftest import HostRoot

CERTS = "/etc/docker/certs.d"


@pytest.mark.parametrize(
    ("address", "directory"),
    [
        ("reg.mesh:5000", f"{CERTS}/reg.mesh:5000"),
        ("reg.mesh", f"{CERTS}/reg.mesh"),
        ("reg.mesh:443", f"{CERTS}/reg.mesh"),
        ("10.9.0.1:5000", f"{CERTS}/10.9.0.1:5000"),
        ("[fd00::1]:5000", f"{CERTS}/[fd00::1]:5000"),
        ("[fd00::1]:443", f"{CERTS}/[fd00::1]"),
    ],
)
def test_a_registry_has_exactly_one_directory(address: str, directory: str) -> None:
    """B57: port kept, default port left out, IPv6 in brackets.

    Removal: modules/host/mesh_runtime_host/registries.py: name = name.removesuffix(f":{DEFAULT_PORT}")
    Assertion: certs_directory(address) == directory
    """
    assert certs_directory(address) == directory


@pytest.mark.parametrize(
    "address",
    [
        "https://reg.mesh:5000/v2/",
        "REG.mesh:5000",
        "../../etc",
        "reg.mesh:5000/team",
        "",
        "reg.mesh:05000",
        "reg.mesh:0",
        "reg.mesh:65536",
        "reg.mesh:",
        "[::::]:5000",
        "fd00::1:5000",
        "..",
        "reg.mesh\n",
        "réseau.mesh",
    ],
)
def test_what_is_no_plain_address_is_refused(address: str) -> None:
    """B57: an engine would silently ignore the directory, so nothing is guessed."""
    with pytest.raises(ValueError, match=r"must|IPv6"):
        certs_directory(address)


def test_the_ca_is_readable_by_the_engine_and_two_registries_of_one_host_share_nothing(hostroot: "HostRoot") -> None:
    """B57: file `ca.crt` 0644 in a directory 0755; to remove one registry leaves the other."""
    host = hostroot.host()
    one, two = (TrustStore(address=f"reg.mesh:{port}", ca=f"CA of {port}") for port in (5000, 5001))
    host.take(hostroot.declaration(1, ("a", one), ("b", two)))
    assert {report.state for report in host.applier.bring().elements} == {"in-force"}
    for port in (5000, 5001):
        ca = hostroot.root / f"etc/docker/certs.d/reg.mesh:{port}/ca.crt"
        assert ca.read_text() == f"CA of {port}"
        assert stat.S_IMODE(ca.stat().st_mode) == 0o644
        assert stat.S_IMODE(ca.parent.stat().st_mode) == 0o755
    host.take(hostroot.declaration(2, ("b", two), removes=["registry-trust/a/reg.mesh:5000"]))
    host.applier.bring()
    assert [path.name for path in (hostroot.root / "etc/docker/certs.d").iterdir()] == ["reg.mesh:5001"]
