"""Secrets planted in real runtimes on a real broker, at DEBUG: searched for in all that they write, show, send, park and keep."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh_runtime.contracts.identity import Identity
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.ca import CertificateAuthority
from mesh_runtime.testing.processes import RuntimeProcess, program_of, script
from mesh_runtime.testing.running import Runtimes
from mesh_runtime.testing.waiting import until
from tests.parts import Noted
from tests.raw import parked, raw
from tests.secrets.parts import Spill, Spiller, text_of_files
from tests.secrets.planting import HARD, Planted, found_of
from tests.startup.launching import Launcher, placed, write_credentials

PASSWORD, WRONG, KEY = HARD
PLACES = {"log", "state", "health", "replies", "parked tells"}
"""Where each of the module's ways of spilling would be read without masking. Files and command lines hold no secret anyway."""


def program(masking: bool) -> list[str]:
    """The command of the careless module, with masking or without."""
    interpreter, flag, code = program_of(Spiller)
    return [interpreter, flag, code if masking else f"import tests.secrets.unmasked; {code}"]


async def login(runtimes: Runtimes, machine: str, password: str) -> dict[str, str]:
    """The variables of a careless runtime, whose login has ``PASSWORD``, and whose credentials say ``password``."""
    variables = await placed(runtimes, Spiller, machine, MESH_SPILLER_KEY=KEY.text)
    await runtimes.management.put_user(f"spiller@{machine}", PASSWORD.text)
    write_credentials(Path(variables["MESH_CREDENTIALS"]), f"spiller@{machine}", password)
    return variables


