"""The blocking emitter against a front double: the same core, entered from ordinary threads."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from tests.integration.emitter.front_double import FrontDouble, retried_id
from tests.support.waiting import wait_until
from xbus.emitter import Emitter, Receipt
from xbus.errors import Failed, Refused
from xbus.rpc.codec import Value


def emitter(front: FrontDouble, **options: Any) -> Emitter:
    return Emitter(front.address, "test_emitter", "password", **options)


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run blocking work while the double serves in this loop."""
    return await asyncio.to_thread(work)


def send(front: FrontDouble, items: list[bytes], **options: Any) -> Receipt:
    with emitter(front, **options) as sender:
        with sender.envelope() as envelope, envelope.event("test_event") as event:
            for item in items:
                event.send(item)
        return envelope.receipt


async def test_an_envelope_arrives_as_sent(front: FrontDouble) -> None:
    items = [str(number).encode() for number in range(5000)]
    receipt = await in_thread(lambda: send(front, items))
    (event,) = front.only().events.values()
    assert event.items == items
    assert receipt.items == 5000
    assert max(front.batches) <= 1000


async def test_put_and_reply_and_flush(front: FrontDouble) -> None:
    def work() -> tuple[int, Value]:
        with emitter(front, linger_seconds=60) as sender:
            receipt = sender.put("test_event", [{"a": 1}, b"b"])
            with sender.envelope() as envelope:
                with envelope.event("test_event") as event:
                    event.send(b"x")
                    event.flush()
                assert envelope.id
                assert event.id
                return receipt.items, event.reply()

    assert await in_thread(work) == (2, "reply to 1")


async def test_a_question_is_answered_or_refused(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front) as sender:
            assert sender.ask("test_event", {"a": 1}) == "reply to 1"
            front.fail_next("end_event", Refused("there is no a", code="reply_refused"))
            with pytest.raises(Refused, match="there is no a"):
                sender.ask("test_event", {"a": 1})

    await in_thread(work)
    assert sorted(envelope.state for envelope in front.envelopes.values()) == ["cancelled", "sealed"]


async def test_a_waiting_item_goes_by_itself(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front, linger_seconds=0.01) as sender, sender.envelope() as envelope:
            with envelope.event("test_event") as event:
                event.send(b"x")
                wait_until(lambda: front.batches == [1], "it is sent")

    await in_thread(work)


async def test_lingering_and_full_batches_keep_the_order(front: FrontDouble) -> None:
    items = [str(number).encode() for number in range(20_000)]
    await in_thread(lambda: send(front, items, linger_seconds=0.0001, batch_items=50))
    (event,) = front.only().events.values()
    assert event.items == items


async def test_many_items_are_sent_while_they_are_made(front: FrontDouble) -> None:
    made = 0

    def items() -> Iterator[bytes]:
        nonlocal made
        for made in range(1, 5001):
            yield str(made).encode()

    def work() -> Receipt:
        with emitter(front, linger_seconds=60) as sender:
            with sender.envelope() as envelope, envelope.event("test_event") as event:
                event.send(b"0")
                given = items()
                event.send_all(islice(given, 1500))
                wait_until(lambda: sum(front.batches) == 1000, "a full batch is sent")
                assert made == 1500
                event.send_all(given)
            return envelope.receipt

    receipt = await in_thread(work)
    (event,) = front.only().events.values()
    assert event.items == [str(number).encode() for number in range(5001)]
    assert receipt.items == 5001


async def test_one_item_is_no_list_of_items(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front) as sender, sender.envelope() as envelope, envelope.event("test_event") as event:
            for item in ({"a": 1}, "text", b"bytes"):
                with pytest.raises(Refused) as refused:
                    event.send_all(item)
                assert refused.value.code == "bad_items"

    await in_thread(work)
    (event,) = front.only().events.values()
    assert event.items == []


async def test_nothing_is_sent_outside_of_the_block(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front) as sender, sender.envelope() as envelope:
            event = envelope.event("test_event")
            sends: list[Callable[[object], None]] = [event.send, lambda item: event.send_all([item])]
            with event:
                sends.append(event.send)
            sends.append(event.send)
            for send in sends:
                with pytest.raises(Refused) as refused:
                    send(b"late")
                assert refused.value.code == "event_closed"

    await in_thread(work)
    (event,) = front.only().events.values()
    assert event.items == []


async def test_a_lost_connection_is_survived(front: FrontDouble) -> None:
    front.after["send_items"] = front.restart
    receipt = await in_thread(lambda: send(front, [b"x"] * 100, batch_items=10))
    assert receipt.items == 100
    assert front.logins == 2


async def test_an_exception_cancels_and_comes_out(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front) as sender:
            with pytest.raises(KeyError):
                with sender.envelope() as envelope, envelope.event("test_event"):
                    raise KeyError
            with pytest.raises(Refused, match="no event type"):
                with sender.envelope() as envelope, envelope.event("no_such_event"):
                    pass

    await in_thread(work)
    assert {envelope.state for envelope in front.envelopes.values()} == {"cancelled"}


async def test_threads_send_envelopes_of_their_own(front: FrontDouble) -> None:
    def work() -> None:
        with emitter(front) as sender:
            threads = [threading.Thread(target=sender.put, args=("test_event", [b"x"] * 10)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await in_thread(work)
    assert len(front.envelopes) == 8


async def test_what_can_not_be_opened_leaves_no_thread_behind(front: FrontDouble) -> None:
    def work() -> None:
        with pytest.raises(Refused, match="wrong"), Emitter(front.address, "test_emitter", "wrong"):
            pass
        with pytest.raises(Failed), emitter(front, retry_seconds=0.1, answer_seconds=0.1):
            pass
        with pytest.raises(Refused, match="not open"):
            emitter(front).envelope()

    front.fail_next("login", None, *[Failed("not now")] * 100)
    await in_thread(work)
    assert "xbus emitter" not in {thread.name for thread in threading.enumerate()}


async def test_envelopes_come_again(front: FrontDouble) -> None:
    def work() -> tuple[str, str, int]:
        with emitter(front) as sender:
            receipt = sender.put("test_event", [b"one"])
            front.failed.update(front.only().events)
            return sender.retry(*front.failed), sender.replay(receipt.envelope_id), len(sender.consumers())

    assert await in_thread(work) == (retried_id(*front.failed), *front.replays, 1)
