from collections.abc import Iterator
from pathlib import Path

import pytest

from xbus.errors import Refused
from xbus.recipient import Consumer, Event, Item, Refusal, Worker
from xbus.testing import Bus

BUS_FILE = Path(__file__).with_name("bus.toml")


class Capitals(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[dict[str, str]]:
        if name := item.value["name"]:
            yield {"name": name.upper()}


class Ledger(Consumer):
    def on_item(self, event: Event, item: Item) -> None:
        if "name" not in item.value:
            raise Refusal("a client without a name")


def test_names_arrive_in_capitals(bus: Bus) -> None:
    bus.type("clients").through("capitals").to("ledger")
    bus.serve(Capitals)

    bus.emit("clients", [{"name": "Ada"}, {"name": ""}, {"name": "Grace"}])
    bus.run()

    assert bus.received("ledger") == [{"name": "ADA"}, {"name": "GRACE"}]


def test_our_own_bus_file_leads_to_the_ledger() -> None:
    with Bus.from_file(BUS_FILE) as bus:
        bus.serve(Capitals)
        bus.emit("clients", [{"name": "Ada"}])
        bus.run()
        assert bus.received("ledger") == [{"name": "ADA"}]


def test_a_failure_is_tried_again(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    bus.fail("ledger", OSError("the disk is full"), times=2)

    bus.emit("clients", [{"name": "Ada"}])
    bus.run()

    assert bus.received("ledger") == [{"name": "Ada"}]
    assert bus.clock.monotonic() > 2  # seconds, none of which the test waited


def test_a_refusal_is_parked_until_somebody_resumes_it(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    bus.serve(Ledger)

    bus.emit("clients", [{"nom": "Ada"}])
    bus.run()

    (parked,) = bus.parked("ledger")
    assert "a client without a name" in parked.cause


def test_after_a_crash_the_same_envelope_comes_again(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    bus.crash("ledger", "after_commit")

    receipt = bus.emit("clients", [{"name": "Ada"}])
    bus.run()

    assert bus.commits("ledger") == [receipt.envelope_id, receipt.envelope_id]


def test_what_waits_for_a_stopped_recipient_comes_later(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    bus.stop("ledger")
    bus.emit("clients", [{"name": "Ada"}])
    bus.crash_broker()
    bus.run()
    assert bus.received("ledger") == []

    bus.start("ledger")
    bus.run()
    assert bus.received("ledger") == [{"name": "Ada"}]


def test_the_bus_refuses_what_nobody_described(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    with pytest.raises(Refused, match="invoices"):
        bus.emit("invoices", [])
