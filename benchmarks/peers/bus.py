"""The bus itself, by the same programs as its peers: an envelope of one item is a message."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version

from benchmarks.bus import CONSUMER, EMITTER, EVENT_TYPE, PASSWORD, running_bus
from benchmarks.databases import Databases
from benchmarks.peers.servers import PeerServer
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Envelope, Event, Item, serve

SETTINGS = "one emitter, one consumer, as they are"


@contextmanager
def server(databases: Databases, *database_pids: int) -> Iterator[PeerServer]:
    """A broker.

    Args:
        database_pids: the processes of its database, which count as its own.
    """
    with databases() as url, running_bus(url) as daemon:
        yield PeerServer(f"{daemon.front} {daemon.back}", (daemon.pid, *database_pids), version("xbusd"))


class BusClient:
    """Sends as an emitter and takes as a consumer."""

    def __init__(self, emitter: AsyncEmitter, back: str) -> None:
        self._emitter = emitter
        self._back = back

    async def send(self, message: bytes) -> None:
        await self._emitter.put(EVENT_TYPE, [message])

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        left, done, loop = messages, asyncio.Event(), asyncio.get_running_loop()

        class Taker(Consumer):
            def on_item(self, event: Event, item: Item) -> None:
                on_message(item.data)

            def commit(self, envelope: Envelope) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    loop.call_soon_threadsafe(done.set)

        await serve(Taker, self._back, CONSUMER, PASSWORD, done)


@asynccontextmanager
async def connect(address: str, in_flight: int) -> AsyncIterator[BusClient]:
    """Log the emitter in; it takes any number of envelopes in flight."""
    front, back = address.split()
    async with AsyncEmitter(front, EMITTER, PASSWORD) as emitter:
        yield BusClient(emitter, back)
