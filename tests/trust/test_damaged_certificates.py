"""Whatever a server sends for a certificate, a fault is told in words: nothing that cryptography raises goes past them."""

import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mesh_runtime.trust import Authority, PinMismatch, ca_for_pin, fault_of
from tests.trust.conftest import NAME

# Some damage makes cryptography warn beside what it raises; a runtime logs that.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EC_KEY = bytes.fromhex("06072a8648ce3d0201")
CURVE = bytes.fromhex("06082a8648ce3d030107")


def damaged(der: bytes, at: int, byte: int) -> bytes:
    return der[:at] + bytes((byte,)) + der[at + 1 :]


def chain_of(authority: Authority) -> list[bytes]:
    leaf = authority.issue_server([NAME, "10.0.0.1"]).certificate
    return [x509.load_pem_x509_certificate(leaf).public_bytes(Encoding.DER), authority.der]


@pytest.mark.parametrize("known", [EC_KEY, CURVE])
def test_a_key_of_a_kind_that_is_not_known_is_a_mismatch_in_words(authority: Authority, known: bytes) -> None:
    leaf, ca = chain_of(authority)
    strange = leaf.replace(known, known[:-1] + b"\x7f")
    assert strange != leaf
    assert ca_for_pin([strange, ca], authority.pin) == ca
    with pytest.raises(PinMismatch, match="cannot be used"):
        ca_for_pin([strange, ca.replace(known, known[:-1] + b"\x7f")], authority.pin)


@pytest.mark.parametrize("byte", [0x05, 0x7F])
@pytest.mark.parametrize("code", [10, 20, 62])  # expired, wrong CA, wrong name: each speaks of another part of the certificate
def test_a_leaf_damaged_at_any_place_is_spoken_of(authority: Authority, byte: int, code: int) -> None:
    leaf, ca = chain_of(authority)
    refused = ssl.SSLCertVerificationError()
    refused.verify_code = code
    refused.verify_message = "refused"
    for at in range(len(leaf)):
        chain = [damaged(leaf, at, byte), ca]
        assert fault_of(refused, name=NAME, address="127.0.0.1:5671", chain=chain).text
        assert ca_for_pin(chain, authority.pin) == ca


@pytest.mark.parametrize("byte", [0x05, 0x7F])
def test_a_ca_damaged_at_any_place_is_found_or_is_a_mismatch(authority: Authority, byte: int) -> None:
    leaf, ca = chain_of(authority)
    found = 0
    for at in range(len(ca)):
        try:
            found += ca_for_pin([leaf, damaged(ca, at, byte)], authority.pin) == ca
        except PinMismatch as mismatch:
            assert authority.pin in str(mismatch)  # noqa: PT017 - both ends are right, and another one is not
    assert found < len(ca) / 2
