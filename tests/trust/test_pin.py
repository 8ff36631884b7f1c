"""The pin finds the mesh's CA in what a server sends, and nothing else passes for it."""

import asyncio
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mesh_runtime.trust import Authority, PinMismatch, ca_for_pin, chain_of, client_context, pin_of
from tests.trust.conftest import NAME, listener, presented_to_anybody, server_context
from tests.trust.minting import careless_ca, wrapped


def der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


async def test_the_chain_is_fetched_without_trust_and_without_a_byte_sent_and_then_verified_in_full(
    tmp_path: Path, authority: Authority
) -> None:
    issued = authority.issue_server([NAME])
    async with listener(server_context(tmp_path, issued, authority.pem)) as server:
        chain = await presented_to_anybody(server.port, NAME)
        assert chain == [der(issued.certificate), authority.der]
        ca = ca_for_pin(chain, authority.pin.upper())
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context(ca), server_hostname=NAME)
        assert chain_of(writer.get_extra_info("ssl_object")) == chain
        writer.transport.abort()
    assert server.heard == b""


def test_another_ca_is_a_mismatch_that_says_what_was_sent(authority: Authority) -> None:
    other = Authority.create("other mesh")
    with pytest.raises(PinMismatch) as caught:
        ca_for_pin([der(other.issue_server([NAME]).certificate), other.der], authority.pin)
    for word in (authority.pin, other.pin, "CN=other mesh", f"CN={NAME}"):
        assert word in str(caught.value)


def test_a_leaf_alone_is_a_mismatch_that_says_that_the_ca_is_not_sent(authority: Authority) -> None:
    with pytest.raises(PinMismatch, match="sent its own certificate alone"):
        ca_for_pin([der(authority.issue_server([NAME]).certificate)], authority.pin)


def test_nothing_sent_is_a_mismatch(authority: Authority) -> None:
    with pytest.raises(PinMismatch, match="sent nothing"):
        ca_for_pin([], authority.pin)


def test_the_pinned_key_in_a_certificate_that_it_did_not_sign_is_refused() -> None:
    """The line whose removal makes this fail: `certificate.verify_directly_issued_by(certificate)`."""
    ca = careless_ca()
    forged = wrapped(ca.key.public_key())
    assert pin_of(forged) == pin_of(ca.der)
    with pytest.raises(PinMismatch, match="is not signed by that key"):
        ca_for_pin([forged], pin_of(ca.der))
    assert ca_for_pin([forged, ca.der], pin_of(ca.der)) == ca.der


def test_the_pinned_key_in_a_certificate_that_is_no_ca_is_refused() -> None:
    leaf = careless_ca(ca=False)
    with pytest.raises(PinMismatch, match="is no CA"):
        ca_for_pin([leaf.der], pin_of(leaf.der))


def test_rubbish_in_the_chain_is_a_mismatch_in_words(authority: Authority) -> None:
    with pytest.raises(PinMismatch, match="cannot be used"):
        ca_for_pin([b"rubbish"], authority.pin)
    assert ca_for_pin([b"rubbish", authority.der], authority.pin) == authority.der
