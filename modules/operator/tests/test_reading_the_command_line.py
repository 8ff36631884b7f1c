"""Parameters and the context: what is right is read, what is wrong is told with its name and what would be right."""

from pathlib import Path

import pytest

from mesh_runtime_operator.context import read_context
from mesh_runtime_operator.exits import Ended, Exit
from mesh_runtime_operator.parameters import LIMIT, BadParameter, read_parameters


def test_parameters_are_values_or_the_content_of_files(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("PEM\n")
    assert read_parameters("store", ["address=store.mesh:5000", f"ca={file}"]) == {"address": "store.mesh:5000", "ca": "PEM\n"}
    assert read_parameters("web", [f"ca={file}"]) == {"ca": str(file)}
    assert read_parameters("web", [f"page=@{file}", "who=@@home", "sum=a=b"]) == {"page": "PEM\n", "who": "@home", "sum": "a=b"}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (["address"], "'address' is no parameter: it must read key=value"),
        (["Address=x"], "the key in lower case"),
        (["a=1", "a=2"], "a is given twice"),
        (["ca=@/nowhere/ca.pem"], "ca: /nowhere/ca.pem cannot be read: No such file"),
    ],
)
def test_a_wrong_parameter_is_named(written: list[str], words: str) -> None:
    with pytest.raises(BadParameter, match=words):
        read_parameters("store", written)


@pytest.mark.parametrize("at", ["", "@"])
def test_a_stores_private_key_does_not_leave_the_machine(tmp_path: Path, at: str) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nAAAA\n")
    with pytest.raises(BadParameter, match="holds a private key") as bad:
        read_parameters("store", [f"ca={at}{tmp_path / 'ca.pem'}"])
    assert "AAAA" not in str(bad.value)


def test_a_file_too_large_for_a_message_is_refused_here(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(BadParameter, match=f"{LIMIT + 1} bytes, {LIMIT} are allowed"):
        read_parameters("web", [f"page=@{tmp_path / 'big'}"])


@pytest.fixture
def context(tmp_path: Path) -> Path:
    values = {
        "broker": "10.0.0.1:5671",
        "name": "broker.mesh",
        "pin": "0" * 64,
        "vhost": "mesh",
        "machine": "alpha",
        "state-root": "/var/x",
    }
    for name, value in values.items():
        (tmp_path / name).write_text(f"{value}\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "username").write_text("operator@alpha\n")
    (tmp_path / "credentials" / "password").write_text("word\n")
    return tmp_path


def test_a_context_is_read_from_its_files(context: Path) -> None:
    read = read_context({"MESH_CONTEXT": str(context)})
    assert str(read.identity) == "operator@alpha"
    assert (read.broker.addresses, read.broker.name, read.broker.ca_pin) == ((("10.0.0.1", 5671),), "broker.mesh", "0" * 64)
    assert read.state_root == Path("/var/x")


def test_no_context_is_told(context: Path) -> None:
    with pytest.raises(Ended, match="MESH_CONTEXT is not set") as ended:
        read_context({})
    assert ended.value.code is Exit.NO_CONTEXT


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("broker", None, "broker is not there yet"),
        ("pin", "12", "pin: .*64 hex digits"),
        ("broker", "amqps://x:1", "broker: it is a URL"),
        ("credentials/username", "operator", "must read module@machine"),
        ("vhost", " ", "vhost is empty"),
    ],
)
def test_a_wrong_context_is_told_by_its_file(context: Path, file: str, content: str | None, words: str) -> None:
    if content is None:
        (context / file).unlink()
    else:
        (context / file).write_text(content)
    with pytest.raises(Ended, match=words) as ended:
        read_context({"MESH_CONTEXT": str(context)})
    assert ended.value.code is Exit.NO_CONTEXT
    assert str(context) in str(ended.value)
