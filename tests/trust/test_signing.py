"""A declaration is taken only if exactly its bytes are signed by the controller's key."""

import base64
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh_runtime.logging import mask_text
from mesh_runtime.trust import BadKey, BadSignature, SigningKey, VerifyKey
from tests.trust.minting import careless_ca

KEY = SigningKey.generate()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_what_was_signed_verifies_by_the_key_as_it_is_written(data: bytes) -> None:
    VerifyKey.parse(str(KEY.verify_key)).verify(data, KEY.sign(data))


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=50), st.data())
def test_one_changed_bit_in_bytes_or_signature_is_refused(data: bytes, draw: st.DataObject) -> None:
    signature = base64.b64decode(KEY.sign(data))
    whole = bytearray(data + signature)
    whole[draw.draw(st.integers(0, len(whole) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    changed, forged = bytes(whole[: len(data)]), base64.b64encode(whole[len(data) :]).decode()
    with pytest.raises(BadSignature):
        KEY.verify_key.verify(changed, forged)


@pytest.mark.parametrize("signature", ["", "no base64!", "AAAA", "ü", KEY.sign(b"other")])
def test_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(BadSignature):
        KEY.verify_key.verify(b"data", signature)


def test_another_key_is_refused_and_the_expected_one_named() -> None:
    with pytest.raises(BadSignature, match=str(KEY.verify_key)):
        KEY.verify_key.verify(b"data", SigningKey.generate().sign(b"data"))


def test_a_key_is_loaded_as_it_was_saved_for_its_owner_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "controller.key"
    KEY.save(path)
    assert SigningKey.load(path).verify_key == KEY.verify_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        SigningKey.generate().save(path)
    assert SigningKey.load(path).verify_key == KEY.verify_key


def test_the_private_key_shows_in_no_repr_and_no_log(tmp_path: Path) -> None:
    KEY.save(tmp_path / "key")
    line = (tmp_path / "key").read_text().splitlines()[1]
    assert line not in repr(KEY)
    assert mask_text(f"the key is {line}") == "the key is ***"


@pytest.mark.parametrize("text", ["", "zz", "ab" * 31, "ab" * 33])
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadKey, match="64 hex digits"):
        VerifyKey.parse(text)


def test_a_file_that_holds_no_such_key_is_refused_without_showing_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(FileNotFoundError):
        SigningKey.load(path)
    path.write_text("S3cr3t rubbish")
    with pytest.raises(BadKey) as caught:
        SigningKey.load(path)
    assert "S3cr3t" not in str(caught.value)
    path.write_bytes(careless_ca().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(BadKey, match="another kind"):
        SigningKey.load(path)
