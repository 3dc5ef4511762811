"""Envelopes that are put together: what one more of them costs, and when they go."""

import asyncio
import weakref
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from tests.support.counting import calls_of
from xbus.clock import SystemClock
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import NO_OPTIONS
from xbus.emitter.options import Options
from xbus.emitter.puts import MESSAGES_OUT, MOST_ENVELOPES
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import FrontLimits
from xbus.errors import CallError, ConnectionLost, Failed, ProtocolError, Refused
from xbus.headers import NO_TAGS
from xbus.ids import Ids
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Value, pack
from xbus.rpc.owed_calls import AnswerTaker, pass_on


class TakingFront:
    """Takes every envelope in the next turn of the loop."""

    limits = FrontLimits(60.0, 1_000_000, 1_000_000, 0.0, groups=True)
    logins = 1

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.ids: list[bytes] = []
        self.instead: dict[int, Value] = {}
        """Answers to envelopes of a message, by their places."""
        self.failures: list[CallError] = []
        """The outcomes of the next messages, in the place of an answer."""
        self.is_silent = False
        self.fault: Exception | None = None
        """Raised by each call, once it is on its way."""
        self._positions = count(1)
        self.turn = LoopTurn()

    def call(self, verb: str, *arguments: Any, seconds: float) -> asyncio.Future[Value]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Value] = loop.create_future()
        pack(arguments)
        (entries,) = arguments
        self.messages.append(len(entries))
        self.ids += [entry[0] for entry in entries]
        taken: list[Value] = [[entry[0], next(self._positions), b"hash"] for entry in entries]
        for place, told in self.instead.items():
            taken[place] = told
        if self.failures:
            loop.call_soon(answer.set_exception, self.failures.pop(0))
        elif not self.is_silent:
            loop.call_soon(answer.set_result, taken)
        return answer

    def ask(self, verb: str, arguments: tuple[Any, ...], taker: AnswerTaker, seconds: float) -> None:
        pass_on(self.call(verb, *arguments, seconds=seconds), taker)
        if self.fault is not None:
            raise self.fault

    async def restore(self) -> None:
        """Take calls again: this front always does."""


@pytest.fixture
def front() -> TakingFront:
    return TakingFront()


@pytest.fixture
async def context(front: TakingFront) -> AsyncIterator[EmitterContext]:
    clock = SystemClock()
    made = EmitterContext(front, Options(window_bytes=100), clock, Ids(clock))
    yield made
    made.close()


def put(context: EmitterContext, type_name: str = "notes") -> asyncio.Future[Receipt]:
    return context.puts.put(type_name, NO_TAGS, [b"a"], NO_OPTIONS)


def test_one_more_of_a_message_costs_two_calls() -> None:
    async def put_all(number: int) -> None:
        clock = SystemClock()
        context = EmitterContext(TakingFront(), Options(), clock, Ids(clock))
        receipts = await asyncio.gather(*(put(context) for _ in range(number)))
        assert [receipt.position for receipt in receipts] == [*range(1, number + 1)]

    # What is kept for a number of ids is made before.
    one, hundred = [calls_of(lambda: asyncio.run(put_all(number))) for number in (1, 100, 1, 100)][2:]  # noqa: B023
    # The put, and its items.
    assert hundred - one == 2 * 99


