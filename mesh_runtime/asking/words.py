"""What an author's code raised, in words that can be sent and logged whatever it is."""

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
