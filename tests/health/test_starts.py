"""Starts are counted by the process itself, a line for each."""

import os
from datetime import UTC, datetime
from pathlib import Path

from mesh_runtime.health.starts import append_start, count_starts


def test_each_start_is_a_line_with_its_time_and_process(tmp_path: Path) -> None:
    directory = tmp_path / "states" / "web@node-1"
    assert count_starts(directory) == 0
    before = datetime.now(UTC)
    for _ in range(3):
        append_start(directory)
    lines = (directory / "starts").read_text().splitlines()
    assert len(lines) == count_starts(directory) == 3
    for line in lines:
        at, pid = line.split()
        assert abs((datetime.fromisoformat(at) - before).total_seconds()) < 5
        assert int(pid) == os.getpid()


def test_a_line_that_a_crash_cut_is_ended_first(tmp_path: Path) -> None:
    (tmp_path / "starts").write_text("2026-01-01T00:00:00Z 1\n2026-01-")
    append_start(tmp_path)
    assert count_starts(tmp_path) == 3
    assert (tmp_path / "starts").read_text().splitlines()[1] == "2026-01-"
