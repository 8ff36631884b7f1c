"""The client of the state socket: is this process alive, is it ready, what does it say of itself.

Only modules that cost little are imported here: a container engine runs this every few seconds, and it must cost less than
150 ms of CPU with all of Python's start. Nothing outside the machine is asked: no broker, no name server.
"""

import json
import os
import socket
import sys
import time

SOCKET = "state"
"""The socket's name in the runtime's state directory."""

TIMEOUT = 2.0
"""Seconds in which a loop that turns has answered."""

_MAX_BYTES = 4_194_304


class NotAlive(Exception):
    """No process answers on the socket; says why."""


def check(directory: "os.PathLike[str] | str", *, ready: bool = False, as_json: bool = False, timeout: float = TIMEOUT) -> int:
    """Ask the process whose state directory this is; print a line, and return the command's exit code.

    0: alive, that is, its event loop answered within `timeout` seconds; with `ready`, also ready to do its work. 1: not, and the
    line on stderr says why. With `as_json` the whole state is printed on stdout, whatever it says.
    """
    try:
        state = read_state(directory, timeout)
    except NotAlive as error:
        print(f"not alive: {error}", file=sys.stderr)  # noqa: T201  (the output of a command)
        return 1
    is_ready = state.get("ready") is True
    if as_json:
        print(json.dumps(state))  # noqa: T201
    elif is_ready or not ready:
        print(_in_words(state, is_ready))  # noqa: T201
    if ready and not is_ready:
        print(_in_words(state, is_ready), file=sys.stderr)  # noqa: T201
        return 1
    return 0


def read_state(directory: "os.PathLike[str] | str", timeout: float = TIMEOUT) -> "dict[str, object]":
    """Return what the process says of itself; raises NotAlive. `timeout` is in seconds, for the whole."""
    try:
        # A unix socket's address holds 107 bytes: by the directory's descriptor a path of any length can be dialled.
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise NotAlive(f"{os.fspath(directory)}: {error.strerror}") from None
    try:
        text = _received(f"/proc/self/fd/{descriptor}/{SOCKET}", timeout)
    except TimeoutError:
        raise NotAlive(f"no answer within {timeout:g} s: the process hangs, or its event loop is blocked") from None
    except FileNotFoundError:
        raise NotAlive(f"{os.fspath(directory)} has no socket {SOCKET!r}: no process runs here, or it has not begun") from None
    except ConnectionRefusedError:
        raise NotAlive("nobody listens on the socket: the process has ended") from None
    except OSError as error:
        raise NotAlive(f"the socket cannot be used: {error.strerror or error}") from None
    finally:
        os.close(descriptor)
    try:
        state = json.loads(text)
    except ValueError:
        raise NotAlive(f"the answer is no JSON document ({len(text)} bytes)") from None
    if not isinstance(state, dict):
        raise NotAlive("the answer is no state")
    return state


def _received(path: str, timeout: float) -> bytes:
    ends = time.monotonic() + timeout
    parts: list[bytes] = []
    size = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout)
        link.connect(path)
        while size <= _MAX_BYTES:
            left = ends - time.monotonic()
            if left <= 0:
                raise TimeoutError
            link.settimeout(left)
            part = link.recv(65536)
            if not part:
                break
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def _in_words(state: "dict[str, object]", is_ready: bool) -> str:
    said = " ".join(f"{key}={_short(state[key])}" for key in ("state", "stage", "cause", "since", "attempts") if state.get(key))
    return ("ready" if is_ready else "alive, not ready") + (f": {said}" if said else "")


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
