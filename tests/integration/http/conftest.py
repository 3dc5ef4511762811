"""The gateway, asked in process, before a real broker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
import uvicorn
from starlette.testclient import TestClient

from tests.support.bus import Nodes, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.config import HttpSettings
from xbus.headers import unpack_headers
from xbus.http.dialects.gateway import Gateway
from xbus.http.program import build, web_server
from xbus.http.tails import TailPace
from xbus.rpc.codec import unpack, unpack_items
from xbus.web.server import open_port

LOOPBACK = ("127.0.0.1", 50_000)

DOCUMENT_BYTES = 100_000
BODY_BYTES = 3_000_000
AUTODROP = 100_000
LEASE = 600
"""Seconds. No program is silent for so long, however busy the machine is; each leaves to give its ranges to others."""


@dataclass(frozen=True)
class Stored:
    """An envelope of one event, as the journal keeps it."""

    type_name: str
    items: list[Any]
    key: str | None
    ordering_key: str | None
    partition_key: str | None
    headers: dict[str, Any]
    state: str


@dataclass(frozen=True)
class Shop:
    """A broker that takes calls by tokens: one of each emitter, and of each reader's role."""

    daemon: Daemon
    tokens: dict[str, str]

    def stored(self, envelope_id: str) -> Stored:
        """The envelope of an id."""
        with reading(self.daemon.url) as connection:
            of_envelope = sa.select(model.envelope).where(model.envelope.c.id == UUID(envelope_id))
            envelope = connection.execute(of_envelope).one()
            event = connection.execute(
                sa.select(model.event, model.event_type.c.name.label("type_name"))
                .join(model.graph, model.graph.c.id == model.event.c.graph_id)
                .join(model.event_type, model.event_type.c.id == model.graph.c.event_type_id)
                .where(model.event.c.envelope_id == envelope.id)
            ).one()
            of_event = sa.select(model.log_segment).where(model.log_segment.c.event_id == event.id)
            segments = connection.execute(of_event.order_by(model.log_segment.c.first_index)).all()
        items = [unpack(item) for row in segments for item in unpack_items(row.data, row.items)]
        headers = unpack_headers(envelope.headers) if envelope.headers else {}
        return Stored(
            event.type_name,
            items,
            envelope.idempotency_key,
            envelope.ordering_key,
            event.partition_key,
            dict(headers),
            envelope.state,
        )

    def states(self) -> Counter[str]:
        """The number of envelopes by state."""
        with reading(self.daemon.url) as connection:
            return Counter(connection.execute(sa.select(model.envelope.c.state)).scalars())

    def settings(self, **given: Any) -> HttpSettings:
        """Settings of a gateway before it."""
        limits = {"max_document_bytes": DOCUMENT_BYTES, "max_body_bytes": BODY_BYTES, "insist_seconds": 10.0}
        return HttpSettings(**{**limits, **given})


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A broker on SQLite, as the gateway never sees its database."""
    folder = tmp_path_factory.mktemp("http")
    url = new_sqlite(folder / "xbus.db")
    types: dict[str, Nodes] = {name: {"store": []} for name in ("orders", "eu/orders", "forbidden_orders")}
    types |= {name: {} for name in ("bills", "news", "eu/news")}
    add_bus(url, {**types, "question": {"desk": []}}, immediate=["question"])
    add_reader(url, "billing", "bills", start="oldest", ranges=4, lease=LEASE, batch_items=3)
    add_reader(url, "following", "news", "eu/news", "orders", start="oldest", ranges=1, lease=LEASE)
    with writing(url) as connection:
        at = SystemClock().now()
        tokens = {
            login: add_api_token(connection, f"token of {login}", emitter=login, at=at)
            for login in ("emitter_1", "emitter_2")
        }
        for login in ("billing_1", "following_1"):
            tokens[login] = add_api_token(connection, f"token of {login}", role=login, at=at)
    daemon = Daemon(folder / "daemon", url, {"front": {"autodrop_envelopes": AUTODROP}})
    daemon.start()
    yield Shop(daemon, tokens)
    daemon.kill()


Visit = Callable[..., TestClient]


@pytest.fixture
def visit(shop: Shop) -> Iterator[Visit]:
    """Makes clients of gateways with settings of their own."""
    clients: list[TestClient] = []

    def visit(client: tuple[str, int] = LOOPBACK, **given: Any) -> TestClient:
        app = build(shop.settings(**given), shop.daemon.front, SystemClock(), back=shop.daemon.back)
        made = TestClient(app, "http://bus.example", client=client, raise_server_exceptions=False)
        made.__enter__()
        made.headers["authorization"] = f"Bearer {shop.tokens['emitter_1']}"
        made.follow_redirects = False
        clients.append(made)
        return made

    yield visit
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def program(visit: Visit) -> TestClient:
    """A program on the gateway's machine, with the token of ``emitter_1``."""
    return visit()


class Serve:
    """Serves gateways with settings of their own.

    Attributes:
        gateway: the newest one.
        server: its server.
    """

    gateway: Gateway
    server: uvicorn.Server

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    @asynccontextmanager
    async def __call__(self, pace: TailPace | None = None, **given: Any) -> AsyncIterator[int]:
        """Serve; the port."""
        settings = self._shop.settings(**given)
        app = build(settings, self._shop.daemon.front, SystemClock(), back=self._shop.daemon.back, pace=pace)
        listening = open_port("http", "127.0.0.1:0")
        self.gateway = app.state.gateway
        self.server = server = web_server(app, settings, SystemClock())
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server._serve([listening]))
        await eventually(lambda: server.started, "it serves")
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task


@pytest.fixture
def serve(shop: Shop) -> Serve:
    """Serves gateways."""
    return Serve(shop)
