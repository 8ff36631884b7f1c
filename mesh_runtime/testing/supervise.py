"""A small parent for server processes, which leaves none of them behind, whatever becomes of the test run.

Run as a script: it takes `[{"name", "argv", "env", "log"}, ...]` as JSON in its first argument, starts these in order,
prints `{"started": {name: pid}}` on one line, and waits. When the last program of the list ends, or its own parent is gone
(exited or was killed: its standard input ends), it kills all that descends from it and exits; in the second case it also
removes the directory that the second argument names. Orphans come to it, since it is a subreaper; and should it be killed
itself, the kernel kills what it started (PR_SET_PDEATHSIG).

It uses the standard library alone and no thread: a parent-death signal is bound to the thread that forked.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

STDIN = 0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Start the programs that the argument lists, and outlive none of the two ends: the parent, the last program."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    ended, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        started = {program["name"]: _start(program) for program in json.loads(sys.argv[1])}
        sys.stdout.write(json.dumps({"started": started}) + "\n")
        sys.stdout.flush()
        orphaned = _watch(list(started.values())[-1], ended, os.getppid())
    finally:
        _kill_descendants()
    if orphaned:
        shutil.rmtree(sys.argv[2], ignore_errors=True)


def _start(program: dict[str, Any]) -> int:
    with Path(program["log"]).open("ab") as log:
        return subprocess.Popen(
            program["argv"],
            env=program["env"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        ).pid


def _watch(main_pid: int, ended: int, parent: int) -> bool:
    """Wait for one of the two ends; return whether it was the parent's."""
    while os.getppid() == parent:
        ready, _, _ = select.select([STDIN, ended], [], [], 1.0)
        if STDIN in ready and not os.read(STDIN, 4096):
            return True
        if ended in ready:
            os.read(ended, 4096)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == main_pid:
                return False
            if pid == 0:
                break
    return True


def _kill_descendants() -> None:
    while children := _children(os.getpid()):
        for pid in children:
            _kill_tree(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill_tree(pid: int) -> None:
    for child in _children(pid):
        _kill_tree(child)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