async def test_with_a_full_window_they_wait_for_room_and_go_together(
    context: EmitterContext, front: TakingFront
) -> None:
    context.window.take(100)
    receipts = [put(context) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert front.messages == []
    context.window.give(100)
    assert [receipt.position for receipt in await asyncio.gather(*receipts)] == [1, 2, 3]
    assert front.messages == [3]


async def test_puts_that_nobody_waits_for_are_not_kept_while_the_window_is_full(context: EmitterContext) -> None:
    context.window.take(100)
    kept, given_up = put(context), []
    await asyncio.sleep(0)
    for _ in range(4 * MOST_ENVELOPES):
        receipt = put(context)
        receipt.cancel()
        given_up.append(weakref.ref(receipt))
    del receipt
    assert len([each for each in given_up if each() is not None]) <= MOST_ENVELOPES
    context.window.give(100)
    assert (await kept).position == 1


async def test_one_task_waits_for_room_however_many_answers_come(context: EmitterContext, front: TakingFront) -> None:
    for number in range(1, 3):
        sent = []
        for _ in range(MESSAGES_OUT):
            sent.append(put(context))
            await asyncio.sleep(0)
        context.window.take(100)
        waiting = put(context)
        await asyncio.gather(*sent)
        await asyncio.sleep(0)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert names.count("xbus emitter waits for room") == 1
        context.window.give(100)
        assert (await waiting).position == number * (MESSAGES_OUT + 1)


async def test_those_that_wait_for_room_are_told_of_the_end(context: EmitterContext, front: TakingFront) -> None:
    context.window.take(100)
    receipt = put(context)
    await asyncio.sleep(0)
    context.close()
    with pytest.raises(Exception, match="closed"):
        await receipt
    context.window.give(100)
    await asyncio.sleep(0)
    assert front.messages == []


async def test_those_that_are_out_are_told_of_the_end(context: EmitterContext, front: TakingFront) -> None:
    front.is_silent = True
    receipt = put(context)
    await asyncio.sleep(0)
    assert front.messages == [1]
    context.close()
    with pytest.raises(Refused, match="closed"):
        await receipt
    # They take nothing of the window any more.
    context.window.take(99)
    assert context.window.is_open


# -- failures --------------------------------------------------------------------------------------------------------


async def test_a_message_that_failed_goes_again_with_the_same_ids(context: EmitterContext, front: TakingFront) -> None:
    front.failures = [ConnectionLost("the connection was lost")]
    receipts = [put(context) for _ in range(3)]
    assert [receipt.position for receipt in await asyncio.gather(*receipts)] == [4, 5, 6]
    assert front.messages == [3, 3]
    assert front.ids[:3] == front.ids[3:]
    assert context.puts.failure(receipts[0]) is None
    context.window.take(99)
    assert context.window.is_open


async def test_a_message_that_is_refused_goes_once(context: EmitterContext, front: TakingFront) -> None:
    front.failures = [Refused("no", code="type_unknown")]
    receipt = put(context)
    with pytest.raises(Refused, match="no"):
        await receipt
    assert front.messages == [1]
    assert (await put(context)).position == 2


async def test_the_failure_is_told_while_a_message_goes_again(context: EmitterContext, front: TakingFront) -> None:
    front.failures = [Failed("the journal is away", code="journal_unavailable")]
    receipt = put(context)
    while (failure := context.puts.failure(receipt)) is None:
        await asyncio.sleep(0)
    assert failure.code == "journal_unavailable"
    assert (await receipt).position == 2


# -- answers ---------------------------------------------------------------------------------------------------------

BAD_ENTRIES: list[Value] = [
    None,
    7,
    [],
    [bytes(16), 1],
    ["text", 1, b"hash"],
    [b"short", 1, b"hash"],
    [bytes(16), "1", b"hash"],
    [bytes(16), True, b"hash"],
    [bytes(16), 1, None],
    [bytes(16), 1, b"hash", 1],
]


@pytest.mark.parametrize("entry", BAD_ENTRIES)
async def test_a_bad_entry_fails_its_own_put_alone(context: EmitterContext, front: TakingFront, entry: Value) -> None:
    front.instead = {1: entry}
    first, bad, last = (put(context) for _ in range(3))
    with pytest.raises(CallError) as error:
        await bad
    assert error.value.code == "bad_answer"
    assert [(await receipt).position for receipt in (first, last)] == [1, 3]
    front.instead = {}
    assert (await put(context)).position == 4


# -- envelopes that the front can't take for now ---------------------------------------------------------------------

PAUSED: Value = {"refused": False, "code": "paused", "cause": "paused", "next_step": "", "details": {}}


async def test_one_that_is_not_taken_goes_again_alone_under_its_ids(
    context: EmitterContext, front: TakingFront
) -> None:
    front.instead = {1: PAUSED}
    first, late, last = [put(context) for _ in range(3)]
    assert [(await receipt).position for receipt in (first, last)] == [1, 3]
    front.instead = {}
    assert (await late).position == 4
    assert front.messages == [3, 1]
    assert front.ids[3] == front.ids[1]
    context.window.take(99)
    assert context.window.is_open


async def test_its_failure_is_not_that_of_the_others(context: EmitterContext, front: TakingFront) -> None:
    front.instead = {0: PAUSED}
    late, taken = put(context), put(context)
    await taken
    front.is_silent = True
    waiting = put(context)
    await asyncio.sleep(0)
    failure = context.puts.failure(late)
    assert failure is not None
    assert (failure.code, context.puts.failure(waiting)) == ("paused", None)


async def test_it_takes_the_window_until_it_is_given_up(context: EmitterContext, front: TakingFront) -> None:
    front.instead = {0: PAUSED}
    late, taken = put(context), put(context)
    await taken
    context.window.take(98)
    was_open = context.window.is_open
    late.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (was_open, context.window.is_open) == (False, True)
    assert front.messages == [2]


async def test_it_is_told_of_the_end(context: EmitterContext, front: TakingFront) -> None:
    front.instead = {0: PAUSED}
    late, taken = put(context), put(context)
    await taken
    context.close()
    with pytest.raises(Refused, match="closed"):
        await late
    context.window.take(99)
    assert context.window.is_open


# -- puts that have no form on the wire ------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True], ids=["at_once", "behind_a_full_window"])
async def test_behind_one_that_can_not_be_packed_the_others_go(
    context: EmitterContext, front: TakingFront, waits: bool
) -> None:
    for number in range(1, MESSAGES_OUT + 2):
        if waits:
            context.window.take(100)
        good, bad = put(context, "notes"), put(context, "half a pair \ud800")
        await asyncio.sleep(0)
        if waits:
            context.window.give(100)
        with pytest.raises(ProtocolError):
            await bad
        assert (await good).position == number
    assert front.messages == [1] * (MESSAGES_OUT + 1)
    # Nothing of the window is lost to them.
    context.window.take(99)
    assert context.window.is_open


async def test_behind_a_call_that_fails_on_its_way_each_goes_alone_under_its_ids(
    context: EmitterContext, front: TakingFront
) -> None:
    front.fault = RuntimeError("the disk of the log is full")
    keyed = context.puts.put("notes", NO_TAGS, [b"a"], {"key": "order 1"})
    for receipt in (put(context), put(context), keyed):
        with pytest.raises(RuntimeError, match="the disk of the log is full"):
            await receipt
    # The late answers to the messages are nobody's.
    await asyncio.sleep(0)
    assert front.messages == [3, 1, 1, 1]
    assert front.ids[:3] == front.ids[3:]
    context.window.take(99)
    assert context.window.is_open
