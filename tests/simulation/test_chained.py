"""Nodes that emit, in virtual time: the broker is killed at any moment, and each envelope is made once."""

import random
from collections.abc import Iterator

import pytest

from xbus.recipient import Consumer, Envelope, Event, Item, Out, Worker
from xbus.testing import Bus

KILLS = 6
LARGE = 300
"""Items of an envelope that goes to the journal in parts, of 500 bytes each."""

BUS = """
[[event_type]]
name = "orders"
[[event_type.node]]
name = "split"
service = "splitter"
to = ["priced", "store"]
emits = "refunds"
[[event_type.node]]
name = "priced"
emits = "orders_priced"
[[event_type.node]]
name = "store"
service = "store"
[[event_type]]
name = "orders_priced"
[[event_type.node]]
name = "billing"
service = "billing"
[[event_type.node]]
name = "again"
emits = "bills"
[[event_type]]
name = "bills"
[[event_type.node]]
name = "archive"
service = "archive"
[[event_type]]
name = "refunds"
[[event_type.node]]
name = "refunds"
service = "refunds"
[[service]]
name = "splitter"
kind = "worker"
[[emitter_profile]]
name = "shop"
event_types = ["orders"]
[[emitter]]
login = "shop"
profile = "shop"
[[role]]
login = "splitter"
service = "splitter"
"""
CONSUMERS = ("store", "billing", "archive", "refunds")


class Splitter(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        if item.value["amount"] < 0:
            yield Out("refunds", item.value)
        else:
            yield {**item.value, "price": 2 * item.value["amount"]}


class Keeps(Consumer):
    """Keeps what it committed by envelope, and the correlation id of each."""

    def __init__(self) -> None:
        self.committed: dict[str, list[object]] = {}
        self.chains: dict[str, object] = {}

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("items", [])
        event.envelope.state["chain"] = event.envelope.headers.get("correlation_id")

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["items"].append(item.value)

    def commit(self, envelope: Envelope) -> None:
        self.committed[envelope.id] = envelope.state["items"]
        self.chains[envelope.id] = envelope.state["chain"]


@pytest.fixture
def bus(tmp_path: object) -> Iterator[tuple[Bus, dict[str, Keeps]]]:
    services = "".join(
        f'[[service]]\nname = "{name}"\nkind = "consumer"\n[[role]]\nlogin = "{name}"\nservice = "{name}"\n'
        for name in CONSUMERS
    )
    path = tmp_path / "bus.toml"  # type: ignore[operator]
    path.write_text(BUS + services)
    with Bus.from_file(path) as bus:
        keeps = {name: Keeps() for name in CONSUMERS}
        bus.serve(Splitter, "splitter")
        for name, consumer in keeps.items():
            bus.serve(consumer, name)
        yield bus, keeps


@pytest.mark.parametrize("seed", range(8))
def test_each_envelope_is_made_once_whenever_the_broker_is_killed(bus: tuple[Bus, dict[str, Keeps]], seed: int) -> None:
    choices = random.Random(seed)
    running, keeps = bus
    sent: dict[str, list[int]] = {}
    for number in range(KILLS):
        size = LARGE if choices.random() < 0.4 else 3
        amounts = [choices.choice((-1, 1, 1)) * (1000 * number + each + 1) for each in range(size)]
        receipt = running.emit("orders", [{"amount": amount, "text": "x" * 500} for amount in amounts])
        sent[receipt.envelope_id] = amounts
        running.wait(choices.choice((0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3)))
        if choices.random() < 0.3:
            running.crash("splitter", choices.choice(("before_commit", "after_commit")))
        running.crash_broker()
    running.run()

    assert not running.parked()
    wanted = {name: [amount for amount in amounts if amount > 0] for name, amounts in sent.items()}
    refunds = {name: [amount for amount in amounts if amount < 0] for name, amounts in sent.items()}
    for service, contents in (("billing", wanted), ("archive", wanted), ("refunds", refunds)):
        found = {
            str(keeps[service].chains[envelope_id]): [item["amount"] for item in items]  # type: ignore[index]
            for envelope_id, items in keeps[service].committed.items()
        }
        assert len(found) == len(keeps[service].committed), "made twice"
        assert found == {name: amounts for name, amounts in contents.items() if amounts}
