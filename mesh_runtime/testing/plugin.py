"""The pytest plugin: options, and every fixture of the kit.

Fixtures stand in files of their own; this file gathers them under the one name that the entry point names. Loading it imports
nothing of the library but this kit's own parts (`late` says why). In an environment without the extra `testing` it offers
nothing, and says so, instead of breaking other people's test runs.
"""

from importlib.util import find_spec

import pytest

MISSING = [name for name in ("aiohttp", "psutil", "pytest_asyncio") if find_spec(name) is None]

if not MISSING:
    from mesh_runtime.testing.installation import NoBroker
    from mesh_runtime.testing.late import founding, logs, mesh, responder, runtimes, states
    from mesh_runtime.testing.leaks import _nothing_left_behind
    from mesh_runtime.testing.postgres import NoPostgres, programs
    from mesh_runtime.testing.shared import (
        broker,
        broker_installation,
        management,
        own_broker,
        own_postgres,
        postgres,
        postgres_server,
        vhost,
    )

    __all__ = [
        "_nothing_left_behind",
        "broker",
        "founding",
        "logs",
        "management",
        "mesh",
        "own_broker",
        "own_postgres",
        "postgres",
        "postgres_server",
        "responder",
        "runtimes",
        "states",
        "vhost",
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("mesh runtime")
    group.addoption(
        "--broker-rootfs",
        metavar="DIR",
        default=None,
        help="run the RabbitMQ of the Debian in this root directory instead of this machine's (needs root)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Say which RabbitMQ and PostgreSQL the tests run on, or why the fixtures are not there."""
    if MISSING:
        return f"mesh-runtime: no fixtures, {', '.join(MISSING)} missing: pip install mesh-runtime[testing]"
    try:
        installation = broker_installation(config)
        broker = f"broker: RabbitMQ {installation.version()} of {installation.rootfs or 'this machine'}"
    except NoBroker as missing:
        broker = f"broker: none; {missing}"
    try:
        return f"{broker}; database: PostgreSQL {programs().parent.name}"
    except NoPostgres as missing:
        return f"{broker}; database: none; {missing}"
