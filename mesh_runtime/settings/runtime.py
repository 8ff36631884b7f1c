"""The settings that every runtime has, each described where it is declared."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mesh_runtime.settings.address import Address, check_host, parse_addresses
from mesh_runtime.settings.module import OnlyWhatIsGiven

_WORD = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_PIN = re.compile(r"[0-9a-fA-F]{64}\Z")


def _addresses(value: object) -> object:
    return parse_addresses(value) if isinstance(value, str) else value


def _host(value: object) -> object:
    return check_host(value) if isinstance(value, str) and value else value


def _vhost(value: object) -> object:
    if isinstance(value, str) and "%" in value:
        # The broker client unquotes a virtual host twice, so that such a name would reach another one.
        raise ValueError("it holds '%', which the name of a virtual host must not")
    return value


def _pin(value: object) -> object:
    if isinstance(value, str) and not _PIN.match(value):
        raise ValueError(f"it has {len(value)} characters; a pin is the SHA-256 of the CA's public key, 64 hex digits")
    return value.lower() if isinstance(value, str) else value


def _machine(value: object) -> object:
    if isinstance(value, str) and not _WORD.match(value):
        raise ValueError(f"{value!r} is no machine's name: 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _log_by_terminal() -> Literal["json", "console"]:
    return "console" if sys.stdout is not None and sys.stdout.isatty() else "json"


class RuntimeSettings(OnlyWhatIsGiven):
    """What every runtime is told by environment; the field `broker` is the variable `MESH_BROKER`, and so on."""

    broker: Annotated[tuple[Address, ...], BeforeValidator(_addresses)] = Field(
        description="Where the broker is dialled: one or several host:port, separated by commas; IPv6 in brackets. All are tried.",
        examples=["10.0.0.1:5671,[fd00::1]:5671"],
    )
    broker_name: Annotated[str, BeforeValidator(_host)] = Field(
        default="",
        description="The name that the broker's certificate must bear. Default: the host of the first address.",
        examples=["broker.mesh"],
    )
    vhost: Annotated[str, BeforeValidator(_vhost)] = Field(
        default="mesh",
        min_length=1,
        max_length=255,
        description="The broker's virtual host. It must not hold a '%'.",
        examples=["mesh"],
    )
    ca_file: Path | None = Field(
        default=None,
        description="A PEM file with the CA under which the broker's certificate must stand. Read afresh for each attempt. "
        "Exactly one of MESH_CA_FILE and MESH_CA_PIN is set.",
        examples=["/etc/mesh/ca.pem"],
    )
    ca_pin: Annotated[str, BeforeValidator(_pin)] | None = Field(
        default=None,
        description="The SHA-256 of the CA's SubjectPublicKeyInfo, 64 hex digits; the CA itself is then taken from what "
        "the broker sends. Exactly one of MESH_CA_FILE and MESH_CA_PIN is set.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    credentials: Path = Field(
        description="A directory with the files `username` and `password`. Read afresh for each attempt; the files may come later.",
        examples=["/run/mesh/credentials"],
    )
    machine: Annotated[str, BeforeValidator(_machine)] = Field(
        description="The name of the machine that this runtime runs on: 1 to 63 of a-z, 0-9 and '-'.",
        examples=["node-1"],
    )
    state_dir: Path = Field(
        description="The runtime's own directory, for its socket `state`, its file `starts` and what its module keeps. "
        "It is made if it is missing.",
        examples=["/var/lib/mesh/networking@node-1"],
    )
    key_file: Path | None = Field(
        default=None,
        description="The placement's private X25519 key in PEM, to which its grants are sealed; needed by a module that is granted "
        "something. Read afresh for each attempt; the file may come later.",
        examples=["/run/mesh/key.pem"],
    )
    startup_deadline: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds after which a runtime that is not ready yet ends with exit 75. Default: none, it waits.",
        examples=["600"],
    )
    heartbeat: int = Field(
        default=15,
        ge=1,
        le=3600,
        description="Seconds between heartbeats on the connection to the broker; after twice as long without a byte the session is lost.",
        examples=["15"],
    )
    log: Annotated[Literal["json", "console"], BeforeValidator(_lower)] = Field(
        default_factory=_log_by_terminal,
        description="How log records are written to stdout: `json` (one line each) or `console` (for people). Default: "
        "`console` on a terminal, else `json`.",
        examples=["json"],
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = Field(
        default="info",
        description="The least level that is logged: `debug`, `info`, `warning` or `error`.",
        examples=["debug"],
    )

    @property
    def name_to_verify(self) -> str:
        """The name that the broker's certificate must bear: `broker_name`, or the host of the first address."""
        return self.broker_name or self.broker[0].host

    @model_validator(mode="after")
    def _one_way_to_the_ca(self) -> Self:
        if self.ca_file is None and self.ca_pin is None:
            raise ValueError("neither is set; set one: the CA's file, or its pin")
        if self.ca_file is not None and self.ca_pin is not None:
            raise ValueError("both are set; set only one, so that it is plain which CA is trusted")
        return self
