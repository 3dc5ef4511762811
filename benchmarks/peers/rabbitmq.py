"""RabbitMQ: a quorum queue, publisher confirms, and a consumer that acknowledges what came together."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from benchmarks.peers.servers import PeerServer, folder, program, serving, version_of
from tests.support.ports import free_port

SETTINGS = "quorum queue of one node, persistent messages, publisher confirms of any number at a time; prefetch 1,000, "
SETTINGS += "one acknowledgement for all messages of a turn of the loop"
QUEUE = "messages"
PREFETCH = 1_000
START_SECONDS = 120.0
DEBIAN = "/usr/lib/rabbitmq/bin"
"""Where the program itself is: the one on the path changes to an account of its own."""


@contextmanager
def server() -> Iterator[PeerServer]:
    """A node of its own, with a port mapper of its own."""
    port, mapper, distribution = free_port(), free_port(), free_port()
    with folder() as data:
        (data / "plugins").write_text("[].")
        (data / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        env = {
            "HOME": str(data),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"xbus{port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq"),
            "RABBITMQ_MNESIA_BASE": str(data),
            "RABBITMQ_LOG_BASE": str(data),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
            "RABBITMQ_PID_FILE": str(data / "pid"),
        }
        command = [program("rabbitmq-server", DEBIAN)]
        with (
            serving([program("epmd"), "-address", "127.0.0.1", "-port", str(mapper)], mapper, data / "epmd.log"),
            serving(command, port, data / "log", env, START_SECONDS) as process,
        ):
            yield PeerServer(
                f"amqp://guest:guest@127.0.0.1:{port}/",
                (process.pid,),
                version_of(program("rabbitmqctl", DEBIAN), "version"),
            )


class RabbitClient:
    """Sends and takes by one queue."""

    def __init__(self, channel: AbstractChannel, queue: AbstractQueue) -> None:
        self._channel = channel
        self._queue = queue

    async def send(self, message: bytes) -> None:
        persistent = aio_pika.Message(message, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(persistent, QUEUE)

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        await self._channel.set_qos(PREFETCH)
        left, done = messages, asyncio.Event()
        newest: AbstractIncomingMessage | None = None

        async def take_one(message: AbstractIncomingMessage) -> None:
            nonlocal left, newest
            on_message(message.body)
            left -= 1
            is_first, newest = newest is None, message
            if is_first:
                await asyncio.sleep(0)
                last, newest = newest, None
                await last.ack(multiple=True)
                if left == 0:
                    done.set()

        tag = await self._queue.consume(take_one)
        await done.wait()
        await self._queue.cancel(tag)


@asynccontextmanager
async def connect(address: str, in_flight: int) -> AsyncIterator[RabbitClient]:
    """Connect with one channel, which takes any number of messages in flight."""
    connection = await aio_pika.connect(address)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        yield RabbitClient(channel, queue)
