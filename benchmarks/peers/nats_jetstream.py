"""NATS JetStream: publish with its acknowledgement, and a durable pull consumer."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import nats
from nats.js.api import ConsumerConfig, StorageType, StreamConfig
from nats.js.client import JetStreamContext

from benchmarks.peers.servers import PeerServer, folder, program, serving, version_of
from tests.support.ports import free_port

OF_BOTH = (
    "file storage, one replica, publish with acknowledgement; pull consumer in pages of up to 100, each acknowledged"
)
SETTINGS = f"{OF_BOTH}; the server syncs to disk every two minutes (its default), so this is not durable"
SETTINGS_SYNCED = f"{OF_BOTH}; sync_interval always"
SUBJECT = STREAM = "messages"
PAGE = 100
WAIT_SECONDS = 1.0
MOST_PENDING = 10_000
SYNCED = "sync_interval: always"
"""Has each message on the disk before it is acknowledged; for NATS 2.10 and newer."""


@contextmanager
def server(storage: str = "") -> Iterator[PeerServer]:
    """A NATS server with JetStream.

    Args:
        storage: settings of the storage, beyond the folder.
    """
    port = free_port()
    with folder() as data:
        settings = data / "nats.conf"
        settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n store_dir: "{data}"\n {storage}\n}}\n')
        nats_server = program("nats-server")
        with serving([nats_server, "-c", str(settings)], port, data / "log") as process:
            yield PeerServer(f"nats://127.0.0.1:{port}", (process.pid,), version_of(nats_server, "--version"))


class NatsClient:
    """Sends and takes by one stream."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream

    async def send(self, message: bytes) -> None:
        await self._stream.publish(SUBJECT, message)

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        config = ConsumerConfig(max_ack_pending=MOST_PENDING)
        subscription = await self._stream.pull_subscribe(SUBJECT, durable="taker", config=config)
        taken = 0
        while taken < messages:
            try:
                page = await subscription.fetch(PAGE, timeout=WAIT_SECONDS)
            except TimeoutError:  # nothing came
                continue
            for message in page:
                on_message(message.data)
                await message.ack()
            taken += len(page)


@asynccontextmanager
async def connect(address: str, in_flight: int) -> AsyncIterator[NatsClient]:
    """Connect; one connection takes any number of messages in flight."""
    connection = await nats.connect(address)
    try:
        stream = connection.jetstream(timeout=30)
        await stream.add_stream(StreamConfig(name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE, num_replicas=1))
        yield NatsClient(stream)
    finally:
        await connection.close()
