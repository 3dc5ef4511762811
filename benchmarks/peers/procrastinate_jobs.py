"""Procrastinate: a queue of jobs in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version

from procrastinate import App, PsycopgConnector

from benchmarks.peers.servers import PeerServer
from tests.support.postgres import Server

SETTINGS = (
    "a job per message, a connection for each in flight, up to 40; worker with 10 jobs at a time, woken by LISTEN, "
)
SETTINGS += "which deletes what is done"
TASK = "take"
JOBS_AT_A_TIME = 10
CONNECTIONS_BESIDE = 3
MOST_CONNECTIONS = 40
"""PostgreSQL takes 100 of all its clients."""


@contextmanager
def server(postgres: Server, postgres_pid: int) -> Iterator[PeerServer]:
    """A database with its tables; there is no other server."""
    url = postgres.create_empty()
    address = url.replace("postgresql+psycopg2://", "postgresql://", 1)
    asyncio.run(_make_tables(address))
    try:
        yield PeerServer(address, (postgres_pid,), version("procrastinate"))
    finally:
        postgres.drop(url)


async def _make_tables(address: str) -> None:
    app = App(connector=PsycopgConnector(conninfo=address))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class JobsClient:
    """Sends and takes jobs of one task."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._send = app.configure_task(TASK)

    async def send(self, message: bytes) -> None:
        await self._send.defer_async(message=message.decode())

    async def take(self, on_message: Callable[[bytes], None], messages: int) -> None:
        left, done = messages, asyncio.Event()

        async def take_one(message: str) -> None:
            nonlocal left
            on_message(message.encode())
            left -= 1
            if left == 0:
                done.set()

        self._app.task(name=TASK)(take_one)
        worker = asyncio.create_task(
            self._app.run_worker_async(
                concurrency=JOBS_AT_A_TIME, delete_jobs="always", install_signal_handlers=False, listen_notify=True
            )
        )
        await done.wait()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


@asynccontextmanager
async def connect(address: str, in_flight: int) -> AsyncIterator[JobsClient]:
    """Connect with a pool of connections."""
    size = min(max(in_flight, JOBS_AT_A_TIME), MOST_CONNECTIONS) + CONNECTIONS_BESIDE
    app = App(connector=PsycopgConnector(conninfo=address, min_size=size, max_size=size))
    async with app.open_async():
        yield JobsClient(app)
