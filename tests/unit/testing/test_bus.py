"""The bus for tests does what the real one does: graphs, retries, parking, order, crashes, and all of it at once."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documentation import CHECKOUT
from xbus.broker.front.front import Front
from xbus.config import BackSettings
from xbus.errors import ConfigurationError, Refused, TimedOut
from xbus.recipient import Consumer, Envelope, Event, Item, Refusal, Worker
from xbus.testing import Bus
from xbus.testing.plugin import bus as bus_fixture

bus = bus_fixture

BUS_FILE = CHECKOUT / "examples" / "testing" / "bus.toml"


class Capitals(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[dict[str, str]]:
        if name := item.value["name"]:
            yield {"name": name.upper()}


class AsyncCapitals(Worker):
    async def on_item(self, event: Event, item: Item) -> AsyncIterator[dict[str, str]]:
        await asyncio.sleep(30)
        yield {"name": item.value["name"].upper()}


class Ledger(Consumer):
    """Keeps names in a database, as a consumer of a user does."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.is_stopped = False

    def on_start(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE ledger (name TEXT)")
        self.database.commit()

    def on_item(self, event: Event, item: Item) -> None:
        if not item.value["name"]:
            raise Refusal("a name is empty")
        self.threads.add(threading.get_ident())
        self.database.execute("INSERT INTO ledger VALUES (?)", [item.value["name"]])

    def commit(self, envelope: Envelope) -> None:
        self.database.commit()

    def rollback(self, envelope: Envelope) -> None:
        self.database.rollback()

    def on_stop(self) -> None:
        self.names = [name for (name,) in self.database.execute("SELECT name FROM ledger")]
        self.database.close()
        self.is_stopped = True


def names(*found: str) -> list[dict[str, str]]:
    return [{"name": name} for name in found]


def test_an_envelope_of_one_event_takes_the_way_of_groups(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the SDK puts."""
    groups: list[list[Any]] = []
    put_group = Front.put_group

    def noted(front: Front, emitter_ids: Any, entries: Any) -> Any:
        sealing = put_group(front, emitter_ids, entries)
        groups.append(entries)
        return sealing

    monkeypatch.setattr(Front, "put_group", noted)
    bus.type("names").to("ledger")
    receipt = bus.emit("names", [1, 2], ordering_key="Ada", headers={"shop": "Paris"})
    assert bus.emit("names", [3], key="order 1") == bus.emit("names", [3], key="order 1")
    bus.emit_all([("names", [4]), ("names", [5])])
    assert [len(entries) for entries in groups] == [1, 1, 1]
    assert (receipt.position, receipt.events, receipt.items) == (1, 1, 2)
    with pytest.raises(Refused, match="nothing"):
        bus.emit("nothing", [1])


def test_items_take_every_way_of_the_graph(bus: Bus) -> None:
    orders = bus.type("orders").to("archive")
    orders.through("capitals").to("ledger", "archive")
    bus.serve(Capitals)

    bus.emit("orders", names("Ada", "", "Grace"))
    bus.run()

    assert bus.received("ledger") == names("ADA", "GRACE")
    assert bus.received("capitals") == names("Ada", "", "Grace")
    assert sorted(map(str, bus.received("archive"))) == sorted(map(str, names("Ada", "", "Grace", "ADA", "GRACE")))
    assert bus.parked() == []


@pytest.mark.parametrize("worker", [Capitals, AsyncCapitals])
def test_plain_and_asynchronous_recipients_are_served_alike(bus: Bus, worker: type[Worker]) -> None:
    bus.type("orders").through("capitals").to("ledger")
    bus.serve(worker, "capitals")

    bus.emit("orders", names("Ada", "Grace"))
    bus.run()

    assert bus.received("ledger") == names("ADA", "GRACE")


def test_asynchronous_code_waits_in_virtual_time(bus: Bus) -> None:
    bus.type("orders").through("capitals").to("ledger")
    bus.serve(AsyncCapitals, "capitals")

    bus.emit("orders", names("Ada"))
    bus.run()

    assert 30 < bus.clock.monotonic() < 60


def test_a_consumer_has_one_thread_and_its_end() -> None:
    ledger = Ledger()
    with Bus() as bus:
        bus.type("orders").to("ledger")
        bus.serve(ledger)
        for name in ("Ada", "Grace"):
            bus.emit("orders", names(name))
        bus.run()

    assert (ledger.names, len(ledger.threads), ledger.is_stopped) == (["Ada", "Grace"], 1, True)
    assert threading.get_ident() not in ledger.threads


def test_what_fails_is_tried_again_later(bus: Bus) -> None:
    bus.type("orders").to("ledger", "archive")
    bus.fail("ledger", times=3)

    bus.emit("orders", names("Ada"))
    bus.run()

    assert bus.received("ledger") == bus.received("archive") == names("Ada")
    assert bus.clock.monotonic() > 1 + 2 + 4 - 0.2 * 7
    assert bus.parked() == []


def test_after_the_last_attempt_it_is_parked_until_somebody_resumes_it() -> None:
    with Bus(back=BackSettings(attempts=2)) as bus:
        bus.type("orders").to("ledger")
        bus.fail("ledger", OSError("the disk is full"), times=2)
        receipt = bus.emit("orders", names("Ada"))
        bus.run()

        (parked,) = bus.parked("ledger")
        assert (str(parked.envelope_id), parked.attempts, parked.types) == (receipt.envelope_id, 2, ("orders",))
        assert "the disk is full" in parked.cause
        assert bus.received("ledger") == []

        bus.resume("ledger")
        bus.run()

        assert (bus.received("ledger"), bus.parked()) == (names("Ada"), [])


def test_a_refusal_of_the_author_parks_the_envelope_and_rolls_it_back() -> None:
    ledger = Ledger()
    with Bus() as bus:
        bus.type("orders").to("ledger", "archive")
        bus.serve(ledger)
        bus.emit("orders", names("Ada", "", "Grace"))
        bus.emit("orders", names("Edsger"))
        bus.run()

        assert {(parked.role, parked.code) for parked in bus.parked()} == {
            ("ledger", "refused"),
            ("archive", "refused"),
        }
        assert all(parked.cause.endswith("a name is empty") for parked in bus.parked())
        assert bus.received("archive") == names("Edsger")
    assert ledger.names == ["Edsger"]


def test_a_refusal_on_demand_of_one_item_parks_it_alone_where_the_type_says_so(bus: Bus) -> None:
    bus.type("orders", bad_items="isolate").to("ledger")
    bus.refuse("ledger", "no such account", [1])

    bus.emit("orders", names("Ada", "Grace"))
    bus.run()

    (parked,) = bus.parked()
    assert parked.parked_items == 1
    assert parked.cause.endswith("no such account")
    assert bus.received("ledger") == names("Ada")

    bus.resume()
    bus.run()
    assert bus.received("ledger") == names("Ada", "Grace")


@pytest.mark.parametrize(("when", "commits"), [("items", 1), ("before_commit", 1), ("after_commit", 2)])
def test_a_crash_lets_the_same_envelope_come_again(bus: Bus, when: str, commits: int) -> None:
    bus.type("orders").to("ledger")
    bus.crash("ledger", when)  # type: ignore[arg-type]

    receipt = bus.emit("orders", names("Ada"))
    bus.run()

    assert bus.commits("ledger") == [receipt.envelope_id] * commits
    assert bus.received("ledger") == names("Ada") * commits


def test_a_crash_ends_one_life_of_a_recipient_and_begins_another(bus: Bus, tmp_path: Path) -> None:
    lives: list[str] = []

    class Store(Ledger):
        def on_start(self) -> None:
            lives.append("begun")
            self.database = sqlite3.connect(tmp_path / "store.db", timeout=0)
            self.database.execute("CREATE TABLE IF NOT EXISTS ledger (name TEXT)")
            self.database.commit()

    bus.type("orders").to("store")
    bus.serve(Store)
    bus.crash("store", "before_commit")
    bus.emit("orders", names("Ada"))
    bus.run()
    bus.close()

    assert lives == ["begun", "begun"]
    with sqlite3.connect(tmp_path / "store.db") as database:
        assert database.execute("SELECT name FROM ledger").fetchall() == [("Ada",)]
    database.close()


def test_a_crash_of_the_broker_loses_nothing(bus: Bus) -> None:
    bus.type("orders").through("capitals").to("ledger")
    bus.serve(Capitals)
    bus.emit("orders", names("Ada"))
    bus.crash_broker()
    bus.emit("orders", names("Grace"))
    bus.wait(0.001)
    bus.crash_broker()
    bus.run()

    assert bus.received("ledger") == names("ADA", "GRACE")


def test_what_comes_for_a_stopped_recipient_waits(bus: Bus) -> None:
    bus.type("orders").through("capitals").to("ledger")
    bus.serve(Capitals)
    bus.stop("ledger")
    bus.emit("orders", names("Ada"))
    bus.run()
    assert bus.received("ledger") == []

    bus.start("ledger")
    bus.stop("capitals")
    bus.run()
    assert bus.received("ledger") == []

    bus.start("capitals")
    bus.run()
    assert bus.received("ledger") == names("ADA")


def test_a_worker_that_nobody_serves_is_named(bus: Bus) -> None:
    bus.type("orders").through("capitals").to("ledger")
    bus.emit("orders", names("Ada"))

    with pytest.raises(TimedOut, match=r"ledger lacks envelope 1.*serve a recipient for capitals") as raised:
        bus.run()
    assert raised.value.code == "not_delivered"


def test_what_never_succeeds_ends_the_patience() -> None:
    with Bus(back=BackSettings(attempts=100, longest_delay=10)) as bus:
        bus.type("orders").to("ledger")
        bus.fail("ledger", times=100)
        bus.emit("orders", names("Ada"))
        with pytest.raises(TimedOut, match="the test has it fail"):
            bus.run(60)


class Greeter(Consumer):
    immediate_reply = ("wishes",)

    def on_event_start(self, event: Event) -> None:
        event.state["wishes"] = []

    def on_item(self, event: Event, item: Item) -> None:
        event.state["wishes"].append(item.value)

    def on_event_end(self, event: Event) -> object:
        return {"granted": event.state["wishes"]}


def test_an_immediate_reply_is_the_answer(bus: Bus) -> None:
    bus.type("wishes", immediate_reply=True).to("greeter")
    bus.serve(Greeter)

    assert bus.ask("wishes", ["rain"]) == {"granted": ["rain"]}


def test_a_key_sends_once_and_a_refusal_has_its_code(bus: Bus) -> None:
    bus.type("orders").to("ledger")
    receipts = [bus.emit("orders", names("Ada"), key="order 17") for _ in range(2)]
    bus.run()

    assert receipts[0] == receipts[1]
    assert bus.received("ledger") == names("Ada")
    with pytest.raises(Refused) as raised:
        bus.emit("bills", [])
    assert raised.value.code == "unknown_type"


@pytest.mark.parametrize("item", [{"name": "Ada"}, "Ada", b"Ada"])
def test_one_item_in_the_place_of_several_is_refused(bus: Bus, item: Any) -> None:
    bus.type("orders").to("ledger")
    with pytest.raises(Refused) as raised:
        bus.emit("orders", item)
    assert raised.value.code == "bad_items"


def test_what_the_test_describes_later_is_there_at_once(bus: Bus) -> None:
    bus.type("orders").to("ledger")
    bus.emit("orders", names("Ada"))
    bus.run()

    bus.type("wishes").through("capitals").to("wish_list")
    bus.serve(Capitals)
    bus.emit("wishes", names("Grace"))
    bus.run()

    assert bus.received("wish_list") == names("GRACE")


def test_several_events_travel_in_one_envelope(bus: Bus) -> None:
    bus.type("clients").to("ledger")
    bus.type("orders").to("ledger")
    receipt = bus.emit_all([("clients", names("Ada")), ("orders", [17, b"\xc1"])])
    bus.run()

    assert (receipt.events, receipt.items) == (2, 3)
    assert bus.received("ledger", "orders") == [17, b"\xc1"]
    assert bus.commits("ledger") == [receipt.envelope_id]


def test_an_ordered_role_gets_a_key_in_order(bus: Bus) -> None:
    bus.type("orders").to("ledger", ordered=True)
    bus.fail("ledger", times=2)
    for number in range(4):
        bus.emit("orders", [number], ordering_key="ada")
    bus.run()

    assert bus.received("ledger") == [0, 1, 2, 3]


def test_what_is_held_behind_a_parked_envelope_does_not_keep_a_run_waiting(bus: Bus) -> None:
    bus.type("orders").to("ledger", ordered=True)
    bus.refuse("ledger", "never")
    for number in range(3):
        bus.emit("orders", [number], ordering_key="ada")
    bus.run()
    assert (bus.received("ledger"), len(bus.parked())) == ([], 1)

    bus.resume()
    bus.run()
    assert bus.received("ledger") == [0, 1, 2]


async def test_an_asynchronous_test_may_use_it_too(bus: Bus) -> None:
    bus.type("orders").to("ledger")
    bus.emit("orders", [1])
    bus.run()
    assert bus.received("ledger") == [1]


def test_a_recipient_that_can_not_start_fails_the_test(bus: Bus) -> None:
    class Broken(Consumer):
        def on_start(self) -> None:
            raise OSError("no database")

    bus.type("orders").to("broken")
    bus.serve(Broken)
    with pytest.raises(OSError, match="no database"):
        bus.wait(1)


def test_code_that_needs_a_socket_is_told_so(bus: Bus) -> None:
    class Remote(Consumer):
        async def on_item(self, event: Event, item: Item) -> None:
            await asyncio.open_connection("127.0.0.1", 9)

    bus.type("orders").to("remote")
    bus.serve(Remote)
    bus.emit("orders", [1])
    bus.run()

    assert "virtual time has no sockets" in bus.parked()[0].cause


def test_a_bus_file_describes_it() -> None:
    with Bus.from_file(BUS_FILE) as bus:
        bus.serve(Capitals)
        bus.emit("clients", names("Ada"))
        bus.run()
        assert bus.received("ledger") == names("ADA")


def test_a_faulty_bus_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text('[[role]]\nlogin = "ledger_1"\nservice = "ledger"\n')
    with pytest.raises(ConfigurationError, match=r"bus\.toml:\d: .*ledger"):
        Bus.from_file(path)


def test_a_faulty_graph_is_refused(bus: Bus) -> None:
    bus.type("orders").through("capitals")
    with pytest.raises(ConfigurationError, match="correct the graph"):
        bus.emit("orders", [])


def test_an_unknown_service_is_refused_with_those_that_there_are(bus: Bus) -> None:
    bus.type("orders").to("ledger")
    for call in (lambda: bus.serve(Capitals), lambda: bus.received("legder"), lambda: bus.crash("legder")):
        with pytest.raises(Refused, match="ledger") as raised:
            call()
        assert raised.value.code == "unknown_service"


def test_the_same_test_takes_the_same_virtual_time() -> None:
    def run() -> tuple[float, list[str]]:
        with Bus() as bus:
            bus.type("orders").through("capitals").to("ledger", "archive")
            bus.serve(AsyncCapitals, "capitals")
            bus.fail("ledger")
            bus.crash("archive")
            for name in ("Ada", "Grace"):
                bus.emit("orders", names(name))
            bus.run()
            return bus.clock.monotonic(), bus.commits("archive")

    assert run() == run()


@pytest.mark.no_cover
def test_without_the_broker_s_packages_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['sqlalchemy'] = None; from xbus.testing import Bus"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "sqlalchemy" in ended.stderr
    assert "pip install 'xbusd[broker]'" in ended.stderr


def test_headers(bus: Bus) -> None:
    """What is sent with them comes with them, behind a worker too."""
    seen: list[tuple[object, ...]] = []

    class Notes(Consumer):
        name = "ledger"
        immediate_reply = ("question",)

        def on_event_start(self, event: Event) -> None:
            seen.append((dict(event.envelope.headers), dict(event.headers), event.partition_key))

        def on_event_end(self, event: Event) -> object:
            return event.headers.get("mine")

    bus.type("names").through("capitals").to("ledger")
    bus.type("question", immediate_reply=True).to("ledger")
    bus.serve(Capitals)
    bus.serve(Notes)
    bus.emit("names", [{"name": "Ada"}], headers={"mine": 7}, partition_key="client 7")
    bus.emit_all([("names", [{"name": "Ada"}])] * 2, headers={"mine": 8})
    bus.emit("names", [{"name": "Ada"}])
    assert bus.ask("question", [1], headers={"mine": 9}) == 9
    bus.run()
    assert sorted(seen, key=str) == sorted(
        [
            ({"mine": 7}, {"mine": 7}, "client 7"),
            *[({"mine": n}, {"mine": n}, None) for n in (8, 8, 9)],
            ({}, {}, None),
        ],
        key=str,
    )
    with pytest.raises(Refused, match="header traceparent"):
        bus.emit("names", [], headers={"traceparent": "x"})
