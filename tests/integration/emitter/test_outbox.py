"""The emitter with an outbox: what it queues comes to the bus in order, once, also if that is away meanwhile."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.integration.emitter.front_double import SILENCE, FrontDouble
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.emitter.outbox import Outbox, OutboxStatus
from xbus.errors import ConnectionLost, Failed, Refused

AWAY: dict[str, Any] = {"retry_seconds": 0.2, "outbox_seconds": 0.01}
"""Of an emitter whose front is away."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.outbox"


def emitter(front: FrontDouble, path: Path, **options: Any) -> AsyncEmitter:
    options = {"outbox_seconds": 60.0, **options}
    return AsyncEmitter(front.address, "test_emitter", "password", outbox=path, **options)


def status(path: Path) -> OutboxStatus:
    with looking(path) as outbox:
        return outbox.status()


@contextmanager
def looking(path: Path) -> Iterator[Outbox]:
    outbox = Outbox.existing(path)
    try:
        yield outbox
    finally:
        outbox.close()


def arrived(front: FrontDouble) -> list[bytes]:
    """The items of all sealed envelopes."""
    sealed = [envelope for envelope in front.envelopes.values() if envelope.state == "sealed"]
    return [item for envelope in sealed for event in envelope.events.values() for item in event.items]


async def queue(sender: AsyncEmitter, *items: bytes, **said: Any) -> None:
    async with sender.envelope(**said) as envelope, envelope.event("test_event") as event:
        for item in items:
            await event.send(item)
    assert envelope.queued


async def test_what_is_queued_arrives(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path) as sender:
        await queue(sender, b"a", b"b", key="17", ordering_key="7")
        receipt = await sender.put("test_event", [b"c"] * 3)
        assert (receipt.queued, receipt.position, receipt.events, receipt.items) == (True, 0, 1, 3)
    assert arrived(front) == [b"a", b"b", b"c", b"c", b"c"]
    first, second = (envelope.options for envelope in front.envelopes.values())
    assert first == {"key": "17", "ordering_key": "7"}
    assert second["key"]
    assert (status(path).waiting, status(path).trouble) == (0, None)


async def test_the_bus_may_be_away(front: FrontDouble, path: Path) -> None:
    front.stop()
    async with emitter(front, path, **AWAY) as sender:
        for number in range(3):
            await queue(sender, b"%d" % number)
    assert status(path).waiting == 3
    async with emitter(front, path, **AWAY) as sender:
        await queue(sender, b"3")
        await eventually(lambda: status(path).trouble is not None, "that nothing goes is noted")
    front.start()
    async with emitter(front, path) as sender:
        await queue(sender, b"4")
    assert arrived(front) == [b"0", b"1", b"2", b"3", b"4"]
    assert (status(path).waiting, status(path).trouble) == (0, None)


async def test_the_bus_may_come_back_while_it_runs(front: FrontDouble, path: Path) -> None:
    front.stop()
    async with emitter(front, path, **AWAY) as sender:
        await queue(sender, b"a")
        await eventually(lambda: status(path).trouble is not None, "the sender gave up once")
        front.start()
        await eventually(lambda: arrived(front) == [b"a"], "it tries again")


@pytest.mark.parametrize("verb", ["start_envelope", "start_event", "send_items", "end_event", "end_envelope"])
@pytest.mark.parametrize("fault", [SILENCE, ConnectionLost("cut")])
async def test_an_answer_that_does_not_come_makes_no_second_one(
    front: FrontDouble, path: Path, verb: str, fault: Any
) -> None:
    front.fail_next(verb, fault)
    async with emitter(front, path, answer_seconds=0.1, reply_seconds=0.1) as sender:
        await queue(sender, b"a")
        await queue(sender, b"b")
    assert arrived(front) == [b"a", b"b"]


async def test_what_the_bus_refuses_is_set_aside(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path) as sender:
        await sender.put("nonsense", [b"a"])
        await queue(sender, b"b")
    assert arrived(front) == [b"b"]
    (refused,) = status(path).refused
    assert (refused.code, refused.place) == ("unknown_type", 1)
    assert "no event type nonsense" in (refused.cause or "")


async def test_a_refused_login_is_no_fault_of_what_waits(front: FrontDouble, path: Path) -> None:
    async with AsyncEmitter(front.address, "test_emitter", "wrong", outbox=path, outbox_seconds=0.01) as sender:
        await queue(sender, b"a")
        await eventually(lambda: status(path).trouble is not None, "it is noted")
    assert (status(path).trouble or [""])[0] == "login_refused"
    assert (status(path).waiting, status(path).refused) == (1, [])


