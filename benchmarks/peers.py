"""The peers: the same work written by hand over aio-pika, over its JsonRPC, over FastStream and over pika."""

import asyncio
import ssl
import threading
import time
import uuid
from typing import Any

from benchmarks.work import ASK, ONE_AT_A_TIME, PREFETCH, REPLY, WARM, Ask, Counted, Reply, Target, asks, tells

QUORUM = {"x-queue-type": "quorum"}


async def aio_pika_by_hand(at: Target) -> dict[str, float]:
    """What a careful author writes with aio-pika alone: confirms on, as is its default."""
    import aio_pika

    server, client = await aio_pika.connect_robust(at.url), await aio_pika.connect_robust(at.url)
    serving = await server.channel()
    await serving.set_qos(200)
    queue = await serving.declare_queue("bench.raw", auto_delete=True)

    async def serve(message: Any) -> None:
        Ask.model_validate_json(message.body)
        body = REPLY.model_dump_json().encode()
        reply = aio_pika.Message(body, correlation_id=message.correlation_id)
        await serving.default_exchange.publish(reply, routing_key=message.reply_to)
        await message.ack()

    await queue.consume(serve)
    channel = await client.channel()
    waiting: dict[str, asyncio.Future[Any]] = {}
    replies = await channel.declare_queue(exclusive=True)

    async def replied(message: Any) -> None:
        waiting.pop(message.correlation_id).set_result(message)

    await replies.consume(replied, no_ack=True)

    async def call() -> Reply:
        correlation_id = uuid.uuid4().hex
        future = waiting[correlation_id] = asyncio.get_running_loop().create_future()
        message = aio_pika.Message(ASK.model_dump_json().encode(), correlation_id=correlation_id, reply_to=replies.name)
        await channel.default_exchange.publish(message, routing_key="bench.raw")
        return Reply.model_validate_json((await future).body)

    measured = await asks(call)
    await channel.declare_queue("bench.raw.tells", durable=True, arguments=QUORUM)

    async def send() -> None:
        message = aio_pika.Message(ASK.model_dump_json().encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key="bench.raw.tells")

    measured["tells_confirmed"] = await tells(send)
    eating = await server.channel()
    await eating.set_qos(PREFETCH)
    told = await eating.declare_queue("bench.raw.tells", durable=True, arguments=QUORUM)
    counted = Counted()

    async def eat(message: Any) -> None:
        Ask.model_validate_json(message.body)
        await message.ack()
        counted.one()

    counted.begin()
    await told.consume(eat)
    measured["tells_handled"] = await counted.rate()
    await told.delete(if_unused=False, if_empty=False)
    await server.close()
    await client.close()
    return measured


async def aio_pika_json_rpc(at: Target) -> dict[str, float]:
    """The pattern that aio-pika ships for asks."""
    import aio_pika
    from aio_pika.patterns import JsonRPC

    server, client = await aio_pika.connect_robust(at.url), await aio_pika.connect_robust(at.url)
    serving, asking = await JsonRPC.create(await server.channel()), await JsonRPC.create(await client.channel())

    async def compose(ask: dict[str, Any]) -> dict[str, Any]:
        Ask.model_validate(ask)
        return REPLY.model_dump()

    await serving.register("bench_compose", compose, auto_delete=True)

    async def call() -> Reply:
        return Reply.model_validate(await asking.call("bench_compose", {"ask": ASK.model_dump()}))

    measured = await asks(call)
    await server.close()
    await client.close()
    return measured


async def faststream(at: Target) -> dict[str, float]:
    """FastStream's RabbitMQ broker."""
    from faststream.rabbit import QueueType, RabbitBroker, RabbitQueue

    server = RabbitBroker(at.url, logger=None)

    @server.subscriber("bench.fs")
    async def compose(ask: Ask) -> Reply:
        return REPLY

    await server.start()
    client = RabbitBroker(at.url, logger=None)
    await client.start()

    async def call() -> Reply:
        message = await client.request(ASK, "bench.fs", timeout=10)
        return Reply.model_validate_json(message.body)

    measured = await asks(call)
    queue = RabbitQueue("bench.fs.tells", durable=True, queue_type=QueueType.QUORUM)
    declared = await client.declare_queue(queue)

    async def send() -> None:
        await client.publish(ASK, "bench.fs.tells", persist=True)

    measured["tells_confirmed"] = await tells(send)
    eater = RabbitBroker(at.url, logger=None)
    counted = Counted()

    @eater.subscriber(queue)
    async def eat(ask: Ask) -> None:
        counted.one()

    counted.begin()
    await eater.start()
    measured["tells_handled"] = await counted.rate()
    await declared.delete(if_unused=False, if_empty=False)
    for one in (server, client, eater):
        await one.stop()
    return measured


def pika_blocking(at: Target) -> dict[str, float]:
    """Pika's blocking connection in two threads, over direct reply-to: one ask at a time is all that it does."""
    import pika  # type: ignore[import-untyped]  # it ships no types

    context = ssl.create_default_context(cafile=at.ca_file)
    login = pika.PlainCredentials(at.username, at.password)
    options = pika.SSLOptions(context, at.host)
    parameters = pika.ConnectionParameters(at.host, at.port, at.vhost, login, ssl_options=options)
    ready = threading.Event()

    def serve() -> None:
        channel = pika.BlockingConnection(parameters).channel()
        channel.queue_declare("bench.pika", auto_delete=True)
        channel.basic_qos(prefetch_count=200)

        def on_ask(on: Any, method: Any, properties: Any, body: bytes) -> None:
            Ask.model_validate_json(body)
            reply = pika.BasicProperties(correlation_id=properties.correlation_id)
            on.basic_publish("", properties.reply_to, REPLY.model_dump_json().encode(), reply)
            on.basic_ack(method.delivery_tag)

        channel.basic_consume("bench.pika", on_ask)
        ready.set()
        channel.start_consuming()

    threading.Thread(target=serve, daemon=True).start()
    ready.wait(10)
    channel = pika.BlockingConnection(parameters).channel()
    got: dict[str, bytes] = {}

    def on_reply(on: Any, method: Any, properties: Any, body: bytes) -> None:
        got[properties.correlation_id] = body

    channel.basic_consume("amq.rabbitmq.reply-to", on_reply, auto_ack=True)

    def call() -> Reply:
        correlation_id = uuid.uuid4().hex
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=correlation_id)
        channel.basic_publish("", "bench.pika", ASK.model_dump_json().encode(), properties)
        while correlation_id not in got:
            channel.connection.process_data_events(None)
        return Reply.model_validate_json(got.pop(correlation_id))

    for _ in range(WARM):
        call()
    started = time.perf_counter()
    for _ in range(ONE_AT_A_TIME):
        call()
    return {"asks_one_at_a_time": ONE_AT_A_TIME / (time.perf_counter() - started)}
