"""``xbus trace``: what was made of what."""

import json
from pathlib import Path
from uuid import UUID, uuid4
from xml.etree import ElementTree

import pytest
from sqlalchemy import Connection, insert, select

from tests.integration.admin.conftest import NOON, Xbus
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


class Log:
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
        row |= {"position": self._position, "events": 1, "items": 2} if is_received else {}
        self._connection.execute(insert(model.envelope).values(row))
        type_id = self._types[type_name]
        event = {"id": uuid4(), "envelope_id": made_id, "number": 1, "event_type_id": type_id, "items": 2}
        event |= {"graph_id": self._graphs[type_id], "estimate": 2, "origin_id": self._event_of(origin)}
        self._connection.execute(insert(model.event).values(event))
        return made_id

    def _event_of(self, envelope_id: UUID | None) -> UUID | None:
        of_envelope = select(model.event.c.id).where(model.event.c.envelope_id == envelope_id)
        return None if envelope_id is None else self._connection.execute(of_envelope).scalar_one()


@pytest.fixture
def chain(database_url: str) -> dict[str, UUID]:
    """An order, of which a node made two, one of them by its second try; a repeat of it; and a stranger."""
    with writing(database_url) as connection:
        apply(connection, make_plan(read_stored(connection), BUS), NOON)
        log = Log(connection)
        ids = {"order": log.add("orders"), "stranger": log.add("orders")}
        log.add("priced", "orders/priced", source=ids["order"], state="cancelled")
        ids["priced"] = log.add("priced", "orders/priced", source=ids["order"], generation=1)
        ids["counted"] = log.add("counted", "orders/counted", source=ids["order"])
        ids["bill"] = log.add("bills", "priced/again", source=ids["priced"])
        ids["repeat"] = log.add("orders", origin=ids["order"])
        ids["repriced"] = log.add("priced", "orders/priced", source=ids["repeat"])
    return ids


def traced(xbus: Xbus, *arguments: object) -> dict[str, tuple[str | None, str]]:
    found = xbus("trace", *map(str, arguments), "-o", "json")
    assert found.exit_code == 0, found.output
    links = [json.loads(line) for line in found.stdout.splitlines()]
    return {link["envelope_id"]: (link["parent_id"], link["way"]) for link in links}


def test_up_leads_to_what_was_sent(xbus: Xbus, chain: dict[str, UUID]) -> None:
    assert traced(xbus, chain["bill"], "--up") == {
        str(chain["order"]): (None, "sent"),
        str(chain["priced"]): (str(chain["order"]), "node"),
        str(chain["bill"]): (str(chain["priced"]), "node"),
    }


def test_down_leads_to_all_that_was_made_of_it(xbus: Xbus, chain: dict[str, UUID]) -> None:
    order = str(chain["order"])
    assert traced(xbus, order[:13], "--down") == {
        order: (None, "sent"),
        str(chain["priced"]): (order, "node"),
        str(chain["counted"]): (order, "node"),
        str(chain["repeat"]): (order, "repeat"),
        str(chain["bill"]): (str(chain["priced"]), "node"),
        str(chain["repriced"]): (str(chain["repeat"]), "node"),
    }


def test_a_tree_shows_both_ways(xbus: Xbus, chain: dict[str, UUID]) -> None:
    lines = xbus("trace", str(chain["priced"])).stdout.splitlines()

    assert [line.split()[0] for line in lines[1:]] == [
        str(chain["order"])[:8],
        "*",
        str(chain["bill"])[:8],
    ]
    assert "orders/priced" in lines[2]


def test_a_picture_has_a_box_for_each(xbus: Xbus, chain: dict[str, UUID]) -> None:
    drawn = xbus("trace", str(chain["order"]), "--svg")

    root = ElementTree.fromstring(drawn.stdout)
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(map(str, titles)) == sorted(str(chain[name]) for name in chain if name != "stranger")


def test_an_unknown_envelope_is_refused(xbus: Xbus, chain: dict[str, UUID], tmp_path: Path) -> None:
    refused = xbus("trace", str(uuid4()))

    assert refused.exit_code == 1
    assert "envelope_unknown" in refused.output + refused.stderr
