"""What is encoded and decoded here is what pamqp, written by others from the same specification, makes and reads."""

import asyncio
import struct
from datetime import UTC, datetime
from typing import Any

import pamqp.encode
import pamqp.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from mesh_runtime.broker import decoding, encoding
from mesh_runtime.broker.link import Link
from mesh_runtime.broker.messages import Properties

SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
#: What pamqp writes whole: it cuts a longer name short.
NAME = SHORT.filter(lambda text: len(text.encode()) <= 128)
TABLE = st.dictionaries(
    NAME, st.one_of(SHORT, st.integers(-(2**62), 2**62), st.booleans(), st.binary(max_size=9).map(bytearray)), max_size=5
)
PROPERTIES = st.builds(
    Properties,
    type=SHORT,
    message_id=SHORT,
    correlation_id=SHORT,
    reply_to=SHORT,
    app_id=SHORT,
    user_id=SHORT,
    expiration=st.none() | st.integers(1, 86_400_000),
    headers=st.none() | TABLE,
    persistent=st.booleans(),
)


def frames_of(data: bytes) -> list[Any]:
    found = []
    while data:
        size, channel, frame = pamqp.frame.unmarshal(data)
        assert channel == 7
        found.append(frame)
        data = data[size:]
    return found


BODY = st.integers(0, 800).map(lambda size: bytes(number * 31 % 251 for number in range(size)))


@settings(deadline=None)
@given(SHORT, SHORT, st.booleans(), BODY, PROPERTIES)
def test_a_publish_is_read_by_pamqp_as_it_was_meant(exchange: str, key: str, mandatory: bool, body: bytes, props: Properties) -> None:
    made = encoding.publish_method(7, exchange, key, mandatory) + encoding.content(7, body, props, frame_max=256 + 8)
    method, header, *bodies = frames_of(made)
    assert (method.name, method.exchange, method.routing_key, bool(method.mandatory)) == ("Basic.Publish", exchange, key, mandatory)
    assert header.body_size == len(body)
    assert b"".join(each.value for each in bodies) == body
    assert all(0 < len(each.value) <= 256 for each in bodies)
    read = header.properties
    assert (read.content_type, read.delivery_mode) == ("application/json", 2 if props.persistent else 1)
    assert (read.message_type or "", read.message_id or "", read.correlation_id or "") == (
        props.type,
        props.message_id,
        props.correlation_id,
    )
    assert (read.reply_to or "", read.app_id or "", read.user_id or "") == (props.reply_to, props.app_id, props.user_id)
    assert read.expiration == (None if props.expiration is None else str(props.expiration))
    assert (read.headers or {}) == (props.headers or {})


@settings(deadline=None)
@given(PROPERTIES, st.booleans())
def test_a_header_of_pamqp_is_read_as_it_was_meant(props: Properties, all_of_them: bool) -> None:
    more = {"content_encoding": "gzip", "priority": 3, "timestamp": datetime(2026, 11, 30, tzinfo=UTC)} if all_of_them else {}
    made = commands.Basic.Properties(
        content_type="text/plain",
        headers=dict(props.headers) if props.headers else None,
        delivery_mode=2,
        correlation_id=props.correlation_id or None,
        reply_to=props.reply_to or None,
        expiration=None if props.expiration is None else str(props.expiration),
        message_id=props.message_id or None,
        message_type=props.type or None,
        user_id=props.user_id or None,
        app_id=props.app_id or None,
        **more,  # type: ignore[arg-type]  # three more of the same
    )
    frame = pamqp.frame.marshal(ContentHeader(0, 12345, made), 7)
    read = decoding.head(frame, 7)
    assert read.size == 12345
    assert (read.type, read.message_id, read.correlation_id) == (props.type, props.message_id, props.correlation_id)
    assert (read.app_id, read.user_id, read.reply_to) == (props.app_id, props.user_id, props.reply_to)
    assert read.expiration == (None if props.expiration is None else str(props.expiration))
    assert read.headers == (props.headers or {})
    assert read.malformed == ""


