"""usage: python -m benchmarks [--json] [--rounds N] [--only NAME]

Runs every system in turn, round after round, each in a fresh process on one private broker, and prints medians and ratios. A ratio is
the median of the ratios within one round: machines differ and are noisy, so nothing else counts.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import footprint
from benchmarks.ours import CLASSES, VERSION
from benchmarks.work import Target
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.rights import definitions
from mesh_runtime.runtime import manifest_of
from mesh_runtime.testing.broker import BrokerOptions, PrivateBroker
from mesh_runtime.testing.broker_files import password_hash

VHOST, PEER = "bench", "peer"
SYSTEMS = ("mesh_runtime", "aio_pika", "aio_pika_json_rpc", "faststream", "pika")
ROUNDS = 5
#: Seconds for one system's work in one round.
LIMIT = 600.0

#: Name of the ratio: the measure, the system it is put beside, and what is promised of it.
RATIOS = {
    "asks_64_in_flight/aio_pika": ("asks_64_in_flight", "aio_pika", ">= 1.5"),
    "asks_64_in_flight/faststream": ("asks_64_in_flight", "faststream", ">= 4"),
    "asks_64_in_flight/aio_pika_json_rpc": ("asks_64_in_flight", "aio_pika_json_rpc", ""),
    "asks_one_at_a_time/aio_pika": ("asks_one_at_a_time", "aio_pika", ">= 1.0"),
    "asks_one_at_a_time/faststream": ("asks_one_at_a_time", "faststream", ""),
    "asks_one_at_a_time/pika": ("asks_one_at_a_time", "pika", ""),
    "tells_confirmed/aio_pika": ("tells_confirmed", "aio_pika", ">= 1.0"),
    "tells_confirmed/faststream": ("tells_confirmed", "faststream", ""),
    "tells_handled/aio_pika": ("tells_handled", "aio_pika", ">= 1.0"),
    "tells_handled/faststream": ("tells_handled", "faststream", ""),
    "import_cpu/five_packages": ("import_cpu", "five_packages", "<= 1.5"),
    "idle_memory/bare_consumer": ("idle_memory", "bare_consumer", "<= 1.25"),
    "idle_memory_by_pin/bare_consumer_with_x509": ("idle_memory_by_pin", "bare_consumer_with_x509", ""),
}


def holds(ratio: float, promise: str) -> bool:
    """Whether a ratio keeps what is promised of it."""
    if not promise:
        return True
    sign, bound = promise.split()
    return ratio >= float(bound) if sign == ">=" else ratio <= float(bound)


@contextmanager
def broker_of_this_run() -> Iterator[tuple[Target, Path]]:
    """A private broker with a login for the peers and one for each of our runtimes; yields where it is, and the credentials."""
    broker = PrivateBroker(BrokerOptions(name="localhost"))
    try:
        with tempfile.TemporaryDirectory(prefix="mesh-bench-") as directory:
            path = Path(directory)
            passwords: dict[Identity, str] = {}
            for cls in CLASSES:
                identity = Identity(cls.module, "bench")
                passwords[identity] = secrets.token_urlsafe(18)
                (path / cls.module).mkdir()
                (path / cls.module / "username").write_text(str(identity))
                (path / cls.module / "password").write_text(passwords[identity])
            logins = {Identity(cls.module, "bench"): manifest_of(cls, VERSION) for cls in CLASSES}
            made: dict[str, list[dict[str, Any]]] = definitions(VHOST, logins, {who: password_hash(one) for who, one in passwords.items()})
            password = secrets.token_urlsafe(18)
            user = {
                "name": PEER,
                "password_hash": password_hash(password),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
            made["users"].append(user)
            made["permissions"].append({"user": PEER, "vhost": VHOST, "configure": ".*", "write": ".*", "read": ".*"})
            broker.start(made)
            ca_file = path / "ca.pem"
            ca_file.write_bytes(broker.ca.certificate)
            yield Target("localhost", broker.ports.amqps, VHOST, PEER, password, str(ca_file), broker.ca.pin), path
    finally:
        broker.dispose()


def measured(system: str, at: Target, directory: Path) -> dict[str, float]:
    """One system's work in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "--system", system, str(directory)]
    done = subprocess.run(command, input=json.dumps(asdict(at)), capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def one_system(system: str, directory: Path) -> None:
    """The other end of ``measured``."""
    from benchmarks import ours, peers

    at = Target(**json.load(sys.stdin))
    match system:
        case "mesh_runtime":
            result = asyncio.run(ours.mesh_runtime(at, directory))
        case "aio_pika":
            result = asyncio.run(peers.aio_pika_by_hand(at))
        case "aio_pika_json_rpc":
            result = asyncio.run(peers.aio_pika_json_rpc(at))
        case "faststream":
            result = asyncio.run(peers.faststream(at))
        case _:
            result = peers.pika_blocking(at)
    sys.stdout.write(json.dumps(result) + "\n")


def run(rounds: int) -> dict[str, Any]:
    """All rounds; the medians of what was measured and of the ratios within the rounds."""
    footprint.compile_ours()
    seen: list[dict[str, dict[str, float]]] = []
    with broker_of_this_run() as (at, directory):
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            turn = SYSTEMS[number % len(SYSTEMS) :] + SYSTEMS[: number % len(SYSTEMS)]
            row = {system: measured(system, at, directory) for system in turn}
            row["mesh_runtime"] |= footprint.ours(at, directory)
            row |= footprint.peers(at)
            seen.append(row)
    ratios = {
        name: round(statistics.median(row["mesh_runtime"][measure] / row[peer][measure] for row in seen), 3)
        for name, (measure, peer, _) in RATIOS.items()
    }
    medians = {
        system: {measure: round(statistics.median(row[system][measure] for row in seen), 3) for measure in seen[0][system]}
        for system in seen[0]
    }
    kept = {name: holds(ratios[name], promise) for name, (_, _, promise) in RATIOS.items() if promise}
    return {"ratios": ratios, "promises": {name: RATIOS[name][2] for name in kept}, "kept": kept, "medians": medians, "rounds": rounds}


def show(result: dict[str, Any]) -> None:
    """The table."""
    table = Table("ratio to", "measured", "promised", title=f"medians of {result['rounds']} interleaved rounds")
    for name, ratio in result["ratios"].items():
        promise = result["promises"].get(name, "")
        table.add_row(name, f"{ratio:.2f}", f"{promise}{'' if result['kept'].get(name, True) else '  NOT KEPT'}")
    console = Console(stderr=False)
    console.print(table)
    for system, values in result["medians"].items():
        console.print(f"{system}: " + ", ".join(f"{measure} {value:,.1f}" for measure, value in values.items()))


def main() -> int:
    """Measure and print; exit 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed and footprint beside the peers, in one run.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--system", nargs=2, metavar=("NAME", "DIRECTORY"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.system:
        one_system(chosen.system[0], Path(chosen.system[1]))
        return 0
    result = run(chosen.rounds)
    if chosen.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0 if all(result["kept"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
