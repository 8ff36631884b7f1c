"""Secrets to plant, and the search for them in every disguise."""

import base64
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A secret of three parts: ``head`` and ``tail``, which no escape changes, so that a search for one of them sees through any mixture of
    escapes and finds a half that somebody cut; between them what each escape changes in its own way."""

    head: str
    hard: str
    tail: str

    @property
    def text(self) -> str:
        return self.head + self.hard + self.tail

    def disguises(self) -> Iterator[str]:
        """The secret as it may stand in an output: in halves, as it is, quoted, escaped, and in base64 at each alignment."""
        text, data = self.text, self.text.encode()
        yield self.head
        yield self.tail
        yield text
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield json.dumps(json.dumps(text))[3:-3]
        yield repr(text)[1:-1]
        yield repr(data)[2:-1]
        yield data.hex()
        yield urllib.parse.quote(text)
        yield urllib.parse.quote(text, safe="")
        yield urllib.parse.quote_plus(text)
        for before in range(3):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                # What the neighbours have no part in: four characters for each three whole bytes.
                whole = data[(3 - before) % 3 :]
                yield encode(whole)[: len(whole) // 3 * 4].decode()

    def found_in(self, text: str) -> list[str]:
        """The disguises that stand in the text."""
        return [each for each in dict.fromkeys(self.disguises()) if each in text]


LOGGED = Planted("S3cr3t-xyz", "/+ü\"'\\ %41", "-t41l-9Qz")
"""What the programs of tests register, and then log in every way."""

HARD = (
    Planted("Pl4nted-one", "\"'`\\ %41%2F@h:5671/?#&=+", "end-0f-one"),
    Planted("Pl4nted-two", " äöü€🐇 ~>?ûÿ+/== ", "end-0f-two"),
    Planted("Pl4nted-tre", ":@:@%%25$(x);{y}<z>|*", "end-0f-tre"),
)
"""Passwords of every hard form: quotes, blanks, unicode, what URLs and escapes are made of, what base64 writes as ``+`` and ``/``."""


def found_of(planted: tuple[Planted, ...], places: dict[str, str]) -> dict[str, list[str]]:
    """By place, the disguises of any of these secrets that stand in its text; places without one are left out."""
    all_found = {place: [each for one in planted for each in one.found_in(text)] for place, text in places.items()}
    return {place: found for place, found in all_found.items() if found}