@settings(deadline=None)
@given(SHORT, st.integers(1, 2**62), st.booleans(), st.from_regex(r"[a-z0-9._-]{0,40}", fullmatch=True), SHORT)
def test_a_delivery_and_a_return_of_pamqp_are_read_as_they_were_meant(tag: str, number: int, again: bool, exchange: str, key: str) -> None:
    frame = pamqp.frame.marshal(commands.Basic.Deliver(tag, number, again, exchange, key), 7)
    assert decoding.deliver(frame, 11) == (tag.encode(), number, again, exchange, key)
    frame = pamqp.frame.marshal(commands.Basic.Return(312, "NO_ROUTE", exchange, key), 7)
    assert decoding.returned(frame, 11) == (312, "NO_ROUTE", exchange, key)


@settings(deadline=None)
@given(st.integers(1, 2**62), st.booleans())
def test_acknowledgements_are_read_by_pamqp_as_they_were_meant(tag: int, flag: bool) -> None:
    (ack,) = frames_of(encoding.ack(7, tag, flag))
    assert (ack.name, ack.delivery_tag, bool(ack.multiple)) == ("Basic.Ack", tag, flag)
    (nack,) = frames_of(encoding.nack(7, tag, flag))
    assert (nack.name, nack.delivery_tag, bool(nack.multiple), bool(nack.requeue)) == ("Basic.Nack", tag, False, flag)
    for frame in (commands.Basic.Ack(tag, flag), commands.Basic.Nack(tag, flag, requeue=False)):
        assert decoding.tag_and_flag(pamqp.frame.marshal(frame, 7), 11) == (tag, int(flag))


def nested(depth: int) -> bytes:
    table = b""
    for _ in range(depth):
        table = b"\x01xF" + struct.pack(">I", len(table)) + table
    return struct.pack(">I", len(table)) + table


@pytest.mark.parametrize(
    "encoded",
    [
        nested(5000),
        struct.pack(">I", 3) + b"\x01x?",
        struct.pack(">I", 11) + b"\x01xT" + b"\xff" * 8,
        struct.pack(">I", 8) + b"\x01xD\x80\xff\xff\xff\xff",
        struct.pack(">I", 5) + b"\x02\xff\xffI\x00",
        struct.pack(">I", 7) + b"\x01xS\x00\x00\x01\x00",
    ],
    ids=["nested", "unknown-type", "date", "decimal", "name", "length"],
)
def test_headers_that_cannot_be_decoded_are_told_apart_and_raise_nothing(encoded: bytes) -> None:
    headers, malformed = decoding.table(encoded, 0, len(encoded) - 4)
    assert (headers == {} and malformed) or isinstance(headers, dict)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_in_a_table_are_read_or_told_apart(raw: bytes) -> None:
    encoded = struct.pack(">I", len(raw)) + raw
    headers, malformed = decoding.table(encoded, 0, len(raw))
    assert headers == {} or not malformed


def test_text_that_is_not_utf_8_costs_nothing() -> None:
    header = struct.pack(">HHQH", 60, 0, 5, 0x0020) + b"\x03\xff\xfe\xfd"
    assert decoding.head(header, 0).type == "���"


class Noted:
    """A channel that notes its frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def frame(self, kind: int, data: bytes, start: int, stop: int) -> None:
        self.frames.append(bytes([kind]) + data[start:stop])

    def session_over(self, reason: str) -> None:
        self.frames.append(reason.encode())


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=90), max_size=12), st.data())
def test_a_stream_cut_anywhere_gives_the_same_frames(bodies: list[bytes], data: st.DataObject) -> None:
    async def run() -> None:
        link, noted = Link(asyncio.get_running_loop(), "test"), Noted()
        link.channels[7] = noted
        stream = b"".join(pamqp.frame.marshal(ContentBody(body), 7) for body in bodies)
        while stream:
            at = data.draw(st.integers(1, len(stream)))
            link.data_received(stream[:at])
            stream = stream[at:]
        assert noted.frames == [b"\x03" + body for body in bodies]

    asyncio.run(run())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n", b"\x01\x00\x01\x00\x00\x00\x01xx", b"\x03\x00\x01\xff\xff\xff\xffx"])
async def test_what_is_no_frame_ends_the_link_in_words(garbage: bytes) -> None:
    link = Link(asyncio.get_running_loop(), "192.0.2.1:5671")
    reasons: list[str] = []
    link.on_over = reasons.append
    link.data_received(garbage)
    assert len(reasons) == 1
    assert "192.0.2.1:5671" in reasons[0]
    assert "does not speak AMQP" in reasons[0]
