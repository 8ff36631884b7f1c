"""The private broker starts quickly, fails in every way that is asked of it, and leaves nothing behind."""

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aio_pika
import psutil
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import AMQPConnectionError

from mesh_runtime.testing.broker import BrokerFailed, BrokerOptions, PrivateBroker
from mesh_runtime.testing.broker_files import password_hash
from mesh_runtime.testing.management import Management
from mesh_runtime.testing.waiting import until

USER, PASSWORD = "orders@m1", "p@ss/w#rd?x"


def context_for(broker: PrivateBroker) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=broker.ca.certificate.decode())
    context.check_hostname = False  # the name is not the address; a test of its own looks at the name
    return context


async def dial(broker: PrivateBroker, vhost: str) -> AbstractConnection:
    return await aio_pika.connect(
        host="127.0.0.1",
        port=broker.ports.amqps,
        login=USER,
        password=PASSWORD,
        virtualhost=vhost,
        ssl=True,
        ssl_context=context_for(broker),
        timeout=5,
    )


async def dial_if_listening(broker: PrivateBroker, vhost: str) -> AbstractConnection | None:
    """Return a connection, or None where nothing listens. A refused login raises."""
    try:
        return await dial(broker, vhost)
    except AMQPConnectionError as error:  # aio-pika's name for a refused socket, but not for a refused login
        if isinstance(error, ConnectionRefusedError) or isinstance(error.__cause__, ConnectionRefusedError):
            return None
        raise


