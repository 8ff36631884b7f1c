"""What a process costs before it does anything: CPU for its imports, and memory while it idles on a connection.

Our side is the installed entrypoint of the networking module; the other is the same five packages imported, and a bare aio-pika consumer
that imports them. Memory is measured twice: with the CA as a file, and with a pin, for which cryptography's x509 is loaded; the second
stands beside a consumer that has loaded x509 and a pydantic model too. Our packages are compiled first, as pip compiles what it installs:
an editable installation would be compiled anew by each process where none may write byte code.
"""

import compileall
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

from benchmarks.work import Target

FIVE = "import aio_pika, pydantic, cryptography, tenacity, structlog"
#: What ``mesh-runtime-networking run`` has imported when it begins to live.
ENTRYPOINT = "from mesh_runtime.entrypoint import load; load('networking')"
IMPORTS = 5
SETTLE = 3.0

_CONSUMER = f"""
import asyncio, json, sys
{FIVE}
async def main():
    at = json.load(sys.stdin)
    connection = await aio_pika.connect_robust(at["url"])
    channel = await connection.channel()
    queue = await channel.declare_queue("bench.idle", auto_delete=True)
    await queue.consume(lambda message: message.ack())
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


_LOADED = "from cryptography import x509\nfrom pydantic import BaseModel\n"


def _cpu_of(code: str) -> float:
    """Seconds of CPU of a fresh interpreter that runs ``code``, less those of one that runs nothing."""

    def once(what: str) -> float:
        child = subprocess.Popen([sys.executable, "-c", what])
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{what!r} failed")
        return usage.ru_utime + usage.ru_stime

    return statistics.median(once(code) - once("pass") for _ in range(IMPORTS))


def _memory_of(command: list[str], environment: dict[str, str], words: str) -> float:
    """MiB of proportional memory (PSS) of an idle process that has said that it is ready."""
    child = subprocess.Popen(command, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018 - for the type checker
    try:
        child.stdin.write(words)
        child.stdin.close()
        while line := child.stdout.readline():
            if "ready" in line:
                break
        time.sleep(SETTLE)
        rollup = Path(f"/proc/{child.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def compile_ours() -> None:
    """Once, before anything is measured. Raises SystemExit where a package of ours cannot be compiled."""
    for package in ("mesh_runtime", "mesh_runtime_networking"):
        if not compileall.compile_dir(str(files(package)), quiet=1):
            sys.exit(f"{package} cannot be compiled")


def ours(at: Target, directory: Path) -> dict[str, float]:
    """The entrypoint's imports, and an idle runtime that consumes: the networking module's, by its own script."""
    environment = {
        "MESH_BROKER": f"{at.host}:{at.port}",
        "MESH_BROKER_NAME": at.host,
        "MESH_VHOST": at.vhost,
        "MESH_CREDENTIALS": str(directory / "networking"),
        "MESH_MACHINE": "bench",
        "MESH_STATE_DIR": str(directory / "state-networking"),
        "MESH_LOG": "json",
    }
    command = [str(Path(sys.executable).with_name("mesh-runtime-networking")), "run"]
    return {
        "import_cpu": _cpu_of(ENTRYPOINT),
        "idle_memory": _memory_of(command, environment | {"MESH_CA_FILE": at.ca_file}, ""),
        "idle_memory_by_pin": _memory_of(command, environment | {"MESH_CA_PIN": at.pin}, ""),
    }


def peers(at: Target) -> dict[str, dict[str, float]]:
    """The five packages' imports, and a bare consumer that imports them."""
    words = json.dumps({"url": at.url})
    return {
        "five_packages": {"import_cpu": _cpu_of(FIVE)},
        "bare_consumer": {"idle_memory": _memory_of([sys.executable, "-c", _CONSUMER], {}, words)},
        "bare_consumer_with_x509": {"idle_memory_by_pin": _memory_of([sys.executable, "-c", _LOADED + _CONSUMER], {}, words)},
    }
