"""Redis Streams: ``XADD``, and a consumer group that acknowledges with ``XACK``."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from benchmarks.peers.servers import PeerServer, folder, program, serving, version_of
from tests.support.ports import free_port

SETTINGS = "appendonly yes, appendfsync always, no snapshots; pipelines of all messages that wait, two at a time; "
SETTINGS += "XREADGROUP of up to 1,000 messages, one XACK for them"
STREAM, GROUP, FIELD = "messages", "takers", b"data"
PAGE = 1_000
BLOCK_MS = 1_000
PIPELINES = 2
"""Pipelines that wait for an answer at a time, as the bus has messages of its emitter."""


@contextmanager
def server() -> Iterator[PeerServer]:
    """A Redis that has each write on the disk before it answers."""
    port = free_port()
    with folder() as data:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), "--save", ""]
        redis = program("redis-server")
        command = [redis, *options, "--appendonly", "yes", "--appendfsync", "always"]
        with serving(command, port, data / "log") as process:
            yield PeerServer(f"redis://127.0.0.1:{port}", (process.pid,), version_of(redis, "--version"))


class RedisClient:
    """Sends and takes by one stream."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._pipelines: set[asyncio.Task[None]] = set()

    async def send(self, message: bytes) -> None:
        sent = asyncio.get_running_loop().create_future()
        self._waiting.append((message, sent))
        if len(self._pipelines) < PIPELINES and len(self._waiting) == 1:
            # It begins in the next turn of the loop, with whatever else this one sends.
            pipeline = asyncio.create_task(self._send_waiting())
            self._pipelines.add(pipeline)
            pipeline.add_done_callback(self._pipelines.discard)
        await sent

    async def _send_waiting(self) -> None:
        while self._waiting:
            going, self._waiting = self._waiting, []
            if len(going) == 1:  # takes less without a pipeline
                await self._redis.xadd(STREAM, {FIELD: going[0][0]})
            else:
                pipeline = self._redis.pipeline(transaction=False)
                for message, _ in going:
                    pipeline.xadd(STREAM, {FIELD: message})
                await pipeline.execute()
            for _, sent in going:
                sent.set_result(None)

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        taken = 0
        while taken < messages:
            found = await self._redis.xreadgroup(GROUP, "taker", {STREAM: ">"}, count=PAGE, block=BLOCK_MS)
            entries = [entry for _, of_stream in found for entry in of_stream]
            for _, fields in entries:
                on_message(fields[FIELD])
            if entries:
                await self._redis.xack(STREAM, GROUP, *(entry_id for entry_id, _ in entries))
            taken += len(entries)


@asynccontextmanager
async def connect(address: str, in_flight: int) -> AsyncIterator[RedisClient]:
    """Connect; few connections take any number of messages in flight."""
    redis = Redis.from_url(address, max_connections=PIPELINES + 1, protocol=2)
    try:
        try:
            await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except ResponseError as error:  # the other program has made it
            if "BUSYGROUP" not in str(error):
                raise
        await asyncio.gather(*(redis.ping() for _ in range(PIPELINES)))
        yield RedisClient(redis)
    finally:
        await redis.aclose()
