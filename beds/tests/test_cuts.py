"""A few cuts of the many: somebody is killed at steps of each operation, and everything holds. ``./run cuts`` makes them all."""

import asyncio
import json
import os
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Cuts: two of each operation. And seconds for them on a machine that does much else at the same time; alone it is one minute.
CUTS, LIMIT = 6, 420


@pytest.mark.timeout(LIMIT + 30)
async def test_after_some_cuts_one_login_works_no_orphan_is_left_and_no_write_is_lost(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}: python -m beds.cuts --seed {seed} --sample {CUTS}")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "beds.cuts", "--json", "--logs", "--seed", str(seed), "--sample", str(CUTS)),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    document = json.loads(out)
    assert (process.returncode, document["failed"]) == (0, []), said.decode()
    assert len(document["cuts"]) + len(document["not-come"]) == CUTS
    assert {one["operation"] for one in document["cuts"]} == {"issue", "rotate", "revoke"}, said.decode()
    assert all(len(steps) > 50 for steps in document["steps"].values()), said.decode()
    assert document["tells-written"] > 100
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - pathlib's own is refused in a coroutine
