"""Which cuts are made, and in which order: all that is drawn is drawn here, from one seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beds.cuts.steps import VICTIMS, Step


@dataclass(frozen=True)
class Cut:
    """One operation that is cut at one step."""

    operation: str
    step: Step
    victim: str

    @property
    def again(self) -> str:
        """The options that repeat it."""
        return f"--operation {self.operation} --victim {self.victim} --step {str(self.step)!r}"

    def __str__(self) -> str:
        return f"{self.operation}, {self.victim} killed at {self.step}"


@dataclass(frozen=True)
class Wish:
    """What of all cuts is wanted: ``sample`` many (0: no limit), each victim at each step, only this step, only this victim."""

    sample: int = 0
    all: bool = False
    step: str = ""
    victim: str = ""


def plan(recorded: Mapping[str, Sequence[Step]], wish: Wish, seed: int) -> list[Cut]:
    """The cuts: operations in turn, each one's steps in a drawn order, victims in turn."""
    drawing = random.Random(seed)
    turns = [_of_one(operation, steps, wish, drawing) for operation, steps in recorded.items()]
    cuts = [cuts[turn] for turn in range(max(map(len, turns))) for cuts in turns if turn < len(cuts)]
    return cuts[: wish.sample] if wish.sample else cuts


def _of_one(operation: str, recorded: Sequence[Step], wish: Wish, drawing: random.Random) -> list[Cut]:
    steps = [one for one in recorded if wish.step in ("", str(one))]
    victims = [wish.victim] if wish.victim else drawing.sample(VICTIMS, len(VICTIMS))
    mixed = drawing.sample(steps, len(steps))
    if wish.all or wish.step:
        cuts = [Cut(operation, step, victim) for step in mixed for victim in victims]
        return drawing.sample(cuts, len(cuts))
    return [Cut(operation, step, victims[number % len(victims)]) for number, step in enumerate(mixed)]
