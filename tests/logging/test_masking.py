"""What the masker recognises, and what it leaves alone."""

import base64
import json
import reprlib
import time
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh_runtime.logging import masking
from mesh_runtime.logging.masking import MASK, SHORT, Masker


def masker(*secrets: str) -> Masker:
    made = Masker()
    for each in secrets:
        made.register(each)
    return made


_long_enough = st.text(st.characters(exclude_categories=["Cs"]), min_size=SHORT, max_size=40).filter(
    lambda text: len(text.strip()) >= SHORT
)


@settings(deadline=None)
@given(_long_enough, st.text(alphabet="abc :;", max_size=8))
def test_any_secret_is_masked_in_every_escape_of_it(secret: str, before: str) -> None:
    mask = masker(secret)
    for escaped in (
        secret,
        json.dumps(secret),
        json.dumps(json.dumps(secret)),
        repr(secret),
        repr(secret.encode()),
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""),
        secret.encode().hex(),
    ):
        assert MASK in mask.text(f"[{before}|{escaped}|]")
        assert escaped not in mask.text(f"[{before}|{escaped}|]")


@settings(deadline=None)
@given(_long_enough, st.binary(max_size=5), st.binary(max_size=5))
def test_any_secret_is_masked_in_base64_whatever_stands_around_it(secret: str, before: bytes, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(before + secret.encode() + after).decode()
        assert masker(secret).text(f"PLAIN {text} end") == f"PLAIN {MASK} end"


def test_the_longer_of_two_secrets_goes_first_so_that_no_tail_of_it_stays() -> None:
    assert masker("hunter2", "hunter2-and-more").text("x hunter2-and-more y hunter2") == f"x {MASK} y {MASK}"


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs", "Z"]), min_size=32, max_size=60), st.text(alphabet="ab (", max_size=6))
def test_what_reprlib_leaves_of_a_secret_is_masked_at_both_ends(secret: str, before: str) -> None:
    cut = reprlib.repr(before + secret)
    shown = masker(secret).text(f"<Handle {cut}>")
    head, tail = cut[1 + len(before) : 1 + 12], cut[-1 - 10 : -1]
    assert head not in shown.replace(before, "", 1) or len(head) < SHORT
    assert tail not in shown
    assert shown.startswith("<Handle ")
    assert shown.endswith(">")


def test_what_is_left_of_a_cut_secret_is_masked_and_nothing_else() -> None:
    mask = masker("S3cr3t-xyz-of-the-end", "aaaaaaaa")
    assert mask.text("a S3cr3t-xyz...he-end b") == f"a {MASK}...{MASK} b"
    assert mask.text("wait... S3cr and e-end… so…") == "wait... S3cr and e-end… so…"
    assert mask.text("aaaaa...aaaa.") == f"{MASK}...{MASK}."


@pytest.mark.parametrize("secret", ["a", "ab", "x-1"])
def test_a_short_secret_is_masked_only_where_it_stands_alone(secret: str) -> None:
    assert masker(secret).text(f"a{secret}a and {secret}!") == f"a{secret}a and {MASK}!"
    assert len(secret) < SHORT


def test_each_line_of_a_key_in_pem_is_masked_but_not_its_frame() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1h\nsecondLineOfTheKey\n-----END PRIVATE KEY-----\n"
    shown = masker(pem).text("  MC4CAQAwBQYDK2VwBCIEIJ1h and -----BEGIN PRIVATE KEY-----")
    assert shown == f"  {MASK} and -----BEGIN PRIVATE KEY-----"


def test_an_empty_value_is_not_registered() -> None:
    assert masker("", "  ").text("nothing  changes") == "nothing  changes"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqps://user:pa55@broker:5671/mesh", "amqps://user:***@broker:5671/mesh"),
        ("amqps://user:p@55@broker", "amqps://user:***@broker"),
        ("https://broker:5671/a@b", "https://broker:5671/a@b"),
        ("oci://store:5000/app@sha256:ab", "oci://store:5000/app@sha256:ab"),
        ("password=pa55, host=x", "password=***, host=x"),
        ("password='pa 55' host=x", "password='***' host=x"),
        ('{\'token\': \'abc\', "Secret": "d\\"e"}', "{'token': '***', \"Secret\": \"***\"}"),
        ("Authorization: Basic dXNlcg==", "Authorization: Basic ***"),
        ("the password: wrong", "the password: wrong"),
        ("api_key=1&b=2", "api_key=***&b=2"),
    ],
)
def test_passwords_in_urls_and_after_telling_keys_are_masked_without_registration(text: str, shown: str) -> None:
    assert Masker().text(text) == shown


@pytest.mark.parametrize("key", ["password", "DB_PASSWORD", "authToken", "Authorization", "api-key", "private_key", "secret"])
def test_a_telling_key_is_known_in_any_spelling(key: str) -> None:
    assert Masker().is_telling(key)


@pytest.mark.parametrize("key", ["username", "machine", "credentials", "key", "correlation_id"])
def test_an_ordinary_key_tells_nothing(key: str) -> None:
    assert not Masker().is_telling(key)


@pytest.mark.parametrize(
    "text",
    [
        "\\" * 100_000,
        "%25" * 30_000,
        "input_value=..." * 5_000,
        "password=" * 10_000,
        "://a:b" * 20_000,
        "A" * 100_000,
        "aaaa..." * 15_000,
        "S3cr..." * 15_000,
    ],
)
def test_no_text_that_somebody_may_send_makes_masking_slow(text: str) -> None:
    """Patterns that repeat without a bound would take minutes here, and stop the event loop for as long."""
    mask = masker("S3cr3t-xyz", 'pa55/word+"x y', '\\\\\\\\a\\"b', "a" * 40)
    began = time.process_time()
    mask.text(text)
    assert time.process_time() - began < 5


def test_the_forms_of_a_secret_are_worked_out_once_however_many_come_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime reads its credentials afresh for each attempt, and a test run knows thousands."""
    masker = Masker()
    made: list[str] = []
    form = masking._Secret.__init__

    def noted(self: masking._Secret, value: str) -> None:
        made.append(value)
        form(self, value)

    monkeypatch.setattr(masking._Secret, "__init__", noted)
    for number in range(20):
        masker.register(f"secret-number-{number}")
    assert sorted(made) == sorted({f"secret-number-{number}" for number in range(20)})
    masker.forget_all_but(frozenset({"secret-number-3"}))
    assert masker.text("secret-number-3 secret-number-4") == f"{MASK} secret-number-4"
