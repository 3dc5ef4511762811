"""The gateway, asked in process, before a real broker."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from tests.support.bus import Nodes, add_bus
from tests.support.daemon import Daemon
from xbus import model
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.config import HttpSettings
from xbus.headers import unpack_headers
from xbus.http.application import build
from xbus.rpc.codec import unpack, unpack_items

LOOPBACK = ("127.0.0.1", 50_000)

DOCUMENT_BYTES = 100_000
BODY_BYTES = 3_000_000


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
    """A broker whose front takes calls by tokens, one of each emitter."""

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
            of_event = sa.select(model.segment).where(model.segment.c.event_id == event.id)
            segments = connection.execute(of_event.order_by(model.segment.c.first_index)).all()
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
    url = f"sqlite:///{folder / 'xbus.db'}"
    schema.upgrade(url)
    types: dict[str, Nodes] = {name: {"store": []} for name in ("orders", "eu/orders", "forbidden_orders")}
    add_bus(url, {**types, "question": {"desk": []}}, immediate=["question"])
    with writing(url) as connection:
        at = SystemClock().now()
        tokens = {
            login: add_api_token(connection, f"token of {login}", emitter=login, at=at)
            for login in ("emitter_1", "emitter_2")
        }
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield Shop(daemon, tokens)
    daemon.kill()


Visit = Callable[..., TestClient]


@pytest.fixture
def visit(shop: Shop) -> Iterator[Visit]:
    """Makes clients of gateways with settings of their own."""
    clients: list[TestClient] = []

    def visit(client: tuple[str, int] = LOOPBACK, **given: Any) -> TestClient:
        app = build(shop.settings(**given), shop.daemon.front, SystemClock())
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
