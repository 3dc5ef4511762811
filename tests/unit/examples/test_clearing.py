"""The clearing example keeps what it could not understand, and takes it when it is cleared."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from examples.clearing import Clients
from xbus.recipient import Batch, Envelope, Event, Item, Refusal

ADA = {"number": 1, "name": "Ada", "email": "ada@example.org"}
GRACE = {"number": 2, "name": "Grace"}

MONITOR_READS = {
    "event_type": "id name crud_op has_clearing has_lookup target_collection test_changes",
    "item_type": "id object_name model_name primary_table_name display_name id_column_name optype priority description",
    "item_join": "id type_id parent_id display_name left_column_name right_table_name right_column_name",
    "item_column": "id type_id join_id attribute_name field_name column_name display_name data_type related_type_id "
    "is_external_key is_clearable is_dest_default is_protected is_required",
    "item": "id event_type_id type_id event_id dest_id state batch recv_date sent_date source_data dest_data out_data "
    "unclearable_data",
    "event_type_item_type_rel": "event_type_id item_type_id",
}
"""The tables of xbus.monitor 0.2.1 with their columns: ``xbus/monitor/models/data_clearing.py`` in its source."""


class Bus:
    """Hands envelopes to the example as the bus would."""

    def __init__(self, url: str) -> None:
        self.clients = Clients(url)
        self.clients.on_start()
        self._url = url
        self._ids = itertools.count(1)

    def send(self, *items: object, type_name: str = "client", end: str = "commit", envelope_id: str = "") -> Any:
        """An envelope of one event; what the example replies to it."""
        envelope = Envelope(envelope_id or self.new_id())
        event = Event(self.new_id(), type_name, envelope)
        self.clients.on_event_start(event)
        try:
            self.clients.on_batch(event, Batch([Item.of(item).data for item in items], 0))
        except Refusal:
            self.clients.rollback(envelope)
            raise
        reply = self.clients.on_event_end(event)
        getattr(self.clients, end)(envelope)
        return reply

    def ask(self, *requests: object, **options: str) -> Any:
        return self.send(*requests, type_name="data_clearing", **options)

    def new_id(self) -> str:
        return str(UUID(int=next(self._ids)))

    def rows(self, query: str) -> list[Any]:
        """What someone else sees in the database."""
        engine = sa.create_engine(self._url)
        with engine.connect() as connection:
            found = [tuple(row) for row in connection.execute(sa.text(query))]
        engine.dispose()
        return found


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    url = f"sqlite:///{tmp_path / 'clearing.db'}"
    bus = Bus(url)
    yield bus
    bus.clients.on_stop()


def details_of(item_id: int) -> dict[str, Any]:
    return {"action": "get_item_details", "item_id": item_id}


def clearing_of(item_id: int, action: str = "clear_item", **values: object) -> dict[str, Any]:
    return {"action": action, "item_id": item_id, "values": values}


def test_a_monitor_finds_its_tables(bus: Bus) -> None:
    for table, columns in MONITOR_READS.items():
        assert {name for (name,) in bus.rows(f"SELECT name FROM pragma_table_info('{table}')")} == set(columns.split())
    assert bus.rows(
        "SELECT event_type.name, has_clearing, display_name, optype FROM event_type "
        "JOIN event_type_item_type_rel ON event_type_id = event_type.id JOIN item_type ON item_type.id = item_type_id"
    ) == [("client", 1, "Client", "CREATE")]
    assert bus.rows("SELECT field_name, is_required FROM item_column") == [("number", 1), ("name", 0), ("email", 1)]
    assert bus.clients.clearing.startswith("sqlite:///")


def test_a_second_start_describes_nothing_twice(bus: Bus) -> None:
    bus.clients.on_stop()
    bus.clients.on_start()
    assert bus.rows("SELECT count(*) FROM item_type") == [(1,)]
    bus.send(GRACE)
    assert bus.rows("SELECT event_type_id, type_id FROM item") == [(1, 1)]


def test_what_is_not_understood_waits(bus: Bus) -> None:
    bus.send(ADA, GRACE, {"name": 3})
    assert bus.rows("SELECT number, name, email FROM client") == [(1, "Ada", "ada@example.org")]
    assert bus.rows("SELECT id, dest_id, state, sent_date FROM item") == [(1, 2, "new", None), (2, None, "new", None)]


def test_the_details_are_what_the_page_of_a_monitor_reads(bus: Bus) -> None:
    bus.send(ADA)
    bus.send({"number": 1, "name": "Ada Lovelace"})
    (details,) = bus.ask(details_of(1))
    assert details["source_data"] == {"number": 1, "name": "Ada Lovelace"}
    assert details["current_data"] == ADA
    assert (details["dest_data"], details["out_data"], details["sent_date"]) == ({}, {}, None)
    assert (details["id"], details["state"], details["event_id"]) == (1, "new", str(UUID(int=4)))
    assert details["display"] == {"number": "Number", "name": "Name", "email": "E-mail address"}
    assert (details["key_fields"], details["dest_default_fields"]) == (["number"], [])
    assert all(details[f"{kind}_data_names"] == {} for kind in ("source", "current", "dest", "out"))


@pytest.mark.parametrize("action", ["clear_item", "clear_items"])
def test_what_is_cleared_is_taken_as_if_it_had_come_right(bus: Bus, action: str) -> None:
    bus.send(ADA)
    bus.send({"number": 1, "name": "Ada Lovelace"}, GRACE)
    first, second, asked = bus.ask(
        clearing_of(1, action, email="ada@example.com"),
        clearing_of(2, action, email="grace@example.com"),
        details_of(1),
    )
    assert bus.rows("SELECT * FROM client ORDER BY number") == [
        (1, "Ada Lovelace", "ada@example.com"),
        (2, "Grace", "grace@example.com"),
    ]
    assert first == asked
    assert (first["state"], first["dest_data"]) == ("cleared", ADA)
    assert first["out_data"] == {"number": 1, "name": "Ada Lovelace", "email": "ada@example.com"}
    assert first["sent_date"] >= first["recv_date"]
    assert (second["state"], second["dest_data"]) == ("cleared", {})


def test_nothing_of_a_stopped_envelope_stays(bus: Bus) -> None:
    bus.send(GRACE)
    before = bus.rows("SELECT * FROM item")
    bus.send(ADA, {"number": 3}, end="rollback")
    assert bus.ask(clearing_of(1, email="grace@example.com"), end="rollback")[0]["state"] == "cleared"
    assert bus.rows("SELECT * FROM client") == []
    assert bus.rows("SELECT * FROM item") == before


def test_an_envelope_that_comes_again_changes_nothing(bus: Bus) -> None:
    sent, asked = bus.new_id(), bus.new_id()
    for _ in range(2):
        bus.send(GRACE, envelope_id=sent)
        bus.ask(clearing_of(1, email="grace@example.com"), envelope_id=asked)
    assert bus.rows("SELECT id, state FROM item") == [(1, "cleared")]
    assert bus.rows("SELECT count(*) FROM taken") == [(2,)]


REFUSED: dict[str, tuple[object, str]] = {
    "an unknown item": (details_of(99), "there is no item 99"),
    "an unknown item to clear": (clearing_of(99, email="a@b"), "there is no item 99"),
    "an unknown action": ({"action": "forget", "item_id": 1}, "'forget'.* is no request: get_item_details has an"),
    "no item": ({"action": "get_item_details"}, "is no request: get_item_details has an item_id"),
    "an item that is no number": ({"action": "get_item_details", "item_id": "1"}, "an item_id, a number"),
    "no values": ({"action": "clear_item", "item_id": 1}, "clear_item has values besides"),
    "no map": ("clear_item", "'clear_item' is no request"),
    "an unknown field": (clearing_of(1, emial="a@b"), "a client has no emial"),
    "nothing better": (clearing_of(1, email="nowhere"), "an e-mail address with an @"),
    "a name that is none": (clearing_of(1, email="a@b", name=[1]), "a name, and"),
    "an item that is cleared": (clearing_of(2, email="a@b"), "item 2 was cleared before"),
}


@pytest.mark.parametrize(("request_", "words"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_answered_is_refused_with_words(bus: Bus, request_: object, words: str) -> None:
    bus.send(GRACE, {"number": 3})
    bus.ask(clearing_of(2, email="three@example.com"))
    with pytest.raises(Refusal, match=words):
        bus.ask(request_)
    assert bus.rows("SELECT id, state FROM item") == [(1, "new"), (2, "cleared")]


@pytest.mark.parametrize("item", ["text", [1], None])
def test_what_is_no_map_is_refused(bus: Bus, item: object) -> None:
    with pytest.raises(Refusal, match="a client is a map"):
        bus.send(item)
