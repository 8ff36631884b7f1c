"""Decodes what is received often: a delivery, a return, a confirmation. Everything else goes through pamqp.

Bytes that no broker would send raise ``struct.error`` or ``IndexError``; the link ends the session then. Text that is not UTF-8, which a
foreign publisher may well send, is decoded with replacement characters: it must not cost a session.
"""

import struct
from typing import Any, NamedTuple

import pamqp.decode

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_CONTENT = struct.Struct(">HHQH")
_TAG_FLAG = struct.Struct(">QB")


class Head(NamedTuple):
    """A content header. The order is that of ``Delivery``."""

    size: int
    type: str
    message_id: str
    correlation_id: str
    app_id: str
    user_id: str
    expiration: str | None
    reply_to: str
    headers: dict[str, Any]
    malformed: str


def short(data: bytes, at: int) -> tuple[str, int]:
    """A short string and where the next field begins."""
    end = at + 1 + data[at]
    return str(data[at + 1 : end], "utf-8", "replace"), end


def tag_and_flag(data: bytes, at: int) -> tuple[int, int]:
    """A delivery tag and the bit field after it (``basic.ack``, ``basic.nack``)."""
    tag, flag = _TAG_FLAG.unpack_from(data, at)
    return tag, flag


def deliver(data: bytes, at: int) -> tuple[bytes, int, bool, str, str]:
    """``basic.deliver``: consumer tag (as bytes), delivery tag, redelivered, exchange, key."""
    end = at + 1 + data[at]
    consumer = data[at + 1 : end]
    tag, redelivered = _TAG_FLAG.unpack_from(data, end)
    exchange, at = short(data, end + 9)
    key, _ = short(data, at)
    return consumer, tag, bool(redelivered & 1), exchange, key


def got(data: bytes, at: int) -> tuple[tuple[bytes, int, bool, str, str], int]:
    """``basic.get-ok``: as a delivery to a consumer without a tag, and how many messages are left."""
    tag, redelivered = _TAG_FLAG.unpack_from(data, at)
    exchange, at = short(data, at + 9)
    key, at = short(data, at)
    (left,) = _U32.unpack_from(data, at)
    return (b"", tag, bool(redelivered & 1), exchange, key), left


def returned(data: bytes, at: int) -> tuple[int, str, str, str]:
    """``basic.return``: code, text, exchange, key."""
    (code,) = _U16.unpack_from(data, at)
    text, at = short(data, at + 2)
    exchange, at = short(data, at)
    key, _ = short(data, at)
    return code, text, exchange, key


def head(data: bytes, at: int) -> Head:
    """A content header whose payload begins at ``at``."""
    _class, _weight, size, flags = _CONTENT.unpack_from(data, at)
    at += 14
    headers: dict[str, Any] = {}
    type_ = message_id = correlation_id = app_id = user_id = reply_to = malformed = ""
    expiration: str | None = None
    if flags & 0x8000:
        at += 1 + data[at]
    if flags & 0x4000:
        at += 1 + data[at]
    if flags & 0x2000:
        (length,) = _U32.unpack_from(data, at)
        headers, malformed = table(data, at, length)
        at += 4 + length
    if flags & 0x1000:
        at += 1
    if flags & 0x0800:
        at += 1
    if flags & 0x0400:
        end = at + 1 + data[at]
        correlation_id = str(data[at + 1 : end], "utf-8", "replace")
        at = end
    if flags & 0x0200:
        end = at + 1 + data[at]
        reply_to = str(data[at + 1 : end], "utf-8", "replace")
        at = end
    if flags & 0x0100:
        expiration, at = short(data, at)
    if flags & 0x0080:
        end = at + 1 + data[at]
        message_id = str(data[at + 1 : end], "utf-8", "replace")
        at = end
    if flags & 0x0040:
        at += 8
    if flags & 0x0020:
        end = at + 1 + data[at]
        type_ = str(data[at + 1 : end], "utf-8", "replace")
        at = end
    if flags & 0x0010:
        end = at + 1 + data[at]
        user_id = str(data[at + 1 : end], "utf-8", "replace")
        at = end
    if flags & 0x0008:
        app_id, at = short(data, at)
    return Head(size, type_, message_id, correlation_id, app_id, user_id, expiration, reply_to, headers, malformed)


def table(data: bytes, at: int, length: int) -> tuple[dict[str, Any], str]:
    """A field table and, if it cannot be decoded, why. Text is decoded here; a table with anything else by pamqp. Never raises."""
    raw = data[at : at + 4 + length]
    found: dict[str, Any] = {}
    place, end = 4, len(raw)
    try:
        while place < end:
            stop = place + 1 + raw[place]
            if raw[stop] != 0x53:  # 'S', a long string
                return _table_by_pamqp(raw)
            (size,) = _U32.unpack_from(raw, stop + 1)
            name = str(raw[place + 1 : stop], "utf-8", "replace")
            place = stop + 5 + size
            found[name] = str(raw[stop + 5 : place], "utf-8", "replace")
    except (struct.error, IndexError):
        place = -1
    return (found, "") if place == end else ({}, "the headers cannot be decoded: a length in them is wrong")


def _table_by_pamqp(encoded: bytes) -> tuple[dict[str, Any], str]:
    try:
        _, found = pamqp.decode.field_table(encoded)
    except (ValueError, struct.error, IndexError, KeyError, ArithmeticError, OSError, RecursionError) as error:
        # A poisoned message in a durable queue must be told apart, not end each session that receives it.
        return {}, f"the headers cannot be decoded: {type(error).__name__}: {error}"
    return found, ""
