"""What an author's code raised, or what is wrong with a message, in words that can be sent and logged whatever it is."""

from pydantic import ValidationError

from mesh_runtime.logging import mask_text

#: Characters of an error's words that travel.
WORDS_LIMIT = 2000


def words_of(error: BaseException) -> str:
    """``RuntimeError: its text``: masked, bounded, and valid Unicode. An error whose own ``__str__`` raises is named by its type."""
    try:
        text = str(error)
    except Exception as unspeakable:  # noqa: BLE001 - part of the message boundary: an author's __str__ runs here
        text = f"(its text cannot be had: {type(unspeakable).__name__})"
    words = f"{type(error).__name__}: {text}".removesuffix(": ")
    return mask_text(words.encode(errors="replace").decode())[:WORDS_LIMIT]


_KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def complaint_of(malformed: ValidationError) -> str:
    """The first thing that is wrong: where, what would be right, and of what kind it is; never the value itself."""
    first = malformed.errors(include_url=False, include_context=False)[0]
    words = f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
    kind = _KINDS.get(type(first["input"]))
    return words if kind is None or first["type"] in ("missing", "json_invalid") else f"{words}, and is {kind}"
