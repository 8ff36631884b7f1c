"""What the page on grants shows is what the command prints; its states are the contract's, and its key is one that a runtime takes."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from rich.console import Console

from mesh_runtime.contracts import Missing, Reason
from mesh_runtime.contracts.granting import GrantRow, GrantsShown
from mesh_runtime.trust.sealing import PrivateKey
from mesh_runtime_operator import showing_grants
from mesh_runtime_operator.issuers import Said
from mesh_runtime_operator.parameters import read_key
from tests.docs.pages import GUIDE, codes, rows, spans

PAGE = GUIDE / "operate-grants.md"
(SHOWN,) = (json.loads(code.text) for code in codes(PAGE, "json"))
ROW = GrantRow.model_validate({"consumer": SHOWN["grants"][0]["identity"], **SHOWN["grants"][0]})


def test_the_document_is_that_of_the_command() -> None:
    silent = Missing(question="cache-grants(act='list') of cache@beta", reason=Reason.NOBODY)
    said = [
        Said("database@alpha", "database.1", GrantsShown(rows=(ROW,), orphans=("mesh-gone-7",))),
        Said("cache@beta", "cache.1", silent),
    ]
    assert showing_grants.document(said) == SHOWN
    assert list(showing_grants.document(said)["grants"][0]) == list(SHOWN["grants"][0])


def test_the_table_is_that_of_the_command() -> None:
    console = Console(width=200, soft_wrap=True)
    with console.capture() as captured:
        console.print(showing_grants.grants([Said("database@alpha", "database.1", GrantsShown(rows=(ROW,)))]))
    printed = [line.rstrip() for line in captured.get().splitlines()]
    shown = codes(PAGE, "console")[0].text.partition("$ mesh grants\n")[2].splitlines()
    assert printed == shown


def test_every_state_that_a_row_can_have_is_explained_and_no_other() -> None:
    annotation = GrantRow.model_fields["state"].annotation
    states = {state for part in get_args(annotation) for state in (get_args(part) or (part,))}
    assert [spans(row[0])[0] for row in rows(PAGE, "state")] == ["drawn", "issued", "confirmed", "retiring", "revoked", "open"]
    assert {spans(row[0])[0] for row in rows(PAGE, "state")} == states


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes a key with openssl, which is not installed")
def test_the_key_that_the_page_makes_is_one(tmp_path: Path) -> None:
    (script,) = codes(PAGE, "sh")
    subprocess.run(["sh", "-euc", script.text], check=True, timeout=20, cwd=tmp_path)  # the page's own text
    private = tmp_path / "orders.key"
    assert str(PrivateKey.load(private).public_key) == read_key(tmp_path / "orders.pub")
    assert private.stat().st_mode & 0o777 == 0o600
