"""Secrets that an issuer draws: of a safe alphabet, each its own, masked from the draw on, and not for ever."""

import re

from mesh_runtime.grants.drawing import MASKED, Secrets
from mesh_runtime.logging import mask_text


def test_a_secret_is_of_an_alphabet_that_no_syntax_misreads_and_never_the_same() -> None:
    drawing = Secrets()
    drawn = {drawing.draw() for _ in range(20)}
    assert len(drawn) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", one) for one in drawn)


def test_the_newest_secrets_are_masked_and_older_ones_make_the_log_no_slower() -> None:
    drawing = Secrets()
    drawn = [drawing.draw() for _ in range(MASKED + 3)]
    assert [one in mask_text(f"login {one} failed") for one in drawn] == [True] * 3 + [False] * MASKED