async def test_a_full_outbox_takes_nothing_and_keeps_no_half(front: FrontDouble, path: Path) -> None:
    front.stop()
    async with emitter(front, path, outbox_bytes=3000, **AWAY) as sender:
        await queue(sender, b"x" * 1000)
        with pytest.raises(Refused) as caught:
            await queue(sender, *[b"y" * 400] * 7)
        assert caught.value.code == "outbox_full"
        await queue(sender, b"z" * 500)
    assert status(path).waiting == 2
    front.start()
    async with emitter(front, path):
        pass
    assert arrived(front) == [b"x" * 1000, b"z" * 500]


async def test_an_exception_leaves_nothing(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path) as sender:
        with pytest.raises(KeyError):
            async with sender.envelope() as envelope, envelope.event("test_event") as event:
                await event.send(b"never seen")
                raise KeyError
    assert front.envelopes == {}
    assert status(path).waiting_bytes == 0


async def test_many_batches_and_events_come_whole(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path, batch_items=3) as sender:
        async with sender.envelope() as envelope:
            for number in range(2):
                async with envelope.event("test_event") as event:
                    for item in range(10):
                        await event.send(b"%d.%d" % (number, item))
    assert arrived(front) == [b"%d.%d" % (number, item) for number in range(2) for item in range(10)]


async def test_several_tasks_queue_side_by_side(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path) as sender:
        await asyncio.gather(*(queue(sender, b"%d" % number) for number in range(20)))
    assert sorted(arrived(front)) == sorted(b"%d" % number for number in range(20))


async def test_what_needs_an_answer_is_refused(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path) as sender:
        for call in (sender.ask("test_event"), sender.consumers(), sender.retry("x"), sender.replay("x")):
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.code == "outbox_only"


async def test_two_emitters_do_not_share_an_outbox(front: FrontDouble, path: Path) -> None:
    async with emitter(front, path):
        with pytest.raises(Refused) as caught:
            async with emitter(front, path):
                pytest.fail("it was opened twice")
    assert caught.value.code == "outbox_in_use"


@pytest.mark.parametrize("said", [{"key": "\ud800"}, {"ordering_key": "\ud800"}, {"type_name": "\ud800"}])
async def test_a_text_that_nobody_can_write_is_refused_at_once(
    front: FrontDouble, path: Path, said: dict[str, str]
) -> None:
    async with emitter(front, path) as sender:
        with pytest.raises(Refused) as caught:
            await sender.put(**{"type_name": "test_event", "items": [b"a"], **said})  # type: ignore[arg-type]
        assert caught.value.code == "wrong_arguments"
        await queue(sender, b"b")
    assert arrived(front) == [b"b"]


@pytest.mark.parametrize("damage", ["DELETE FROM batch WHERE first_index = 1", "UPDATE batch SET data = x'00'"])
async def test_a_damaged_envelope_is_set_aside_and_the_next_goes(front: FrontDouble, path: Path, damage: str) -> None:
    front.stop()
    async with emitter(front, path, batch_items=1, **AWAY) as sender:
        await queue(sender, b"a", b"b", b"c")
    file = sqlite3.connect(path, isolation_level=None)
    file.execute(damage)
    file.close()
    front.start()
    async with emitter(front, path) as sender:
        await queue(sender, b"next")
    assert arrived(front) == [b"next"]
    assert [refused.code for refused in status(path).refused] == ["outbox_broken"]


# -- many in one message ---------------------------------------------------------------------------------------------


async def fill(front: FrontDouble, path: Path, *types: str) -> None:
    """Queue an envelope of each of these event types, while the front is away."""
    front.stop()
    async with emitter(front, path, **AWAY) as sender:
        puts = [sender.put(name, [b"%d" % number], key=f"{number}") for number, name in enumerate(types)]
        receipts = await asyncio.gather(*puts)
    assert all(receipt.queued for receipt in receipts)
    front.start()


async def drain(front: FrontDouble, path: Path, **options: Any) -> None:
    async with emitter(front, path, **options):
        await eventually(lambda: status(path).waiting == 0, "all is sent")


async def test_the_small_ones_that_wait_go_in_one_message(front: FrontDouble, path: Path) -> None:
    await fill(front, path, *["test_event"] * 200)
    await drain(front, path)
    assert arrived(front) == [b"%d" % number for number in range(200)]
    assert front.groups == [200]