def definitions(vhost: str) -> dict[str, Any]:
    hashed = {"password_hash": password_hash(PASSWORD), "hashing_algorithm": "rabbit_password_hashing_sha256"}
    return {
        "users": [{"name": USER, **hashed, "tags": []}],
        "vhosts": [{"name": vhost}],
        "permissions": [{"user": USER, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}],
        "exchanges": [
            {
                "name": "mesh.asks",
                "vhost": vhost,
                "type": "topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
        ],
    }


@pytest.fixture
async def connection(broker: PrivateBroker, management: Management, vhost: str) -> AsyncIterator[AbstractConnection]:
    await management.put_user(USER, PASSWORD)
    await management.put_permissions(vhost, USER)
    connection = await dial(broker, vhost)
    yield connection
    await connection.close()
    await management.delete_user(USER)


async def forget(_: AbstractIncomingMessage) -> None:
    """Take a message and never acknowledge it."""


async def served_names(broker: PrivateBroker) -> set[str]:
    """Shake hands anew and return the names in the certificate that the broker shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", broker.ports.amqps, ssl=context_for(broker))
    names = {value for _, value in writer.get_extra_info("peercert")["subjectAltName"]}
    writer.transport.abort()
    return names


async def test_it_serves_tls_alone_under_its_own_ca_and_name(broker: PrivateBroker) -> None:
    assert await served_names(broker) == {broker.name}
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports.amqps)
    writer.write(b"AMQP\x00\x00\x09\x01")
    async with asyncio.timeout(5):
        assert not (await reader.read(100)).startswith(b"\x01")  # no Connection.Start in the clear
    writer.close()


@pytest.mark.timeout(90)
async def test_its_definitions_are_in_place_in_the_first_instant_in_which_it_accepts(own_broker: PrivateBroker) -> None:
    begun = time.monotonic()
    starting = asyncio.create_task(asyncio.to_thread(own_broker.start, definitions("mesh")))
    refusals = 0
    while (connection := await dial_if_listening(own_broker, "mesh")) is None:
        refusals += 1
        await asyncio.sleep(0.002)
    channel = await connection.channel()
    await channel.get_exchange("mesh.asks", ensure=True)
    await connection.close()
    await starting
    assert refusals > 100, "the dialling had to begin before the broker did"
    assert time.monotonic() - begun < 60


@pytest.mark.timeout(90)
async def test_stopped_and_started_it_has_its_ports_and_data_and_repeats_no_definitions(
    own_broker: PrivateBroker,
) -> None:
    await asyncio.to_thread(own_broker.start, definitions("mesh"))
    async with Management(own_broker.management_url, *own_broker.admin) as management:
        await management.put_queue("mesh", "kept", {"x-queue-type": "quorum"})
        await management.delete_exchange("mesh", "mesh.asks")
    connection = await dial(own_broker, "mesh")
    closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    connection.close_callbacks.add(lambda _, reason: closed.set_result(reason))
    await asyncio.to_thread(own_broker.stop)
    assert "CONNECTION_FORCED" in str(await closed)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", own_broker.ports.amqps)
    assert own_broker.pids == []

    await asyncio.to_thread(own_broker.start)
    async with Management(own_broker.management_url, *own_broker.admin) as management:
        assert [row["name"] for row in await management.queues("mesh")] == ["kept"]
        assert "mesh.asks" not in {row["name"] for row in await management.exchanges("mesh")}
    await (await dial(own_broker, "mesh")).close()


@pytest.mark.timeout(90)
async def test_killed_it_is_gone_at_once_and_starts_again(own_broker: PrivateBroker) -> None:
    await asyncio.to_thread(own_broker.start, definitions("mesh"))
    processes = [child for pid in own_broker.pids for child in psutil.Process(pid).children(recursive=True)]
    own_broker.kill()
    assert [process for process in processes if process.is_running()] == []
    await asyncio.to_thread(own_broker.start)
    await (await dial(own_broker, "mesh")).close()


async def test_paused_it_is_silent_and_resumed_it_goes_on(broker: PrivateBroker, connection: AbstractConnection) -> None:
    channel = await connection.channel()
    broker.pause()
    try:
        with pytest.raises(TimeoutError):
            await channel.declare_queue("while-paused", exclusive=True, timeout=0.3)
    finally:
        broker.resume()
    await (await connection.channel()).declare_queue("after", exclusive=True, timeout=5)


async def test_an_alarm_blocks_who_publishes_until_it_is_cleared(broker: PrivateBroker, connection: AbstractConnection) -> None:
    channel = await connection.channel()
    await asyncio.to_thread(broker.set_alarm, True)
    try:
        await channel.default_exchange.publish(aio_pika.Message(b""), "nowhere", timeout=5)  # the one that blocks
        with pytest.raises(TimeoutError):
            await channel.default_exchange.publish(aio_pika.Message(b""), "nowhere", timeout=0.3)
    finally:
        await asyncio.to_thread(broker.set_alarm, False)
    await (await connection.channel()).default_exchange.publish(aio_pika.Message(b""), "nowhere", timeout=5)


@pytest.mark.timeout(90)  # six calls of its command line
async def test_a_parameter_set_while_it_runs_is_in_force(broker: PrivateBroker, connection: AbstractConnection) -> None:
    before = broker.evaluate("application:get_env(rabbit, consumer_timeout).")
    broker.set_parameter("consumer_timeout", "1000")
    broker.set_parameter("channel_tick_interval", "200")
    try:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.consume(forget)
        await channel.default_exchange.publish(aio_pika.Message(b"never acknowledged"), queue.name)
        await until(lambda: channel.is_closed, "the channel's end by the consumer timeout", within=10)
    finally:
        broker.set_parameter("consumer_timeout", before.removeprefix("{ok,").removesuffix("}"))
        broker.set_parameter("channel_tick_interval", "60000")


async def test_a_replaced_certificate_is_seen_at_the_next_handshake(broker: PrivateBroker, connection: AbstractConnection) -> None:
    await asyncio.to_thread(broker.replace_certificate, broker.ca.issue("renewed.mesh"))
    try:
        assert await served_names(broker) == {"renewed.mesh"}
        assert not connection.is_closed
    finally:
        await asyncio.to_thread(broker.replace_certificate, broker.ca.issue(broker.name))


def test_one_that_cannot_start_says_why_and_leaves_nothing() -> None:
    broker = PrivateBroker(BrokerOptions(settings={"no.such.setting": "1"}))
    with pytest.raises(BrokerFailed, match=r"no\.such\.setting"):
        broker.start()
    assert broker.pids == []
    broker.dispose()
    assert not broker.directory.exists()


@pytest.mark.parametrize(
    ("last_act", "end"),
    [
        ("", lambda process: process.send_signal(signal.SIGKILL)),
        ("os._exit(0)", None),
        ("sys.exit(0)", None),
    ],
    ids=["killed", "left without a word", "exited"],
)
def test_it_ends_with_the_process_that_started_it(last_act: str, end: Callable[[subprocess.Popen[str]], None] | None) -> None:
    code = f"""
    import os, sys, threading, time
    from mesh_runtime.testing.broker import PrivateBroker
    broker = PrivateBroker()
    threading.Thread(target=broker.start).start()  # whose end must not be taken for the process's
    while not broker.running or not broker._accepts(): time.sleep(0.05)
    print(broker.directory, broker.ports.amqps, *broker.pids, flush=True)
    sys.stdin.readline()
    {last_act}
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        directory, port, supervisor, _ = process.stdout.readline().split()
        children = psutil.Process(int(supervisor)).children(recursive=True)
        assert len(children) >= 3, "epmd, the server and its port program"
        if end is None:
            process.stdin.write("go on\n")
            process.stdin.flush()
        else:
            end(process)
        process.wait(10)
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert (len(gone), alive) == (len(children), [])
    assert not Path(directory).exists() or _vanishes(Path(directory))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), timeout=1)


def test_its_directory_goes_with_a_process_that_is_killed_before_the_broker_was_ever_started(tmp_path: Path) -> None:
    code = "from mesh_runtime.testing.broker import PrivateBroker; print(PrivateBroker().directory, flush=True); input()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        assert directory.is_dir()
        process.kill()
    assert _vanishes(directory)
    assert list(tmp_path.iterdir()) == []


def test_its_supervisor_killed_it_ends_too(own_broker: PrivateBroker) -> None:
    own_broker.start()
    supervisor, server = own_broker.pids
    started = psutil.Process(supervisor).children()
    assert server in {child.pid for child in started}
    os.kill(supervisor, signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=5)
    assert alive == []


def _vanishes(path: Path) -> bool:
    deadline = time.monotonic() + 5
    while path.exists() and time.monotonic() < deadline:
        os.sched_yield()
    return not path.exists()