async def health(process: RuntimeProcess) -> str:
    """What ``health --json`` prints of it."""

    def run() -> str:
        command = [script("networking")[0], "health", "--json"]
        environ = {"MESH_STATE_DIR": str(process.states.directory), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


def command_lines() -> Iterator[str]:
    """Those of all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


async def spilled_by(launch: Launcher, runtimes: Runtimes, masking: bool) -> dict[str, str]:
    """Run the careless module through each of its ways; returns by place all that could be read of it."""
    command = program(masking)
    good, refused, untrusted = "good", "refused", "untrusted"
    wrong_ca = runtimes.directory / "wrong-ca.pem"
    wrong_ca.write_bytes(CertificateAuthority("another CA").certificate)
    at = {
        good: await launch.start(await login(runtimes, good, PASSWORD.text), command),
        refused: await launch.start(await login(runtimes, refused, WRONG.text), command),
        untrusted: await launch.start(
            {**await login(runtimes, untrusted, PASSWORD.text), "MESH_CA_PIN": "", "MESH_CA_FILE": str(wrong_ca)}, command
        ),
    }
    await at[refused].states.until_at("login", "blocked", "login-refused", within=40)
    await at[untrusted].states.until_at("trust", within=40)
    shown = await at[good].states.until_at("prepare", "waiting", "ConnectionRefusedError", within=40)
    places = {"state": str([shown, at[refused].states.last, at[untrusted].states.last]), "health": await health(at[good])}
    places["command lines"] = "\n".join(command_lines())
    (at[good].states.directory / "prepared").touch()
    await at[good].states.until_ready(within=40)
    async with raw(runtimes, "pupil@outside", tells=("noted.1",)) as pupil:
        asks = [pupil.ask(Spill.type_name(), b'{"way": "%s"}' % way) for way in (b"raise", b"validator", b"unwritable")]
        pupil.tell(Noted.type_name(), b'{"id": 1}')
        put_aside = await parked(runtimes, f"spiller@{good}", 1, within=25)
        await until(lambda: all(pupil.reply_of(ask) for ask in asks), "every ask is answered", within=20)
        places["replies"] = "\n".join(f"{one.body!r} {one.headers}" for one in pupil.replies)
    places["parked tells"] = "\n".join(f"{one.body!r} {one.headers}" for one in put_aside)
    for process in at.values():
        assert await process.stop() == 0
    (at[good].states.directory / "crash").touch()
    await at[good].start()
    assert await at[good].ended(20) == 70
    places["log"] = "\n".join(process.logs.text for process in at.values())
    places["files"] = "\n".join(text_of_files(process.states.directory) for process in at.values())
    return places


@pytest.mark.timeout(150)  # four processes start, and a tell is tried for two seconds before it is parked
async def test_b69_no_planted_secret_is_logged_shown_sent_parked_or_kept(launch: Launcher, runtimes: Runtimes) -> None:
    """The password of a login and a secret among the settings, through a refused certificate, a refused login, an error of each kind that
    an author makes, and a crash.

    Removal: mesh_runtime/logging/plain.py: text = masking.text(text)
    Assertion: found_of(HARD, places) == {}
    """
    places = await spilled_by(launch, runtimes, masking=True)
    assert found_of(HARD, places) == {}
    for place in PLACES:
        assert "***" in places[place], f"{place}: nothing was masked, so nothing was spilled"


@pytest.mark.timeout(150)
async def test_with_masking_off_the_same_search_finds_it_in_each_place(launch: Launcher, runtimes: Runtimes) -> None:
    places = await spilled_by(launch, runtimes, masking=False)
    assert set(found_of((KEY,), places)) == PLACES


LOGINS = """
import asyncio, json, logging, sys
from pydantic import SecretStr
from mesh_runtime.broker import BrokerAt, open_session
from mesh_runtime.logging import configure, install_loop_hook, register_secret
from mesh_runtime.settings import Credentials
from mesh_runtime.startup import StageFault

given = json.load(sys.stdin)
configure("json", "debug", masking=given["masking"])
log = logging.getLogger("author")

async def main():
    install_loop_hook(asyncio.get_running_loop())
    for user, password in given["logins"]:
        register_secret(password)
        login = Credentials(user, SecretStr(password))
        at = BrokerAt((("127.0.0.1", given["port"]),), given["name"], given["vhost"], 5.0, None, given["pin"], lambda: login)
        print(json.dumps({"event": repr((login, at, vars(at) if hasattr(at, "__dict__") else ""))}))
        try:
            session = await open_session(at, "pupil@outside")
        except StageFault as fault:
            log.info("refused", extra={"fault": fault, "what": repr(fault)}, exc_info=fault)
            continue
        log.info("logged in", extra={"session": session, "connection": session._connection, "link": session._link})
        print(json.dumps({"event": f"{session!r} {session} {session._connection!r} {session._connection} {session._link!r}"}))
        log.debug("%s", session._connection.url)
        await session.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("masking", [True, False], ids=["masked", "unmasked"])
async def test_passwords_of_every_hard_form_log_in_and_stay_out_of_the_clients_own_debug_log(runtimes: Runtimes, masking: bool) -> None:
    """The client logs each frame that it sends, the one with the password included."""
    wrong = [Planted(each.head, each.hard[::-1] + "x", each.tail) for each in HARD]
    logins = []
    for at, (good, bad) in enumerate(zip(HARD, wrong, strict=True)):
        identity = Identity("pupil", f"outside-{at}")
        await runtimes.login(identity, manifest_of(Spiller, "0").model_copy(update={"module": "pupil"}))
        await runtimes.management.put_user(str(identity), good.text)
        logins += [(str(identity), bad.text), (str(identity), good.text)]
    given = {
        "logins": logins,
        "port": runtimes.broker.ports.amqps,
        "name": runtimes.broker.name,
        "vhost": runtimes.vhost,
        "pin": runtimes.broker.ca.pin,
        "masking": masking,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LOGINS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, stderr.decode()
    events = [json.loads(line)["event"] for line in stdout.decode().splitlines()]
    assert (events.count("refused"), events.count("logged in")) == (len(HARD), len(HARD))
    found = found_of((*HARD, *wrong), {"stdout": stdout.decode(), "stderr": stderr.decode()})
    assert bool(found) is not masking, found
