"""Nodes that emit on the bus for tests: what arrives, what is parked, and what waits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentation import CHECKOUT
from xbus.recipient import Consumer, Event, Item, Out, Worker
from xbus.testing import Bus

BUS_FILE = CHECKOUT / "examples" / "chaining" / "bus.toml"

WITH_AUDITOR = """
[[event_type.node]]
name = "look"
service = "auditor"
[[service]]
name = "auditor"
kind = "consumer"
[[role]]
login = "auditor"
service = "auditor"
"""


class Splitter(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        yield Out(item.value["as"], item.value["number"]) if "as" in item.value else item.value["number"]


class Billing(Consumer):
    told: list[tuple[object, ...]]

    def __init__(self) -> None:
        self.told = []

    def on_event_start(self, event: Event) -> None:
        envelope = event.envelope
        self.told.append((envelope.emitter, envelope.ordering_key, envelope.headers["shard"], event.partition_key))


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.from_file(BUS_FILE) as bus:
        bus.serve(Splitter)
        yield bus


def test_items_go_where_their_worker_says(bus: Bus) -> None:
    bus.emit("orders", [{"number": 1}, {"number": 2, "as": "refunds"}, {"number": 3, "as": "orders_priced"}])
    bus.run()

    assert bus.received("billing") == [1, 3]
    assert bus.received("complaints") == [2]


def test_a_sketch_may_emit() -> None:
    with Bus() as bus:
        bus.type("orders").through("splitter", outs=["refunds"]).to("store").emits("priced")
        bus.type("priced").to("billing")
        bus.type("refunds").to("complaints")
        bus.serve(Splitter)
        bus.emit("orders", [{"number": 1}, {"number": 2, "as": "refunds"}])
        bus.run()
        assert (bus.received("store"), bus.received("billing"), bus.received("complaints")) == ([1], [1], [2])


def test_headers_and_keys_go_along(bus: Bus) -> None:
    billing = Billing()
    bus.serve(billing)
    bus.emit("orders", [{"number": 1}], ordering_key="a", partition_key="client 7", headers={"shard": 7})
    bus.run()

    assert billing.told == [("orders/priced", "a", 7, "client 7")]


def test_a_type_that_the_node_does_not_emit_parks_the_envelope_for_all(bus: Bus) -> None:
    bus.emit("orders", [{"number": 1}, {"number": 2, "as": "orders"}])
    bus.run()

    assert {(each.role, each.code) for each in bus.parked()} == {
        ("orders/priced", "no_way"),
        ("orders/split/refunds", "no_way"),
    }
    assert (bus.received("billing"), bus.received("complaints")) == ([], [])

    class Mended(Worker):
        def on_item(self, event: Event, item: Item) -> object:
            return item.value["number"]

    bus.serve(Mended, "splitter")
    bus.resume()
    bus.run()
    assert bus.received("billing") == [1, 2]


def test_nothing_is_emitted_of_what_another_consumer_refuses(tmp_path: Path) -> None:
    text = BUS_FILE.read_text().replace('to = ["priced"]', 'to = ["priced", "look"]')
    first, second, rest = text.partition('[[event_type]]\nname = "orders_priced"')
    parts = WITH_AUDITOR.split("[[service]]", 1)
    (tmp_path / "bus.toml").write_text(f"{first}{parts[0]}{second}{rest}[[service]]{parts[1]}")
    with Bus.from_file(tmp_path / "bus.toml") as bus:
        bus.serve(Splitter)
        bus.refuse("auditor", "never")
        bus.emit("orders", [{"number": 1}])
        bus.run()
        assert bus.received("billing") == []
        assert "orders/priced" in {each.role for each in bus.parked()}

        bus.resume()
        bus.run()
        assert (bus.received("billing"), bus.received("auditor")) == ([1], [1])


def test_what_came_while_the_worker_was_away_is_emitted_later(bus: Bus) -> None:
    bus.stop("splitter")
    for number in range(20):
        bus.emit("orders", [{"number": number}])
    bus.crash_broker()
    bus.start("splitter")
    bus.run()

    assert bus.received("billing") == list(range(20))
