"""The last step before output: what must never be read in a log becomes `***`.

Two kinds of text are masked. First, every *registered* value (`register_secret`): as it is, and in each disguise in which
libraries print it: percent-encoded, backslash- or JSON-escaped (any mixture, escaped up to three times over), in hexadecimal,
and in base64, also where it stands inside something longer at any of the three alignments (`user:password` of basic
authentication is such a case). Second, without registration: the password in `scheme://user:password@`, and what follows
a telling key (`password=…`, `"token": "…"`, `Authorization: Basic …`). And an input that an error of pydantic quotes only in part
is masked too, since half of a registered value could not be told.

What is left of a value that was cut where `...` or `…` now stands (asyncio cuts the arguments of a callback so, as all does that
uses `reprlib`) is masked from `SHORT` characters on, as it is and backslash-escaped.

A value of fewer than `SHORT` characters is masked only where it stands alone as a word, and in no disguise: as a part of
words it would turn every line into stars. A value of several lines is masked as a whole and line by line.

It refuses to be clever about other half secrets: a value that somebody cut without a mark is not recognised.
"""

import base64
import re
import threading
from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from typing import Protocol

MASK = "***"
SHORT = 4
"""Registered values with fewer characters than this are masked as whole words only."""

_CUTS = ("...", "…")

_LINE = 8
"""A line of a registered value of several lines is registered too, from this many characters on."""

_BASE64_RUN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
# Bounded, here and wherever a pattern repeats: what is logged may be made by anybody, and must not make masking slow.
_BACKSLASHES = r"\\{1,8}"
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a", "\0": "0"}

