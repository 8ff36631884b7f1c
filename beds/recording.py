"""What a bed has to say: its timeline while it runs, a fact sheet of its steps, and a summary.

A step is true or false, with facts; a false one says why. All that people read goes to stderr: stdout is the JSON document's.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mesh_runtime.testing.management import ManagementError
from mesh_runtime.testing.supervised import ServerFailed

Facts = dict[str, Any]


class StepFailed(Exception):
    """A step's part is not as it must be; the words say what was seen and what was expected."""

    def __init__(self, words: str, **facts: Any) -> None:
        super().__init__(words)
        self.facts = facts


def check(condition: object, words: str, **facts: Any) -> None:
    """Raise StepFailed with these words and facts unless the condition holds."""
    if not condition:
        raise StepFailed(words, **facts)


@dataclass
class Record:
    """One run of a bed: its console, its steps in order, and since when it runs."""

    console: Console
    steps: dict[str, Facts] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def say(self, words: str, style: str = "") -> None:
        """One line of the timeline."""
        self.console.print(Text(f"{time.monotonic() - self.began:7.2f} s  ").append(words, style=style), highlight=False)

    def show(self, text: str) -> None:
        """Output of somebody else, whole, indented."""
        for line in text.rstrip().splitlines():
            self.console.print(Text(f"           | {line}", style="dim"), highlight=False, soft_wrap=True)

    async def step(self, name: str, perform: Callable[[], Awaitable[Facts]], recorded: bool = True) -> bool:
        """Perform a step and record it; returns whether it was true. What it raises makes it false, with its words."""
        self.say(f"{name} ...", "bold")
        begun = time.monotonic()
        try:
            facts: Facts = {"ok": True, **await perform()}
        except StepFailed as failed:
            facts = {"ok": False, "why": str(failed), **failed.facts}
        except (AssertionError, OSError, TimeoutError, ServerFailed, ManagementError) as failed:
            facts = {"ok": False, "why": f"{type(failed).__name__}: {failed}"}
        facts["seconds"] = round(time.monotonic() - begun, 2)
        if recorded:
            self.steps[name] = facts
        self.say(f"{name}: {'ok' if facts['ok'] else 'FALSE: ' + facts['why']}", "green" if facts["ok"] else "bold red")
        return bool(facts["ok"])

    def summary(self, runtimes: dict[str, Facts]) -> None:
        """The tables that end a run."""
        steps = Table("step", "", "seconds", "", title="steps", title_justify="left", box=None)
        for name, facts in self.steps.items():
            steps.add_row(
                name, Text("ok", "green") if facts["ok"] else Text("FALSE", "bold red"), str(facts["seconds"]), facts.get("why", "")
            )
        rows = Table("runtime", "restarts", "ready after the broker, s", title="runtimes", title_justify="left", box=None)
        for name, facts in runtimes.items():
            rows.add_row(name, str(facts["restarts"]), str(facts.get("ready_after_broker_s", "")))
        self.console.print(steps)
        self.console.print(rows)
        self.say("all ok" if all(facts["ok"] for facts in self.steps.values()) else "not all is ok")
