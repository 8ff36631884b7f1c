"""The gates of the cuts name each step on the wire, however the bytes come, forward every byte, and hold what is cut."""

from collections.abc import AsyncIterator, Collection, Sequence

import pytest
from pamqp import base, body, commands, frame, header

from beds.cuts.amqp import AmqpGate
from beds.cuts.sql import SqlGate
from beds.cuts.steps import Watch, named
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.testing.gate import Connection, Gate, serving


class Names(Watch):
    """Writes down what is about to pass, and lets it, up to the one that is cut."""

    def __init__(self, cut: str = "") -> None:
        super().__init__()
        self.names: list[str] = []
        self._cut = cut

    async def passes(self, ends: Collection[str], name: str) -> bool:
        self.names.append(f"{'-'.join(ends)}: {name}")
        return name != self._cut


async def forwarded(gate: Gate, wire: Sequence[tuple[bool, bytes]], size: int) -> tuple[bytes, bytes]:
    """What comes out at both sides of one connection, given in pieces of ``size``."""
    connection, out = Connection(), {True: b"", False: b""}
    for upward, data in wire:
        for at in range(0, len(data), size):
            parts: AsyncIterator[bytes] = gate.parts(connection, upward, data[at : at + size])
            async for part in parts:
                out[upward] += part
    return out[True], out[False]


def message(kind: bytes, text: bytes) -> bytes:
    return kind + (len(text) + 4).to_bytes(4, "big") + text


def start_up(**fields: str) -> bytes:
    text = b"".join(f"{name}\0{value}\0".encode() for name, value in fields.items()) + b"\0"
    return (len(text) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + text


READY = message(b"Z", b"I")
SQL = [
    (True, (8).to_bytes(4, "big") + (80877104).to_bytes(4, "big")),
    (False, b"N"),
    (True, start_up(user="postgres", application_name="mesh database@alpha")),
    (False, message(b"R", b"\0\0\0\x0a")),
    (True, message(b"p", b"scram")),
    (False, message(b"R", b"\0\0\0\0") + message(b"K", b"12345678") + READY),
    (True, message(b"Q", b"ALTER ROLE \"motd@alpha.1\" PASSWORD 'it''s'\0")),
    (False, message(b"C", b"ALTER ROLE\0") + READY),
    (True, message(b"P", b"\0SELECT 1\0\0\0") + message(b"B", b"values") + message(b"E", b"\0\0\0\0\0") + message(b"S", b"")),
    (False, message(b"1", b"") + message(b"E", b"no") + READY),
    (True, message(b"X", b"")),
]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_a_session_is_seen_statement_by_statement(size: int) -> None:
    watch = Names()
    out = await forwarded(SqlGate(1, watch), SQL, size)
    assert out == tuple(b"".join(data for upward, data in SQL if upward is up) for up in (True, False))
    steps = ["log in", "done: log in", "ALTER ROLE \"\" PASSWORD ''", "done: ALTER ROLE \"\" PASSWORD ''", "SELECT 0", "done: SELECT 0"]
    assert watch.names == [f"provisioner-server: {step}" for step in steps]


async def test_a_statement_that_is_cut_never_arrives_and_nothing_after_it() -> None:
    up, _ = await forwarded(SqlGate(1, Names(cut="SELECT 0")), SQL, 3)
    assert b"ALTER ROLE" in up
    assert b"SELECT" not in up
    assert not up.endswith(message(b"X", b""))


async def test_what_the_load_does_in_the_consumers_pool_is_no_step() -> None:
    watch = Names()
    session = [(True, start_up(user="motd@alpha.1")), (False, READY), (True, message(b"Q", b"\0")), (False, READY)]
    insert = [(True, message(b"Q", b"INSERT INTO greeted VALUES ('1')\0")), (False, READY)]
    up, _ = await forwarded(SqlGate(1, watch), session + insert, 5)
    assert b"INSERT" in up
    assert watch.names == ["consumer-server: log in", "consumer-server: done: log in"]


def content(method: base.Frame, kind: str, text: bytes, channel: int) -> bytes:
    properties = commands.Basic.Properties(message_type=kind)
    parts: list[frame.FrameTypes] = [method, header.ContentHeader(0, len(text), properties), *([body.ContentBody(text)] if text else [])]
    return b"".join(frame.marshal(part, channel) for part in parts)


def amqp_gate(watch: Watch) -> AmqpGate:
    ca = CertificateAuthority("a gate's CA")
    return AmqpGate(1, serving(ca.issue("broker.mesh"), ca), "consumer", watch, ("greeted.1",))


def deliver(tag: int) -> commands.Basic.Deliver:
    return commands.Basic.Deliver("me", tag, False, "mesh.tells", "key")


AMQP = [
    (True, b"AMQP\0\0\x09\x01"),
    (False, frame.marshal(commands.Confirm.SelectOk(), 1)),
    (True, content(commands.Basic.Publish(exchange="mesh.tells", routing_key="key"), "grant-confirmed.1", b"{}" * 9, 1)),
    (False, frame.marshal(commands.Basic.Ack(1, False), 1)),
    (False, content(deliver(1), "greeted.1", b"{}", 2) + content(deliver(2), "grant-rotated.1", b"", 2)),
    (True, frame.marshal(commands.Basic.Ack(2, False), 2) + frame.marshal(commands.Basic.Ack(1, False), 2)),
    (False, content(deliver(3), "grant-revoked.1", b"{}", 2)),
    (True, frame.marshal(commands.Basic.Reject(3, True), 2)),
]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_messages_and_what_settles_them_are_seen_by_their_type(size: int) -> None:
    watch = Names()
    out = await forwarded(amqp_gate(watch), AMQP, size)
    assert out == tuple(b"".join(data for upward, data in AMQP if upward is up) for up in (True, False))
    steps = ["publish grant-confirmed.1", "confirm grant-confirmed.1", "deliver grant-rotated.1", "ack grant-rotated.1"]
    assert watch.names == [f"consumer-broker: {step}" for step in [*steps, "deliver grant-revoked.1", "reject grant-revoked.1"]]


async def test_a_message_that_is_cut_never_arrives() -> None:
    _, down = await forwarded(amqp_gate(Names(cut="deliver grant-rotated.1")), AMQP, 7)
    assert b"greeted.1" in down
    assert b"grant-rotated.1" not in down
    assert b"grant-revoked.1" not in down


def test_a_step_has_the_same_name_in_each_run_and_shows_no_secret() -> None:
    first = named("CREATE ROLE \"motd@alpha.0af3.7\" LOGIN PASSWORD 'SCRAM-SHA-256$4096:it''s'")
    assert first == named("CREATE ROLE \"motd@alpha.0af3.19\"  LOGIN PASSWORD 'SCRAM-SHA-256$4096:another'")
    assert "SCRAM" not in first
