"""Turns whatever somebody logs into plain values: text, numbers, lists and dictionaries, masked.

Nothing here raises for a value that merely is strange: what cannot be shown becomes a placeholder that says what it was.
Values are masked while they still have their structure, so that masking can never break the JSON of a line.
"""

import datetime
import math
import reprlib
import traceback
from collections.abc import Mapping
from enum import Enum
from typing import Any

from mesh_runtime.logging.masking import MASK, Masking, process_masker

MAX_DEPTH = 8
"""Nesting that is shown; what lies deeper (or contains itself) becomes a placeholder."""

MAX_ITEMS = 200
"""Items of one list or dictionary that are shown."""

MAX_TEXT = 32_768
"""Characters of one text that are shown; it is cut after masking, never before."""

_MAX_BYTES = 65_536
_MAX_BITS = 4_096

# Types of these modules say more by `str` than by `repr`.
_READABLE = frozenset({"decimal", "ipaddress", "pathlib", "uuid"})

_safely = reprlib.Repr()
_safely.maxother = 1 << 30


def plain(value: object, masking: Masking, depth: int = MAX_DEPTH) -> Any:
    """Return a value that JSON can hold, with every text in it masked, keys included."""
    match value:
        case None | bool():
            return value
        case str():
            return shown(str.__str__(value), masking)
        case Enum():
            return plain(value.value, masking, depth - 1)
        case int() | float():
            return _number(value, masking)
        case bytes() | bytearray() | memoryview():
            size = value.nbytes if isinstance(value, memoryview) else len(value)
            return shown(repr(bytes(value)), masking) if size <= _MAX_BYTES else f"<{size} bytes>"
        case datetime.date() | datetime.time():
            return value.isoformat()
        case BaseException():
            return shown(in_words(value), masking)
        case Mapping() | list() | tuple() | set() | frozenset() if depth <= 0:
            return f"<{type(value).__name__}, nested too deeply>"
        case Mapping():
            return _mapping(value, masking, depth)
        case list() | tuple() | set() | frozenset():
            items = [plain(each, masking, depth - 1) for _, each in zip(range(MAX_ITEMS), value, strict=False)]
            return items if len(value) <= MAX_ITEMS else [*items, f"<{len(value) - MAX_ITEMS} more>"]
        case _ if type(value).__module__.partition(".")[0] in _READABLE:
            return shown(str(value), masking)
        case _:
            return shown(safe_repr(value), masking)


def masked(value: object) -> Any:
    """Return a value that JSON can hold and anybody may read: the process's registered secrets are masked in it."""
    return plain(value, process_masker)


def shown(text: str, masking: Masking) -> str:
    """Return the text masked, then cut to `MAX_TEXT`, with lone surrogates escaped."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    text = masking.text(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… <{len(text) - MAX_TEXT} more characters>"


def in_words(error: BaseException) -> str:
    """Return type, text and notes of an exception; one whose text cannot be made is still named."""
    return "".join(traceback.format_exception_only(error)).strip()


def safe_repr(value: object) -> str:
    """Return `repr(value)`, or a placeholder with the type's name if that raises. It is never cut."""
    return _safely.repr_instance(value, 0)


def _mapping(value: Mapping[Any, Any], masking: Masking, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _, (key, item) in zip(range(MAX_ITEMS), value.items(), strict=False):
        name = str.__str__(key) if isinstance(key, str) else safe_repr(key)
        out[shown(name, masking)] = plain_under(name, item, masking, depth - 1)
    if len(value) > MAX_ITEMS:
        out["…"] = f"<{len(value) - MAX_ITEMS} more>"
    return out


def plain_under(key: str, value: object, masking: Masking, depth: int = MAX_DEPTH) -> Any:
    """Return the value as `plain` does, or the mask if its key says that it is a secret."""
    return MASK if value is not None and masking.is_telling(key) else plain(value, masking, depth)


def _number(value: int | float, masking: Masking) -> int | float | str:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"<an integer of {value.bit_length()} bits>"
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    text = str(value)
    return value if masking.text(text) == text else MASK
