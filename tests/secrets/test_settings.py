"""Secrets among a module's settings, wherever its author put them: malformed or sound, in errors, reprs and logs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr, field_validator

from mesh_runtime.logging import mask_text
from mesh_runtime.settings import MalformedSetting, ModuleSettings, load_settings
from mesh_runtime.testing.processes import program_of
from tests.parts import Sage
from tests.secrets.planting import Planted
from tests.startup.launching import environment


def planted(name: str) -> Planted:
    """One that no other test registers: a value once registered stays so for the life of a process."""
    return Planted(f"S3tting-{name}", "\"'\\\\ %41@ü/+", f"{name}-t41l-0f-it")


class Login(BaseModel):
    user: str
    password: SecretStr

    @field_validator("password")
    @classmethod
    def _quotes(cls, password: SecretStr) -> SecretStr:
        text = password.get_secret_value()
        if "never" in text:
            raise ValueError(f"it must not be {text}")
        if "bug" in text:
            raise LookupError(f"no rule for {text}")
        return password


class Numbered(BaseModel):
    logins: dict[str, Login] = {}


class WaterSettings(ModuleSettings):
    key: SecretStr = SecretStr(planted("default").text)
    raw: SecretBytes = SecretBytes(b"")
    short: Annotated[SecretStr, Field(max_length=5)] | None = None
    several: tuple[SecretStr, ...] = ()
    pin: Secret[int] | None = None
    login: Login | None = None
    deep: tuple[Numbered, ...] = ()


def environ(**own: str) -> dict[str, str]:
    return {
        "MESH_BROKER": "broker.mesh:5671",
        "MESH_CA_FILE": "/etc/mesh/ca.pem",
        "MESH_CREDENTIALS": "/run/mesh",
        "MESH_MACHINE": "node-1",
        "MESH_STATE_DIR": "/var/lib/mesh/water@node-1",
        **{f"MESH_WATER_{name}": value for name, value in own.items()},
    }


def in_json(secret: Planted) -> str:
    """The secret inside a string of JSON."""
    return json.dumps(secret.text)[1:-1]


PLACES = {
    "KEY": "%s",
    "RAW": "%s",
    "SEVERAL": '["%s", "other-of-several"]',
    "LOGIN": '{"user": "me", "password": "%s"}',
    "DEEP": '[{"logins": {"a": {"user": "me", "password": "%s"}}}]',
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_masked_wherever_a_setting_holds_it(place: str) -> None:
    secret = planted(f"sound-{place.lower()}")
    text = in_json(secret) if place not in ("KEY", "RAW") else secret.text
    assert secret.found_in(mask_text(f"it is {secret.text}")), "no other test may have registered it"
    loaded = load_settings("water", WaterSettings, environ(**{place: PLACES[place] % text}))
    assert mask_text(f"it is {secret.text}, for me on node-1") == "it is ***, for me on node-1"
    assert secret.found_in(repr(loaded) + str(loaded.own)) == []


def test_a_default_and_a_number_are_masked_too() -> None:
    load_settings("water", WaterSettings, environ(PIN="48151623"))
    assert mask_text(f"{planted('default').text} and 48151623") == "*** and ***"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("SHORT", "%s"),
        ("PIN", "%s"),
        ("SEVERAL", '[["%s"]]'),
        ("SEVERAL", '["%s"'),
        ("LOGIN", '{"user": {"%s": 1}, "password": "%s"}'),
        ("LOGIN", '{"user": "me", "password": "never %s"}'),
        ("DEEP", '[{"logins": {"%s": {"user": "me", "password": ["%s"]}}}]'),
        ("DEEP", '[{"logins": {"a": {"user": "me", "password": "never %s"}}}]'),
    ],
)
def test_a_malformed_secret_is_never_shown(place: str, value: str) -> None:
    """Not even masked: it is not quoted at all."""
    secret = planted("malformed")
    with pytest.raises(MalformedSetting) as caught:
        load_settings(
            "water",
            WaterSettings,
            environ(**{place: value.replace("%s", in_json(secret) if "[" in value or "{" in value else secret.text)}),
        )
    assert caught.value.variables == (f"MESH_WATER_{place}",)
    assert secret.found_in(f"{caught.value!r} {caught.value}") == []


class Watered(Sage):
    """Run as a process below."""

    module = "sage"
    settings: WaterSettings


@pytest.mark.parametrize("masking", [True, False], ids=["masked", "unmasked"])
def test_what_an_authors_validator_raises_besides_is_logged_masked_and_exits_70(tmp_path: Path, masking: bool) -> None:
    secret = planted("raised")
    interpreter, flag, code = program_of(Watered)
    done = subprocess.run(
        [interpreter, flag, code if masking else f"import tests.secrets.unmasked; {code}"],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            **environment(tmp_path, "127.0.0.1:9", module="sage"),
            "MESH_SAGE_LOGIN": json.dumps({"user": "me", "password": "bug " + secret.text}),
        },
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 70
    assert done.stderr == ""
    assert "LookupError: " in done.stdout
    assert bool(secret.found_in(done.stdout)) is not masking
