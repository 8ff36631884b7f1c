"""Marks: what stands in the comment of each role and database that is ours, and says whose it is.

A comment on a role can be written by administrators of roles alone, never by a consumer. What has no mark, or that of another ledger, is
not ours, and is never touched.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class Mark(BaseModel):
    """``ledger`` is the id of the ledger beside which the object was made. ``owner`` is the module to which the data belongs."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    mesh: Literal["mesh-runtime-database"] = "mesh-runtime-database"
    kind: Literal["ledger", "owner", "database", "login"]
    ledger: str
    issuer: str
    resource: str = ""
    database: str = ""
    owner: str = ""
    consumer: str = ""
    sequence: int = 0

    def text(self) -> str:
        """As it stands in a comment."""
        return self.model_dump_json(exclude_defaults=False)

    def stands_for(self, other: "Mark") -> bool:
        """Whether both mean the same, by whichever issuer it was made: a placement may move, and its ledger stays."""
        return self.model_copy(update={"issuer": ""}) == other.model_copy(update={"issuer": ""})


def read_mark(comment: str | None) -> Mark | None:
    """The mark that a comment is, or None: it is none of ours."""
    try:
        return Mark.model_validate_json(comment or "")
    except ValidationError:
        return None
