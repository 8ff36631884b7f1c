"""Each cause that puts a secret into a log, in a real process at DEBUG; the same search finds it with masking off.

All causes run in one process, each under a name of its own, so that they cost one start of an interpreter and not one each.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.logging.conftest import Program, Written, run_program

CAUSES = {
    "an exception's text with the DSN": """
import urllib.parse
try:
    raise ConnectionError(f"cannot reach amqps://user:{urllib.parse.quote(SECRET, safe='')}@broker/mesh, nor with {SECRET}")
except ConnectionError:
    std.exception("login failed")
""",
    "logger.exception in a frame with the secret in a local": """
def login(password):
    kept = [password]
    raise RuntimeError(f"refused: {kept}")
try:
    login(SECRET)
except RuntimeError:
    log.exception("login failed")
    std.exception("login failed")
""",
    "a note and a chained cause": """
try:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        error.add_note("tried with " + SECRET)
        raise OSError("no login") from error
except OSError:
    log.error("failed", exc_info=True)
""",
    "a task's exception never retrieved": """
async def fails():
    raise RuntimeError(SECRET)
async def main():
    install_loop_hook(asyncio.get_running_loop())
    task = asyncio.create_task(fails(), name=SECRET)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    import gc; gc.collect()
asyncio.run(main())
""",
    "a callback of the loop that raises": """
def fails(secret):
    raise RuntimeError("in a callback: " + secret)
async def main():
    install_loop_hook(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(fails, SECRET)
    await asyncio.sleep(0)
asyncio.run(main())
""",
    "a callback with a long argument, which asyncio cuts": """
async def main():
    install_loop_hook(asyncio.get_running_loop())
    for text in (SECRET, "with " + SECRET, SECRET * 2):
        asyncio.get_running_loop().call_soon(int, text)
    await asyncio.sleep(0)
asyncio.run(main())
""",
    "a crash of a thread": """
def fails():
    raise RuntimeError(SECRET)
thread = threading.Thread(target=fails)
thread.start()
thread.join()
""",
    "an exception in a finaliser": """
class Closing:
    def __del__(self):
        raise RuntimeError(SECRET)
Closing()
""",
    "a ValidationError with the secret as input": """
from pydantic import BaseModel
class Login(BaseModel):
    port: int
try:
    Login(port=SECRET)
except ValueError as error:
    log.error(str(error), error=error)
    std.error("%s", error, exc_info=True)
""",
    "a ValidationError that quotes only a part of a long input": """
from pydantic import BaseModel
class Login(BaseModel):
    port: int
try:
    Login(port="amqps://user:" + SECRET[:22] + "/mesh" * 20 + SECRET)
except ValueError as error:
    std.error("%s", error)
""",
    "a warning": "warnings.warn('deprecated: ' + SECRET)",
    "keys and nested values": "log.info('x', **{SECRET: 1}, deep={'a': [{SECRET: (SECRET, SECRET.encode())}]})",
    "arguments of the standard library's logging": "std.debug('%s and %r and %s', SECRET, SECRET, {'a': SECRET})",
    "base64 inside something longer, at each alignment": """
import base64
for before in ("", "u", "us", "use"):
    log.info("PLAIN " + base64.b64encode(f"{before}:{SECRET}:x".encode()).decode())
    log.info("PLAIN " + base64.urlsafe_b64encode(f"{before}:{SECRET}".encode()).decode())
""",
    "JSON in JSON": "import json; log.info(json.dumps({'a': json.dumps(SECRET)})); log.info(json.dumps(SECRET, ensure_ascii=False))",
    "percent-encoding of several kinds": """
import urllib.parse
for quoted in (urllib.parse.quote(SECRET), urllib.parse.quote_plus(SECRET), urllib.parse.quote(SECRET, safe='').lower()):
    log.info("https://broker/?q=" + quoted)
""",
    "the client's debug log": """
import aiormq.connection
aiormq.connection.log.error("error when creating transport: %r", OSError(SECRET))
aiormq.connection.log.debug("Prepare to send %r", b"\\x00user\\x00" + SECRET.encode())
""",
    "a message that does not fit its arguments": "std.info('%d ' + SECRET, SECRET)",
    "a bound correlation id": "structlog.contextvars.bind_contextvars(who=SECRET); std.info('x'); log.info('y')",
}

_RUN_ALL = """
import runpy
given = dict(asyncio=asyncio, logging=logging, os=os, threading=threading, warnings=warnings, structlog=structlog, log=log, std=std,
             install_loop_hook=install_loop_hook, SECRET=SECRET)
for at, name in enumerate({names!r}):
    for stream in (sys.stdout, sys.stderr):
        print("CAUSE", at, name, file=stream, flush=True)
    structlog.contextvars.clear_contextvars()
    runpy.run_path(os.path.join(os.path.dirname(__file__), f"cause{{at}}.py"), init_globals=dict(given))
"""


@cache
def written_by(masking: bool) -> dict[str, Written]:
    """What each cause wrote, all run in one process."""
    with TemporaryDirectory() as directory:
        for at, cause in enumerate(CAUSES.values()):
            (Path(directory) / f"cause{at}.py").write_text(cause, "utf-8")
        done = run_program(Path(directory) / "program.py", _RUN_ALL.format(names=list(CAUSES)), masking=masking)
    assert done.code == 0, done.stdout[-2000:] + done.stderr[-2000:]
    parts = {}
    for at, name in enumerate(CAUSES):
        stdout, stderr = (_between(text, f"CAUSE {at} {name}\n", f"CAUSE {at + 1} ") for text in (done.stdout, done.stderr))
        parts[name] = Written(stdout, stderr, done.code)
    return parts


def _between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0]


@pytest.mark.parametrize("cause", CAUSES)
def test_no_cause_writes_a_registered_secret_in_any_disguise(cause: str) -> None:
    """The line whose removal makes this fail: `text = masking.text(text)` in `plain.shown`."""
    written = written_by(masking=True)[cause]
    assert written.found == []
    assert "***" in written.stdout
    assert written.records
    assert written.stderr == ""


@pytest.mark.parametrize("cause", CAUSES)
def test_with_masking_off_the_same_search_finds_it(cause: str) -> None:
    assert written_by(masking=False)[cause].found


def test_a_crash_of_the_program_itself_is_masked(program: Program) -> None:
    crash = "raise SystemError('with ' + SECRET)"
    written = program(crash)
    assert (written.code, written.found, written.stderr) == (1, [], "")
    assert "SystemError: with ***" in written.records[-1]["exception"]
    assert program(crash, masking=False).found


def test_a_local_variable_is_never_shown_even_where_it_was_not_registered(program: Program) -> None:
    written = program(
        """
def login():
    local = "".join(["never-", "registered"])
    raise RuntimeError("refused")
try:
    login()
except RuntimeError:
    log.exception("a"); std.exception("b")
""",
        masking=False,
    )
    assert len(written.records) == 2
    assert "never-registered" not in written.stdout + written.stderr
