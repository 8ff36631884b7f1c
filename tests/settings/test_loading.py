"""Settings are parsed whole, or refused in one line that an operator can act on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, SecretStr, field_validator

from mesh_runtime.logging import mask_text
from mesh_runtime.settings import Address, MalformedSetting, ModuleSettings, RuntimeSettings, describe_settings, load_settings

GOOD = {
    "MESH_BROKER": "broker.mesh:5671",
    "MESH_CA_FILE": "/etc/mesh/ca.pem",
    "MESH_CREDENTIALS": "/run/mesh",
    "MESH_MACHINE": "node-1",
    "MESH_STATE_DIR": "/var/lib/mesh/web@node-1",
}
PIN = "0123456789ABCDEF" * 4
SECRET = "S3cr3t-of-settings"


class WebSettings(ModuleSettings):
    port: int = Field(default=80, description="Where it listens.", examples=["8080"])
    key: SecretStr = SecretStr("")
    hosts: tuple[str, ...] = ()


def runtime(**changed: str | None) -> RuntimeSettings:
    environ = {**GOOD, **{f"MESH_{name}": value for name, value in changed.items()}}
    return load_settings("web", None, {name: value for name, value in environ.items() if value is not None}).runtime


def complaint(settings_class: type[ModuleSettings] | None = None, **changed: str | None) -> str:
    environ: dict[str, str] = {**GOOD}
    for name, value in changed.items():
        if value is None:
            environ.pop(f"MESH_{name}")
        else:
            environ[f"MESH_{name}"] = value
    with pytest.raises(MalformedSetting) as caught:
        load_settings("web", settings_class, environ)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__cause__ is None
    return text


@pytest.mark.parametrize("text", ["[", "{", "[" * 100_000, "1" * 5000 + "e"], ids=len)
def test_what_is_no_json_is_malformed_whatever_it_is(text: str) -> None:
    assert "MESH_WEB_HOSTS: it is not the JSON that it must be" in complaint(WebSettings, WEB_HOSTS=text)


def test_all_that_is_not_set_has_its_default() -> None:
    found = runtime()
    assert found.broker == (Address("broker.mesh", 5671),)
    assert found.name_to_verify == "broker.mesh"
    assert (found.vhost, found.heartbeat, found.startup_deadline, found.log_level) == ("mesh", 15, None, "info")
    assert (found.ca_file, found.ca_pin, found.log) == (Path("/etc/mesh/ca.pem"), None, "json")


def test_all_that_is_set_is_taken() -> None:
    found = runtime(
        BROKER="10.0.0.1:5671, [fd00::1]:5672,b-2.mesh.:1",
        BROKER_NAME="broker.mesh",
        VHOST="a/b ü",
        CA_FILE=None,
        CA_PIN=PIN,
        STARTUP_DEADLINE="1.5",
        HEARTBEAT="5",
        LOG="Console",
        LOG_LEVEL="DEBUG",
    )
    assert found.broker == (Address("10.0.0.1", 5671), Address("fd00::1", 5672), Address("b-2.mesh.", 1))
    assert [str(each) for each in found.broker] == ["10.0.0.1:5671", "[fd00::1]:5672", "b-2.mesh.:1"]
    assert found.name_to_verify == "broker.mesh"
    assert (found.vhost, found.ca_file, found.ca_pin) == ("a/b ü", None, PIN.lower())
    assert (found.startup_deadline, found.heartbeat, found.log, found.log_level) == (1.5, 5, "console", "debug")


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    assert runtime(CA_PIN="", VHOST="", STARTUP_DEADLINE="").vhost == "mesh"


def test_only_the_given_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESH_VHOST", "other")
    assert runtime().vhost == "mesh"
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
    assert load_settings("web").runtime.vhost == "other"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BROKER", None, "it is not set"),
        ("BROKER", "broker", "must read host:port"),
        ("BROKER", "broker:", "is no port"),
        ("BROKER", "broker:0", "from 1 to 65535"),
        ("BROKER", "broker:65536", "from 1 to 65535"),
        ("BROKER", "broker:5671,", "must read host:port"),
        ("BROKER", "fd00::1:5671", "in brackets"),
        ("BROKER", "[broker]:5671", "is no IPv6 address"),
        ("BROKER", "10.0.0.300:5671", "neither a DNS name nor an IP address"),
        ("BROKER", "bro ker:5671", "neither a DNS name nor an IP address"),
        ("BROKER", "amqps://broker:5671", "without scheme"),
        ("BROKER_NAME", "broker:5671", "neither a DNS name nor an IP address"),
        ("VHOST", "a%2fb", "holds '%'"),
        ("CA_PIN", "abc", "it has 3 characters; a pin is"),
        ("CA_PIN", "g" * 64, "64 hex digits"),
        ("CA_PIN", PIN, "both are set"),
        ("CA_FILE", None, "neither is set"),
        ("CREDENTIALS", None, "it is not set"),
        ("MACHINE", "Node_1", "is no machine's name"),
        ("MACHINE", "-a", "is no machine's name"),
        ("STATE_DIR", None, "it is not set"),
        ("STARTUP_DEADLINE", "0", "greater than 0"),
        ("STARTUP_DEADLINE", "soon", "number"),
        ("STARTUP_DEADLINE", "inf", "finite"),
        ("HEARTBEAT", "0", "greater than or equal to 1"),
        ("HEARTBEAT", "1.5", "integer"),
        ("LOG", "yaml", "'json' or 'console'"),
        ("LOG_LEVEL", "trace", "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_malformed_setting_is_named_with_what_is_wrong_and_what_is_right(variable: str, value: str | None, said: str) -> None:
    text = complaint(None, **{variable: value})
    assert f"MESH_{variable}" in text
    assert said in text
    assert "right would be" in text or "set one" in text or "set only one" in text


def test_everything_that_is_malformed_is_said_at_once() -> None:
    with pytest.raises(MalformedSetting) as caught:
        load_settings("web", WebSettings, {**GOOD, "MESH_LOG": "x", "MESH_MACHINE": "", "MESH_WEB_PORT": "y"})
    assert set(caught.value.variables) == {"MESH_LOG", "MESH_MACHINE", "MESH_WEB_PORT"}


@pytest.mark.parametrize("broker", [f"amqps://user:{SECRET}@broker:5671/mesh", f"user:{SECRET}@broker:5671"])
def test_a_login_in_the_brokers_address_is_refused_and_not_shown(broker: str) -> None:
    assert SECRET not in complaint(BROKER=broker)


def test_a_modules_own_settings_are_read_under_its_prefix_and_its_secrets_masked() -> None:
    environ = {**GOOD, "MESH_WEB_UI_PORT": "8080", "MESH_WEB_UI_KEY": SECRET, "MESH_WEB_UI_HOSTS": '["a", "b"]'}
    own = load_settings("web-ui", WebSettings, environ).own
    assert (own.port, own.key.get_secret_value(), own.hosts) == (8080, SECRET, ("a", "b"))
    assert SECRET not in repr(own)
    assert SECRET not in mask_text(f"it is {SECRET}")


class PickySettings(ModuleSettings):
    key: SecretStr = Field(min_length=100)
    hosts: tuple[int, ...] = ()

    @field_validator("key")
    @classmethod
    def _quotes_half_of_it(cls, key: SecretStr) -> SecretStr:
        if "half" in key.get_secret_value():
            raise ValueError(f"it begins with {key.get_secret_value()[:10]}")
        return key


@pytest.mark.parametrize(
    ("variable", "value"),
    [("WEB_KEY", SECRET), ("WEB_KEY", SECRET + "half" * 30), ("WEB_HOSTS", f"[{SECRET}"), ("WEB_HOSTS", f'["{SECRET}"]')],
)
def test_a_malformed_value_of_a_modules_own_is_never_shown(variable: str, value: str) -> None:
    text = complaint(PickySettings, **{"WEB_KEY": "x" * 100, variable: value})
    assert f"MESH_{variable}" in text
    assert SECRET[:10] not in text


def test_an_unknown_variable_of_this_module_is_a_warning_that_lists_the_known() -> None:
    environ = {**GOOD, "MESH_WEB_PROT": "1", "MESH_WEBB_X": "1", "MESH_HOST_ROOT": "1"}
    (warning,) = load_settings("web", WebSettings, environ).warnings
    assert "MESH_WEB_PROT" in warning
    assert "MESH_WEB_PORT" in warning


def test_the_broker_modules_prefix_does_not_take_the_runtimes_own_variable_for_unknown() -> None:
    assert load_settings("broker", None, {**GOOD, "MESH_BROKER_NAME": "broker.mesh"}).warnings == ()


def test_a_modules_setting_that_would_be_the_runtimes_own_is_an_error_of_its_author() -> None:
    class BrokerSettings(ModuleSettings):
        name: str = ""

    with pytest.raises(TypeError, match="MESH_BROKER_NAME"):
        load_settings("broker", BrokerSettings, GOOD)


def test_no_setting_can_lower_verification_or_turn_masking_off() -> None:
    names = " ".join(RuntimeSettings.model_fields)
    assert not any(word in names for word in ("insecure", "verify", "mask", "skip", "check", "tls"))


def test_every_setting_is_described_where_it_is_declared() -> None:
    rows = describe_settings()
    assert [row.variable for row in rows] == [f"MESH_{name.upper()}" for name in RuntimeSettings.model_fields]
    for row in rows:
        assert len(row.description) > 20, row.variable
        assert row.example, row.variable


def test_every_example_is_itself_right() -> None:
    examples = {row.variable: row.example for row in describe_settings()}
    for without in ("MESH_CA_FILE", "MESH_CA_PIN"):
        environ: Mapping[str, Any] = {name: value for name, value in examples.items() if name != without}
        assert load_settings("web", None, environ).runtime.machine == "node-1"
