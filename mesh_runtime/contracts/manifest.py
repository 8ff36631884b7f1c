"""What a module is, as data: printed from its class, shipped with it, compared by a test.

Permissions at the broker are derived from it (``rights``). A manifest without an explicit command is invalid: no default program ever runs.
"""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict, Field

from mesh_runtime.contracts.identity import check_name


class Manifest(BaseModel):
    """Fields are lists of contract types (``overlay-peers.1``) unless they say otherwise; all are sorted."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    module: str
    version: str
    command: tuple[str, ...] = Field(min_length=1, description="what a container of this module runs; never empty")
    seat: str | None = Field(default=None, description="the role with one holder that it takes, if any")
    needs: tuple[str, ...] = Field(default=(), description="resources that it must be granted")
    provides: tuple[str, ...] = Field(default=(), description="resources that it grants")
    sections: tuple[str, ...] = Field(default=(), description="names of the sections that it composes")
    answers: tuple[str, ...] = Field(default=(), description="`level:type` of every ask that it answers")
    told: tuple[str, ...] = Field(default=(), description="tells that it handles")
    tells: tuple[str, ...] = Field(default=(), description="tells that it sends")

    def model_post_init(self, context: object) -> None:
        """Check the module's name."""
        check_name("a manifest's module", self.module)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels at which it answers, highest first; composing is one of them."""
        asked = {answer.partition(":")[0] for answer in self.answers}
        if self.sections:
            asked.add("compose")
        return tuple(level for level in ("tool", "compose", "provision", "lookup") if level in asked)


def needs_circle(manifests: Iterable[Manifest]) -> tuple[str, ...] | None:
    """Modules that wait for each other's grants, in the order of waiting, the first one again at the end; None if there is no such circle.

    A need is the text of a resource (``database.1/orders``), and whoever provides its type (``database.1``) is waited for. One module
    that needs what it provides itself is a circle too. Of several circles the one that the first module in order stands in.
    """
    known = {one.module: one for one in manifests}
    providers: dict[str, list[str]] = {}
    for module, manifest in sorted(known.items()):
        for provided in manifest.provides:
            providers.setdefault(provided, []).append(module)
    waits_for = {
        module: tuple(who for need in manifest.needs for who in providers.get(need.partition("/")[0], ()))
        for module, manifest in known.items()
    }
    clear: set[str] = set()
    for first in sorted(known):
        if circle := _circle_from(first, waits_for, (), clear):
            return circle
    return None


def _circle_from(module: str, waits_for: Mapping[str, tuple[str, ...]], path: tuple[str, ...], clear: set[str]) -> tuple[str, ...] | None:
    if module in path:
        return (*path[path.index(module) :], module)
    if module in clear:
        return None
    for other in waits_for[module]:
        if circle := _circle_from(other, waits_for, (*path, module), clear):
            return circle
    clear.add(module)
    return None
