"""A journal with envelopes that were made of each other."""

from uuid import UUID, uuid4

from sqlalchemy import Connection, insert, select

from tests.integration.admin.conftest import NOON
from xbus import model
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.database.connection import writing
from xbus.ids import keyed_envelope_id

BUS = BusSpec(
    event_types={
        "orders": EventTypeSpec(
            "orders", False, {name: NodeSpec(name, "", (), (name,)) for name in ("priced", "counted")}
        ),
        "priced": EventTypeSpec("priced", False, {"again": NodeSpec("again", "", (), ("bills",))}),
        "counted": EventTypeSpec("counted", False, {}),
        "bills": EventTypeSpec("bills", False, {}),
    },
    profiles={"shop": ProfileSpec("shop", frozenset({"orders"}))},
    emitters={"shop": EmitterSpec("shop", "shop")},
)


class ChainLog:
    """Envelopes in a journal."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._position = 0
        self.emitters = dict(connection.execute(select(model.emitter.c.login, model.emitter.c.id)).all())
        self._types = dict(connection.execute(select(model.event_type.c.name, model.event_type.c.id)).all())
        self._graphs = dict(connection.execute(select(model.graph.c.event_type_id, model.graph.c.id)).all())

    def add(
        self,
        type_name: str,
        login: str = "shop",
        *,
        source: UUID | None = None,
        origin: UUID | None = None,
        generation: int = 0,
        state: str = "received",
    ) -> UUID:
        """Add an envelope: sent, or made by a node of ``source``, or a repeat of ``origin``."""
        key = None if source is None else str(source)
        made_id = uuid4() if key is None else keyed_envelope_id(self.emitters[login], key, generation)
        is_received = state == "received"
        self._position += is_received
        row = {"id": made_id, "emitter_id": self.emitters[login], "state": state, "opened_at": NOON}
        row |= {"idempotency_key": key, "origin_id": origin, "closed_at": NOON}
        row |= {"position": self._position, "events": 1, "items": 2, "bytes": 64} if is_received else {}
        self._connection.execute(insert(model.envelope).values(row))
        type_id = self._types[type_name]
        event = {"id": uuid4(), "envelope_id": made_id, "number": 1, "event_type_id": type_id, "items": 2}
        event |= {"graph_id": self._graphs[type_id], "estimate": 2, "origin_id": self._event_of(origin)}
        self._connection.execute(insert(model.event).values(event))
        return made_id

    def _event_of(self, envelope_id: UUID | None) -> UUID | None:
        of_envelope = select(model.event.c.id).where(model.event.c.envelope_id == envelope_id)
        return None if envelope_id is None else self._connection.execute(of_envelope).scalar_one()


def make_chain(url: str) -> dict[str, UUID]:
    """An order, of which a node made two, one of them by its second try; a repeat of it; and a stranger."""
    with writing(url) as connection:
        apply(connection, make_plan(read_stored(connection), BUS), NOON)
        log = ChainLog(connection)
        ids = {"order": log.add("orders"), "stranger": log.add("orders")}
        log.add("priced", "orders/priced", source=ids["order"], state="cancelled")
        ids["priced"] = log.add("priced", "orders/priced", source=ids["order"], generation=1)
        ids["counted"] = log.add("counted", "orders/counted", source=ids["order"])
        ids["bill"] = log.add("bills", "priced/again", source=ids["priced"])
        ids["repeat"] = log.add("orders", origin=ids["order"])
        ids["repriced"] = log.add("priced", "orders/priced", source=ids["repeat"])
    return ids