_KEYS = "password|passwd|passphrase|secret|token|authorization|api[-_ ]?key|private[-_ ]?key"
_TELLING_KEY = re.compile(f"(?i:{_KEYS})")
_URL_PASSWORD = re.compile(r'(://[^\s:/@]*:)[^\s/"<>]*@')
_AUTHORIZATION = re.compile(r"""(?i:(authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer)\s+)?)[^\s"',]+)""")
_QUOTED_AFTER_KEY = re.compile(rf"""(?i:((?:{_KEYS})["']?\s*[=:]\s*(?:b|SecretStr\()?))("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_CUT_INPUT = re.compile(r"(\binput_value=)[^\n]{0,120}?\.\.\.[^\n]{0,120}?(, input_type=)")
_BARE_AFTER_KEY = re.compile(rf"""(?i:((?:{_KEYS})=))([^\s,;&"')}}\]]+)""")


class Masking(Protocol):
    """What decides how a text is shown."""

    def text(self, text: str) -> str:
        """Return the text as it may be shown."""
        ...

    def is_telling(self, key: str) -> bool:
        """Say whether a value under this key is masked whatever it is."""
        ...


class NoMasking:
    """Shows everything: with it a test proves that its search finds what masking takes away. Never used otherwise."""

    def text(self, text: str) -> str:
        """Return the text as it is."""
        return text

    def is_telling(self, key: str) -> bool:
        """Never."""
        return False


class Masker:
    """Knows the registered values and masks them in text. Safe to use from every thread."""

    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._secrets: tuple[_Secret, ...] = ()
        self._adding = threading.Lock()

    def register(self, value: str) -> None:
        """Mask this value from now on, for the life of the process. An empty value is ignored."""
        wanted = {value, value.strip()}
        if len(lines := value.splitlines()) > 1:
            # Not the frame of a PEM file, which says nothing.
            wanted |= {line.strip() for line in lines if len(line.strip()) >= _LINE and not line.startswith("-----")}
        with self._adding:
            values = self._values | {each for each in wanted if each.strip()}
            if values != self._values:
                # The longest first: one password may be the beginning of another.
                ordered = sorted(values, key=lambda each: (-len(each), each))
                known = {each.value: each for each in self._secrets}  # the forms of each are worked out once
                self._secrets = tuple(known.get(each) or _Secret(each) for each in ordered)
                self._values = values

    @property
    def values(self) -> frozenset[str]:
        """What is masked."""
        return self._values

    def forget(self, value: str) -> None:
        """Mask this value no longer: one that was drawn here and handed on, and that nothing of this process knows any more."""
        with self._adding:
            self._secrets = tuple(each for each in self._secrets if each.value != value)
            self._values = self._values - {value}

    def forget_all_but(self, values: frozenset[str]) -> None:
        """Mask no other value than these: for a process that lives through many lives, as a test run does."""
        with self._adding:
            self._secrets = tuple(each for each in self._secrets if each.value in values)
            self._values = self._values & values

    def text(self, text: str) -> str:
        """Return the text with all that must not be read replaced by `MASK`."""
        for secret in self._secrets:
            text = secret.masked_in(text)
        for cut in _CUTS:
            if cut in text:
                pieces = text.split(cut)
                for secret in self._secrets:
                    pieces = [secret.halves_masked_in(piece, at > 0, at < len(pieces) - 1) for at, piece in enumerate(pieces)]
                text = cut.join(pieces)
        if "://" in text:
            text = _URL_PASSWORD.sub(rf"\1{MASK}@", text)
        if "input_value=" in text:
            text = _CUT_INPUT.sub(rf"\1{MASK}\2", text)
        if ("=" in text or ":" in text) and _TELLING_KEY.search(text):
            text = _QUOTED_AFTER_KEY.sub(_keep_quotes, text)
            text = _BARE_AFTER_KEY.sub(rf"\1{MASK}", text)
            text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
        return text

    def is_telling(self, key: str) -> bool:
        """Say whether a value under this key is masked whatever it is: the key's name says that it is a secret."""
        return _TELLING_KEY.search(key) is not None


class _Secret:
    """One registered value and the forms in which it is looked for."""

    def __init__(self, value: str) -> None:
        self.value = value
        escaped = repr(value)[1:-1]
        self._cuttable = tuple(dict.fromkeys((value, escaped, escaped.replace("\\'", "'"))))
        if len(value) < SHORT:
            self._word: re.Pattern[str] | None = re.compile(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])")
            return
        self._word = None
        data = value.encode("utf-8", "surrogatepass")
        self._hexadecimal = data.hex()
        self._base64 = tuple(dict.fromkeys(_base64_cores(data)))
        self._signs_of_escape = ("%", "\\", "+") if " " in value else ("%", "\\")

    @cached_property
    def _escaped(self) -> re.Pattern[str]:
        # Compiled when a text first calls for it: it takes milliseconds, and whoever draws secrets has a loop to serve.
        return re.compile("".join(_pattern_parts(self.value)))

    def masked_in(self, text: str) -> str:
        if self._word is not None:
            return self._word.sub(MASK, text) if self.value in text else text
        if self.value in text:
            text = text.replace(self.value, MASK)
        if any(sign in text for sign in self._signs_of_escape):
            text = self._escaped.sub(MASK, text)
        for core in self._base64:
            if core in text:
                text = _without_runs(text, core)
        if len(text) >= len(self._hexadecimal) and self._hexadecimal in text.lower():
            text = re.sub(self._hexadecimal, MASK, text, flags=re.IGNORECASE)
        return text

    def halves_masked_in(self, piece: str, cut_before: bool, cut_after: bool) -> str:
        """Mask what is left of the value at the side where the piece was cut off."""
        if self._word is not None:
            return piece
        for value in self._cuttable:
            if cut_before and (end := _end_of_tail(piece, value)):
                piece = MASK + piece[end:]
            if cut_after and (start := _start_of_head(piece, value)) < len(piece):
                piece = piece[:start] + MASK
        return piece


def _end_of_tail(piece: str, value: str) -> int:
    """Return how many characters at the piece's beginning are the end of the value; 0 if fewer than `SHORT` are."""
    limit = min(len(piece), len(value))
    while (at := piece.rfind(value[-SHORT:], 0, limit)) >= 0:
        if value.endswith(piece[: at + SHORT]):
            return at + SHORT
        limit = at + SHORT - 1
    return 0


def _start_of_head(piece: str, value: str) -> int:
    """Return from where on the piece's end is the beginning of the value; its length if fewer than `SHORT` characters are."""
    at = max(0, len(piece) - len(value))
    while (at := piece.find(value[:SHORT], at)) >= 0:
        if value.startswith(piece[at:]):
            return at
        at += 1
    return len(piece)


def _pattern_parts(value: str) -> Iterator[str]:
    # A run of backslashes is one part: as several that repeat, each in doubt where it ends, they would take exponential time.
    for is_run, characters in groupby(value, lambda character: character == "\\"):
        text = "".join(characters)
        if is_run:
            others = "|".join(rf"(?:{form}){{{len(text)}}}" for form in _escapes("\\"))
            yield rf"(?:\\{{{len(text)},{8 * len(text)}}}|{others})"
        else:
            yield from map(_disguises, text)


def _disguises(character: str) -> str:
    """Return a pattern for one character in every escape, so that mixtures of escapes need no list of their own."""
    forms = [re.escape(character), *_escapes(character)]
    if character in _CONTROLS:
        forms.append(rf"{_BACKSLASHES}{_CONTROLS[character]}")
    if not character.isalnum():
        forms.append(rf"{_BACKSLASHES}{re.escape(character)}")
    if character == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _escapes(character: str) -> Iterator[str]:
    """Yield a pattern for each way to write the character by its number."""
    data = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    yield "".join(f"%(?:25){{0,4}}(?i:{byte:02x})" for byte in data)
    yield "".join(rf"{_BACKSLASHES}x(?i:{byte:02x})" for byte in data)
    yield "".join(rf"{_BACKSLASHES}u(?i:{units[at]:02x}{units[at + 1]:02x})" for at in range(0, len(units), 2))
    if 0x80 <= ord(character) <= 0xFF:
        yield rf"{_BACKSLASHES}x(?i:{ord(character):02x})"
    if ord(character) > 0xFFFF:
        yield rf"{_BACKSLASHES}U(?i:{ord(character):08x})"


def _base64_cores(data: bytes) -> Iterator[str]:
    """Yield what base64 makes of the data at each alignment, without the characters that neighbours have a part in."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        padded = b"\0" * before + data
        yield base64.b64encode(padded).decode("ascii")[first:last]
        yield base64.urlsafe_b64encode(padded).decode("ascii")[first:last]


def _without_runs(text: str, core: str) -> str:
    """Replace each run of base64 characters around `core`: the characters beside it hold bits of it."""
    parts: list[str] = []
    done = 0
    while (at := text.find(core, done)) >= 0:
        start, end = at, at + len(core)
        while start > done and text[start - 1] in _BASE64_RUN:
            start -= 1
        while end < len(text) and text[end] in _BASE64_RUN:
            end += 1
        parts += [text[done:start], MASK]
        done = end
    return "".join([*parts, text[done:]])


def _keep_quotes(match: re.Match[str]) -> str:
    quote = match[2][0]
    return f"{match[1]}{quote}{MASK}{quote}"


process_masker = Masker()
"""The one masker of this process, which `register_secret` fills and every log line passes."""


def register_secret(value: str) -> None:
    """Mask this value in everything that this process logs from now on.

    Register a secret at the moment it is read or drawn. Registering it again is free. Fewer than `SHORT` characters are
    masked only where they stand alone; an empty value is ignored.
    """
    process_masker.register(value)


def forget_secret(value: str) -> None:
    """Take back `register_secret`, for a process that draws secrets for others without end: each one masked makes every line slower."""
    process_masker.forget(value)


def mask_text(text: str) -> str:
    """Return the text as a log may show it: registered secrets, passwords in URLs and after telling keys masked."""
    return process_masker.text(text)
