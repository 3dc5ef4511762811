"""Bounded ways between the parts of a run."""

import asyncio
import contextlib
import uuid

import pytest

from xbus.broker.back.log.batch import RunBatch
from xbus.broker.back.recipients.failures import RecipientFailed, nonsense
from xbus.broker.back.run.flow_control import CallWindow, Portion, StageInbox, together
from xbus.broker.journal.writes.bulk import OutputPage

LARGE = RunBatch(0, 1, bytes(1000))
SMALL = RunBatch(0, 1, bytes(10))


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def taken(inbox: StageInbox) -> list[tuple[str, Portion]]:
    return [each async for each in inbox]


# -- inboxes ---------------------------------------------------------------------------------------------------------


async def test_what_comes_first_goes_first() -> None:
    inbox = StageInbox(10_000, parents=2)
    await inbox.put("left", SMALL)
    await inbox.put("right", LARGE)
    await inbox.put("left", LARGE)
    await inbox.close()
    await inbox.close()
    assert await taken(inbox) == [("left", SMALL), ("right", LARGE), ("left", LARGE)]


async def test_it_ends_when_all_parents_have_closed_it() -> None:
    inbox = StageInbox(10_000, parents=2)
    reader = asyncio.ensure_future(taken(inbox))
    await inbox.close()
    await inbox.put("right", SMALL)
    await settle()
    assert not reader.done()
    await inbox.close()
    assert await reader == [("right", SMALL)]


async def test_who_puts_waits_while_too_much_is_held() -> None:
    inbox = StageInbox(max_bytes=1500, parents=1)
    await inbox.put("node", LARGE)
    await inbox.put("node", LARGE)
    third = asyncio.ensure_future(inbox.put("node", LARGE))
    await settle()
    assert not third.done()
    reading = aiter(inbox)
    await anext(reading)
    await third


async def test_a_batch_above_the_bound_passes_alone() -> None:
    inbox = StageInbox(max_bytes=10, parents=1)
    await inbox.put("node", LARGE)
    await inbox.close()
    assert await taken(inbox) == [("node", LARGE)]


async def test_who_abandons_keeps_nobody_waiting() -> None:
    inbox = StageInbox(max_bytes=10, parents=1)
    await inbox.put("node", LARGE)
    second = asyncio.ensure_future(inbox.put("node", LARGE))
    await settle()
    await inbox.abandon()
    await second
    await inbox.put("node", LARGE)
    await inbox.close()
    assert await taken(inbox) == []


async def test_all_of_a_small_event_is_taken_at_once() -> None:
    inbox = StageInbox(10_000, parents=1)
    whole = asyncio.ensure_future(inbox.whole(5000))
    await inbox.put("node", SMALL)
    await settle()
    assert not whole.done()
    await inbox.put("node", LARGE)
    await inbox.close()
    assert await whole == [SMALL, LARGE]
    assert await taken(inbox) == []


async def test_a_larger_event_is_left_to_be_taken_step_by_step() -> None:
    inbox = StageInbox(10_000, parents=1)
    whole = asyncio.ensure_future(inbox.whole(500))
    await inbox.put("node", LARGE)
    assert await whole is None
    await inbox.close()
    assert await taken(inbox) == [("node", LARGE)]


async def test_items_that_stay_in_the_journal_are_never_taken_at_once() -> None:
    inbox = StageInbox(10_000, parents=1)
    page = OutputPage(uuid.UUID(int=1), (-1, -1), (0, 0), segments=1, items=1, data_bytes=1)
    await inbox.put("node", SMALL)
    await inbox.put("node", page)
    await inbox.close()
    assert await inbox.whole(5000) is None
    assert await taken(inbox) == [("node", SMALL), ("node", page)]


async def test_a_merge_behind_a_slow_branch_does_not_stand_still() -> None:
    """The fast branch is done and far ahead while the slow one has not begun; both go into one inbox."""
    inbox = StageInbox(max_bytes=2000, parents=2)
    begin = asyncio.Event()

    async def fast() -> None:
        for _ in range(20):
            await inbox.put("fast", LARGE)
        await inbox.close()
        begin.set()

    async def slow() -> None:
        await begin.wait()
        await inbox.put("slow", SMALL)
        await inbox.close()

    _, _, read = await asyncio.gather(fast(), slow(), taken(inbox))
    assert [node for node, _ in read] == ["fast"] * 20 + ["slow"]


# -- windows ---------------------------------------------------------------------------------------------------------


async def test_so_many_calls_may_be_on_their_way() -> None:
    window = CallWindow(max_calls=2, max_bytes=10_000)
    await window.enter(10)
    await window.enter(10)
    third = asyncio.ensure_future(window.enter(10))
    await settle()
    assert not third.done()
    await window.leave(10)
    await third


async def test_so_many_bytes_may_be_on_their_way() -> None:
    window = CallWindow(max_calls=10, max_bytes=100)
    await window.enter(60)
    second = asyncio.ensure_future(window.enter(60))
    await settle()
    assert not second.done()
    await window.leave(60)
    await second


async def test_what_is_larger_than_the_window_goes_alone() -> None:
    window = CallWindow(max_calls=10, max_bytes=100)
    await window.enter(1000)
    await window.leave(1000)
    await window.enter(1000)


# -- together --------------------------------------------------------------------------------------------------------


def failure(verb: str = "send_item") -> RecipientFailed:
    return nonsense(1, verb, uuid.uuid4(), "nothing")


async def test_the_first_failure_comes_out_unwrapped_and_ends_the_others() -> None:
    ended = False

    async def waits() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    async def fails() -> None:
        raise failure()

    with pytest.raises(RecipientFailed, match="send_item"):
        await together(waits(), fails())
    assert ended


async def test_a_failure_deep_inside_comes_out_unwrapped() -> None:
    async def fails() -> None:
        raise failure("end_event")

    async def nested() -> None:
        await together(fails(), asyncio.sleep(0))

    with pytest.raises(RecipientFailed, match="end_event"):
        await together(nested(), asyncio.sleep(0))


async def test_a_failure_of_the_same_moment_hides_no_cancellation() -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise failure()

    goes_on = False

    async def caller() -> None:
        nonlocal goes_on
        with contextlib.suppress(RecipientFailed):
            await together(fails(), asyncio.Event().wait())
        goes_on = True

    task = asyncio.create_task(caller())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not goes_on


async def test_another_error_is_not_taken_for_a_failure() -> None:
    async def breaks() -> None:
        raise ValueError("a fault of ours")

    async def fails() -> None:
        raise failure()

    with pytest.raises(ExceptionGroup):
        await together(breaks(), fails())


async def test_nothing_together() -> None:
    await together()
