"""What a recipient tells the broker by itself: that it lives, and how far it is."""

import threading
from typing import Any

import pytest

from tests.integration.recipient.broker_double import BrokerDouble
from tests.integration.recipient.conftest import Serve
from tests.support.waiting import eventually
from xbus.errors import Refused
from xbus.recipient import Batch, Consumer, Event, Item


class Slow(Consumer):
    """Takes its time, as the test says."""

    def __init__(self) -> None:
        self.goes_on = threading.Semaphore(0)
        self.stopped = False

    def on_item(self, event: Event, item: Item) -> None:
        self.goes_on.acquire()

    def on_stop(self) -> None:
        self.stopped = True


class Pages(Slow):
    """Tells itself how far it is."""

    def on_batch(self, event: Event, batch: Batch) -> None:
        for page in range(1, 5):
            self.goes_on.acquire()
            event.progress(page, 4)


@pytest.fixture
def told(broker: BrokerDouble) -> BrokerDouble:
    """A broker that wants heartbeats."""
    broker.heartbeat_seconds = 0.02
    return broker


async def test_one_that_has_nothing_to_do_says_so(told: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Slow(), heartbeat_seconds=60)
    await eventually(lambda: told.work == [], "it tells of no work")


async def test_a_broker_that_wants_none_is_told_nothing(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Slow())
    await eventually(lambda: broker.calls.count("heartbeat") >= 2, "it asks whether it is known")
    assert broker.work is None


@pytest.mark.parametrize(("recipient", "of"), [(Slow, None), (Pages, 4)])
async def test_progress_is_told_while_the_author_works(
    recipient: type[Slow], of: int | None, told: BrokerDouble, serve_recipient: Serve
) -> None:
    author = recipient()
    await serve_recipient(author)
    await told.start_event("e1", "v1")
    sent = told.send("e1", "v1", 0, b"a", b"b", b"c", b"d")
    seen: list[dict[str, Any]] = []
    for done in range(1, 4):
        author.goes_on.release()
        await eventually(lambda: told.work and told.work[0].get("done") == done, f"{done} items are told")  # noqa: B023
        seen += told.work
    assert [(work["envelope_id"], work["event_id"], work["done"], work["of"]) for work in seen] == [
        ("e1", "v1", done, of) for done in range(1, 4)
    ]
    assert sorted({work["progress"] for work in seen}) == [work["progress"] for work in seen]
    author.goes_on.release()
    assert await sent == [True, None]
    await told.call("stop_envelope", "e1")
    await eventually(lambda: told.work == [], "nothing is under way")


async def test_the_counter_never_goes_back(told: BrokerDouble, serve_recipient: Serve) -> None:
    author = Slow()
    author.goes_on.release(100)
    await serve_recipient(author, stop_timeout=0.1)
    counters = []
    for number in range(3):
        await told.start_event(f"e{number}", "v1")
        await told.send(f"e{number}", "v1", 0, b"a", b"b")
        await eventually(lambda: told.work and told.work[0]["envelope_id"] == f"e{number}", "it tells of it")  # noqa: B023
        counters.append(told.work[0]["progress"])
        await told.call("end_envelope" if number % 2 else "stop_envelope", f"e{number}")
    assert sorted(counters) == counters
    assert len(set(counters)) == 3


async def test_one_whose_role_was_taken_by_another_ends(told: BrokerDouble, serve_recipient: Serve) -> None:
    author = Slow()
    served = await serve_recipient(author)
    told.faults["heartbeat"].append(Refused("another one has registered", "run one for each role", code="displaced"))
    with pytest.raises(Refused) as refused:
        await served.task
    assert refused.value.code == "displaced"
    assert author.stopped
    assert told.calls.count("login") == 1