async def test_one_that_is_refused_is_set_aside_and_the_others_keep_their_order(front: FrontDouble, path: Path) -> None:
    await fill(front, path, "test_event", "nonsense", "test_event", "nonsense", "test_event")
    await drain(front, path)
    assert arrived(front) == [b"0", b"2", b"4"]
    assert [(each.key, each.code) for each in status(path).refused] == [("1", "unknown_type"), ("3", "unknown_type")]


async def test_none_passes_one_that_is_not_taken_now(front: FrontDouble, path: Path) -> None:
    await fill(front, path, *["test_event"] * 4)
    front.fail_next("put 2", *[Failed("paused", code="paused")] * 1000)
    async with emitter(front, path) as sender:
        await eventually(lambda: front.groups[-3:] == [1, 1, 1], "it goes alone, again and again")
        assert arrived(front) == [b"0", b"1"]
        front.faults["put 2"].clear()
        await sender.put("test_event", [b"4"])
        await eventually(lambda: status(path).waiting == 0, "all is sent")
    assert arrived(front) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("fault", [SILENCE, ConnectionLost("cut")])
async def test_a_message_without_an_answer_makes_no_second_ones(front: FrontDouble, path: Path, fault: Any) -> None:
    await fill(front, path, *["test_event"] * 3)
    front.fail_next("put_envelopes", fault)
    await drain(front, path, answer_seconds=0.1)
    assert arrived(front) == [b"0", b"1", b"2"]


async def test_a_message_that_is_refused_as_a_whole_goes_one_by_one(front: FrontDouble, path: Path) -> None:
    await fill(front, path, *["test_event"] * 3)
    front.fail_next("put_envelopes", Refused("no such message", code="wrong_arguments"))
    await drain(front, path)
    assert arrived(front) == [b"0", b"1", b"2"]


async def test_puts_at_the_same_time_are_queued_together_and_each_has_its_answer(
    front: FrontDouble, path: Path
) -> None:
    front.stop()
    async with emitter(front, path, outbox_bytes=2000, **AWAY) as sender:
        taken, wrong, large, last = await asyncio.gather(
            sender.put("test_event", [b"a"], headers={"shop": "Paris"}),
            sender.put("\ud800", [b"b"]),
            sender.put("test_event", [b"x" * 5000]),
            sender.put("test_event", [], key="order 1"),
            return_exceptions=True,
        )
    codes = [each.code if isinstance(each, Refused) else None for each in (taken, wrong, large, last)]
    assert codes == [None, "wrong_arguments", "outbox_full", None]
    assert not isinstance(last, BaseException)
    assert (last.queued, last.items) == (True, 0)
    assert status(path).waiting == 2


class Kind(Enum):
    """Names of event types, as a program may have them."""

    ORDER = "order"


NO_TEXTS = [7, None, Kind.ORDER, object(), b"order", 2**70]


@pytest.mark.parametrize("name", NO_TEXTS)
async def test_a_type_that_is_no_text_is_refused_and_those_beside_it_are_queued(
    front: FrontDouble, path: Path, name: Any
) -> None:
    front.stop()
    async with emitter(front, path, **AWAY) as sender:
        wrong, good = await asyncio.gather(
            sender.put(name, [b"a"]), sender.put("test_event", [b"b"]), return_exceptions=True
        )
        with pytest.raises(Refused) as refused:
            async with sender.envelope() as envelope, envelope.event(name):
                pass
    assert isinstance(wrong, Refused)
    assert wrong.code == refused.value.code == "wrong_arguments"
    assert not isinstance(good, BaseException)
    assert good.queued
    assert status(path).waiting == 1


@pytest.mark.parametrize("key", [7, Kind.ORDER, object(), b"order"])
@pytest.mark.parametrize("which", ["key", "ordering_key"])
async def test_a_key_that_is_no_text_is_refused_and_puts_beside_it_are_queued(
    front: FrontDouble, path: Path, which: str, key: Any
) -> None:
    front.stop()
    async with emitter(front, path, **AWAY) as sender:
        options: dict[str, Any] = {which: key}
        wrong, good = await asyncio.gather(
            sender.put("test_event", [b"a"], **options), sender.put("test_event", [b"b"]), return_exceptions=True
        )
    assert isinstance(wrong, Refused)
    assert wrong.code == "wrong_arguments"
    assert not isinstance(good, BaseException)
    assert status(path).waiting == 1
