"""Whole envelopes of an emitter share messages; each has its own receipt or error."""

import asyncio
from typing import Any

import pytest

from tests.integration.emitter.front_double import SILENCE, FrontDouble
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Failed, Refused, TimedOut


@pytest.fixture
def groups(front: FrontDouble) -> FrontDouble:
    """A front that takes groups."""
    front.limits["groups"] = True
    return front


def emitter(front: FrontDouble, **options: Any) -> AsyncEmitter:
    return AsyncEmitter(front.address, "test_emitter", "password", **options)


async def messages_out(front: FrontDouble, number: int) -> None:
    await eventually(lambda: sum(front.groups) == number, "the messages are out")


async def test_those_of_a_turn_share_a_message(groups: FrontDouble) -> None:
    async with emitter(groups) as sender:
        receipts = await asyncio.gather(*(sender.put("test_event", [b"%d" % number]) for number in range(100)))
    assert groups.groups == [100]
    assert [receipt.position for receipt in receipts] == [*range(1, 101)]
    assert [groups.envelopes[receipt.envelope_id].state for receipt in receipts] == ["sealed"] * 100


async def test_those_made_while_messages_are_out_share_the_next(groups: FrontDouble) -> None:
    answer = asyncio.get_running_loop().create_future()
    groups.fail_next("put_envelopes", answer, answer)
    async with emitter(groups) as sender:
        puts = []
        for number in range(6):
            puts.append(asyncio.create_task(sender.put("test_event", [b"x"])))
            await messages_out(groups, min(number + 1, 2))
        answer.set_result(None)
        await asyncio.gather(*puts)
    assert groups.groups == [1, 1, 4]


async def test_keys_and_empty_envelopes_go_along(groups: FrontDouble) -> None:
    async with emitter(groups) as sender:
        first, empty, again = await asyncio.gather(
            sender.put("test_event", [b"a"], key="order 1", headers={"shop": "Paris"}, ordering_key="Ada"),
            sender.put("test_event", []),
            sender.put("test_event", [b"a"], key="order 1"),
        )
    assert groups.groups == [3]
    assert first == again
    assert empty.items == 0


async def test_one_that_is_refused_leaves_the_others(groups: FrontDouble) -> None:
    async with emitter(groups) as sender:
        groups.fail_next("put None", Refused("no such type", "add it", code="unknown_type"))
        refused, taken = await asyncio.gather(
            sender.put("test_event", [b"a"]), sender.put("test_event", [b"b"]), return_exceptions=True
        )
    assert isinstance(refused, Refused)
    assert (refused.code, refused.cause, refused.next_step) == ("unknown_type", "no such type", "add it")
    assert not isinstance(taken, BaseException)
    assert groups.calls == ["login", "put_envelopes", "logout"]


async def test_one_that_can_not_be_taken_now_goes_alone_under_its_id(groups: FrontDouble) -> None:
    async with emitter(groups) as sender:
        groups.fail_next("put None", Failed("paused", code="paused"))
        alone, taken = await asyncio.gather(sender.put("test_event", [b"a"]), sender.put("test_event", [b"b"]))
    assert groups.calls == ["login", "put_envelopes", "put_envelope", "logout"]
    assert (alone.position, taken.position) == (2, 1)


async def test_what_is_refused_under_a_key_is_sent_by_single_calls(groups: FrontDouble) -> None:
    """They cancel what somebody else began under it, so that the key is free."""
    async with emitter(groups) as sender:
        groups.fail_next("put order 1", Refused("other content is open", code="content_differs"))
        receipt = await sender.put("test_event", [b"a"], key="order 1")
    assert receipt.items == 1
    assert groups.calls[1:3] == ["put_envelopes", "start_envelope"]


async def test_an_unanswered_message_is_repeated_as_it_was(groups: FrontDouble) -> None:
    groups.fail_next("put_envelopes", SILENCE)
    async with emitter(groups, answer_seconds=0.2) as sender:
        receipts = await asyncio.gather(*(sender.put("test_event", [b"%d" % number]) for number in range(3)))
    assert groups.groups == [3, 3]
    assert len(groups.envelopes) == 3
    assert [receipt.position for receipt in receipts] == [1, 2, 3]


async def test_a_put_that_is_given_up_leaves_the_others(groups: FrontDouble) -> None:
    answer = asyncio.get_running_loop().create_future()
    groups.fail_next("put_envelopes", answer)
    async with emitter(groups) as sender:
        patient = asyncio.create_task(sender.put("test_event", [b"a"]))
        with pytest.raises(TimedOut):
            await sender.put("test_event", [b"b"], timeout=0.05)
        answer.set_result(None)
        assert (await patient).items == 1


async def test_an_older_front_gets_single_calls(front: FrontDouble) -> None:
    async with emitter(front) as sender:
        await sender.put("test_event", [b"a"])
    assert front.calls == ["login", "put_envelope", "logout"]


async def test_what_waits_at_the_end_of_the_emitter_is_told(groups: FrontDouble) -> None:
    groups.fail_next("put_envelopes", SILENCE, SILENCE)
    async with emitter(groups) as sender:
        puts = []
        for number in range(3):
            puts.append(asyncio.create_task(sender.put("test_event", [b"x"])))
            await messages_out(groups, min(number + 1, 2))
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert [result.code for result in results if isinstance(result, Refused)] == ["not_open"] * 3
