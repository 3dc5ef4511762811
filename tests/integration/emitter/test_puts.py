"""Whole envelopes of an emitter share messages; each has its own receipt or error."""

import asyncio
from typing import Any

import pytest

from tests.integration.emitter.front_double import SILENCE, FrontDouble
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.emitter.puts import MESSAGES_OUT
from xbus.errors import Failed, Refused, TimedOut


def emitter(front: FrontDouble, **options: Any) -> AsyncEmitter:
    return AsyncEmitter(front.address, "test_emitter", "password", **options)


async def messages_out(front: FrontDouble, number: int) -> None:
    await eventually(lambda: sum(front.groups) == number, "the messages are out")


async def test_those_of_a_turn_share_a_message(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        receipts = await asyncio.gather(*(sender.put("test_event", [b"%d" % number]) for number in range(100)))
    assert front.groups == [100]
    assert [receipt.position for receipt in receipts] == [*range(1, 101)]
    assert [front.envelopes[receipt.envelope_id].state for receipt in receipts] == ["sealed"] * 100


async def test_those_made_while_messages_are_out_share_the_next(front: FrontDouble) -> None:
    answer = asyncio.get_running_loop().create_future()
    front.fail_next("put_envelopes", answer, answer)
    async with emitter(front) as sender:
        puts = []
        for number in range(6):
            puts.append(asyncio.create_task(sender.put("test_event", [b"x"])))
            await messages_out(front, min(number + 1, 2))
        answer.set_result(None)
        await asyncio.gather(*puts)
    assert front.groups == [1, 1, 4]


async def test_keys_and_empty_envelopes_go_along(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        first, empty, again = await asyncio.gather(
            sender.put("test_event", [b"a"], key="order 1", headers={"shop": "Paris"}, ordering_key="Ada"),
            sender.put("test_event", []),
            sender.put("test_event", [b"a"], key="order 1"),
        )
    assert front.groups == [3]
    assert first == again
    assert empty.items == 0


async def test_one_that_is_refused_leaves_the_others(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        front.fail_next("put None", Refused("no such type", "add it", code="unknown_type"))
        refused, taken = await asyncio.gather(
            sender.put("test_event", [b"a"]), sender.put("test_event", [b"b"]), return_exceptions=True
        )
    assert isinstance(refused, Refused)
    assert (refused.code, refused.cause, refused.next_step) == ("unknown_type", "no such type", "add it")
    assert not isinstance(taken, BaseException)
    assert front.calls == ["login", "put_envelopes", "logout"]


async def test_one_that_can_not_be_taken_now_goes_again_as_a_message_of_one(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        front.fail_next("put None", *[Failed("paused", code="paused"), None] * 2)
        alone, taken = await asyncio.gather(sender.put("test_event", [b"a"]), sender.put("test_event", [b"b"]))
    assert front.groups == [2, 1, 1]
    assert (alone.position, taken.position) == (2, 1)


@pytest.mark.parametrize("key", [None, "order 1"])
async def test_while_one_is_not_taken_the_others_go(front: FrontDouble, key: str | None) -> None:
    front.fail_next(f"put {key}", *[Failed("paused", code="paused")] * MESSAGES_OUT)
    held = asyncio.get_running_loop().create_future()
    front.fail_next("put_envelopes", None, *[held] * MESSAGES_OUT)
    async with emitter(front) as sender:
        paused = [asyncio.create_task(sender.put("test_event", [b"a"], key=key)) for _ in range(MESSAGES_OUT)]
        await eventually(lambda: len(front.groups) == 1 + MESSAGES_OUT, "each is out by itself")
        assert (await sender.put("test_event", [b"b"], key="order 2")).items == 1
        assert not any(put.done() for put in paused)
        held.set_result(None)
        assert {receipt.items for receipt in await asyncio.gather(*paused)} == {1}
    assert "start_envelope" not in front.calls


async def test_its_failure_is_raised_when_the_emitter_has_insisted(front: FrontDouble) -> None:
    front.fail_next("put None", *[Failed("no room", "wait", code="journal_full")] * 1000)
    async with emitter(front, retry_seconds=0.3) as sender:
        with pytest.raises(Failed, match=r"no room, and each try within 0[.]3 s failed") as failed:
            await sender.put("test_event", [b"a"])
        assert (failed.value.code, failed.value.next_step) == ("journal_full", "wait")
    assert len(front.groups) > 1
    assert {*front.groups} == {1}


@pytest.mark.parametrize("retry_seconds", [0, 30])
async def test_one_that_has_to_wait_longer_than_the_emitter_insists_fails_at_once(
    front: FrontDouble, retry_seconds: float
) -> None:
    front.fail_next("put None", Failed("too many", code="slow_down", details={"seconds": 60}))
    async with emitter(front, retry_seconds=retry_seconds) as sender:
        with pytest.raises(Failed, match="too many") as failed:
            await sender.put("test_event", [b"a"])
    assert (failed.value.code, failed.value.details, front.groups) == ("slow_down", {"seconds": 60}, [1])


async def test_one_that_is_refused_when_it_goes_again_is_refused(front: FrontDouble) -> None:
    front.fail_next("put None", Failed("paused", code="paused"), Refused("no such type", code="unknown_type"))
    async with emitter(front) as sender:
        with pytest.raises(Refused, match="no such type"):
            await sender.put("test_event", [b"a"])
    assert front.groups == [1, 1]


async def test_one_that_is_given_up_while_it_is_not_taken_is_not_sent_again(front: FrontDouble) -> None:
    front.fail_next("put order 1", *[Failed("paused", code="paused")] * 1000)
    async with emitter(front) as sender:
        other = asyncio.create_task(sender.put("test_event", [b"a"]))
        with pytest.raises(Failed, match=r"paused, and the 0[.]15 s of `timeout` are over") as failed:
            await sender.put("test_event", [b"b"], key="order 1", timeout=0.15)
        assert failed.value.code == "paused"
        sent = len(front.groups)
        assert sent > 1
        assert (await other).items == 1
        await asyncio.sleep(0.3)
        assert len(front.groups) == sent


async def test_what_is_refused_under_a_key_is_sent_by_single_calls(front: FrontDouble) -> None:
    """They cancel what somebody else began under it, so that the key is free."""
    async with emitter(front) as sender:
        front.fail_next("put order 1", Refused("other content is open", code="content_differs"))
        receipt = await sender.put("test_event", [b"a"], key="order 1")
    assert receipt.items == 1
    assert front.calls[1:3] == ["put_envelopes", "start_envelope"]


async def test_an_unanswered_message_is_repeated_as_it_was(front: FrontDouble) -> None:
    front.fail_next("put_envelopes", SILENCE)
    async with emitter(front, answer_seconds=0.2) as sender:
        receipts = await asyncio.gather(*(sender.put("test_event", [b"%d" % number]) for number in range(3)))
    assert front.groups == [3, 3]
    assert len(front.envelopes) == 3
    assert [receipt.position for receipt in receipts] == [1, 2, 3]


async def test_a_put_that_is_given_up_leaves_the_others(front: FrontDouble) -> None:
    answer = asyncio.get_running_loop().create_future()
    front.fail_next("put_envelopes", answer)
    async with emitter(front) as sender:
        patient = asyncio.create_task(sender.put("test_event", [b"a"]))
        with pytest.raises(TimedOut):
            await sender.put("test_event", [b"b"], timeout=0.05)
        answer.set_result(None)
        assert (await patient).items == 1


async def test_an_older_front_gets_single_calls(front: FrontDouble) -> None:
    del front.limits["groups"]
    async with emitter(front) as sender:
        receipt = await sender.put("test_event", [b"a"])
    assert receipt.items == 1
    verbs = ["start_envelope", "start_event", "send_items", "end_event", "end_envelope"]
    assert front.calls == ["login", *verbs, "logout"]


async def test_what_waits_at_the_end_of_the_emitter_is_told(front: FrontDouble) -> None:
    front.fail_next("put_envelopes", SILENCE, SILENCE)
    async with emitter(front) as sender:
        puts = []
        for number in range(3):
            puts.append(asyncio.create_task(sender.put("test_event", [b"x"])))
            await messages_out(front, min(number + 1, 2))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [result.code for result in results if isinstance(result, Refused)] == ["not_open"] * 3
