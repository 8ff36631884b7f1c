"""What a module is, as data: printed from its class, shipped with it, compared by a test.

Permissions at the broker are derived from it (``rights``). A manifest without an explicit command is invalid: no default program ever runs.
"""

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
