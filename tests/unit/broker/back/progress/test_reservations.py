"""Reserved hand-overs: nothing is handed over above what is durable, and few wait for that."""

import asyncio
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivering import consumer_roles
from xbus.broker.back.progress.ledger import AHEAD_POSITIONS, RESERVE_POSITIONS, WORTH_POSITIONS, DeliveryLedger
from xbus.broker.back.recipients.served import RoleEvents
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import ProgressUpdate
from xbus.broker.journal.writes.cursor import Cursor
from xbus.broker.journal.writes.write import WriteAnswer
from xbus.clock import SystemClock
from xbus.loop_turn import LoopTurn

STORE, AUDIT = 1, 2


class HeldJournal:
    """Makes durable what it is told to."""

    def __init__(self) -> None:
        self.turn = LoopTurn()
        self.handed_to = {STORE: 0, AUDIT: 0}
        self.waiting: list[tuple[ProgressUpdate, WriteAnswer[None]]] = []
        self.pages: list[ProgressUpdate] = []

    def hurry(self) -> None:
        """Nothing waits."""

    def submit(self, progress: ProgressUpdate, answer: WriteAnswer[None], *, promises: bool) -> None:
        self.waiting.append((progress, answer))
        self.pages.append(progress)

    def answer(self) -> None:
        """Make all of it durable that waits."""
        waiting, self.waiting = self.waiting, []
        for progress, answer in waiting:
            for cursor in progress.cursors:
                self.handed_to[cursor.role_id] = cursor.handed_to
            answer.set_result(None)


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Bench:
    def __init__(self) -> None:
        self.journal = HeldJournal()
        self.roles = consumer_roles()
        self.ledger = DeliveryLedger(
            cast(Journal, self.journal), SystemClock(), self.roles, RoleEvents(), retry_seconds=0
        )
        self.ledger.adopt({role_id: Cursor(role_id, 1, None, 0) for role_id in (STORE, AUDIT)})
        self.keeping = asyncio.create_task(self.ledger.keep())

    async def write(self) -> None:
        await settle()
        self.journal.answer()
        await settle()

    async def written(self) -> None:
        """Have all that is noted made durable."""
        waiting = asyncio.create_task(self.ledger.written())
        await self.write()
        await waiting

    async def reserve(self, position: int) -> None:
        """Have the first hand-overs reserved."""
        first = await self.begin(position)
        await self.write()
        assert first.done()

    async def begin(self, position: int, *role_ids: int) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self.ledger.reserve(role_ids or [STORE], position))
        await settle()
        return task

    async def end(self) -> None:
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)


# -- in the ledger ---------------------------------------------------------------------------------------------------


async def test_the_first_waits_until_it_is_durable() -> None:
    bench = Bench()
    first = await bench.begin(1)
    assert not first.done()
    await bench.write()
    assert first.done()
    assert bench.journal.handed_to[STORE] == RESERVE_POSITIONS
    await bench.end()


async def test_none_waits_for_what_is_reserved() -> None:
    bench = Bench()
    first = await bench.begin(1)
    await bench.write()
    assert first.done()
    for position in (2, RESERVE_POSITIONS):
        assert (await bench.begin(position)).done()
    assert not bench.journal.waiting
    beyond = await bench.begin(RESERVE_POSITIONS + 1)
    assert not beyond.done()
    await bench.write()
    assert beyond.done()
    await bench.end()


async def test_what_is_settled_is_reserved_anew_in_the_same_page() -> None:
    bench = Bench()
    await bench.reserve(1)
    bench.ledger.settle(STORE, *range(1, 41))
    bench.ledger.settle(STORE, 45)
    await settle()
    assert not bench.journal.waiting
    await bench.written()
    assert (bench.journal.handed_to[STORE], len(bench.journal.pages)) == (41 + RESERVE_POSITIONS, 2)
    assert (await bench.begin(41 + RESERVE_POSITIONS)).done()
    await bench.end()


@pytest.mark.parametrize(("number", "settled"), [(1, AHEAD_POSITIONS + 1), (64, 3 * 64), (80, 2 * 80), (100, 100)])
async def test_a_page_begins_when_two_calls_more_might_lack_a_reserve(number: int, settled: int) -> None:
    bench = Bench()
    await bench.reserve(1)
    for first in range(1, settled + 1, number):
        await settle()
        assert not bench.journal.waiting
        bench.ledger.settle(STORE, *range(first, first + number))
    await bench.write()
    assert bench.journal.handed_to[STORE] == settled + RESERVE_POSITIONS
    await bench.end()


async def test_a_page_begins_sooner_where_more_waits_than_is_reserved() -> None:
    bench = Bench()
    await bench.reserve(1)
    store = bench.roles[STORE]
    bench.ledger.settle(STORE, *range(1, WORTH_POSITIONS))
    bench.ledger.owe_all(store, range(1, RESERVE_POSITIONS + 2))
    await settle()
    assert not bench.journal.waiting, "it would be worth too little"
    bench.ledger.settle(STORE, WORTH_POSITIONS)
    bench.ledger.owe_all(store, range(2, RESERVE_POSITIONS + 1))
    await settle()
    assert not bench.journal.waiting, "all that waits is reserved"
    bench.ledger.owe_all(store, [RESERVE_POSITIONS + 1])
    await bench.write()
    assert bench.journal.handed_to[STORE] == WORTH_POSITIONS + RESERVE_POSITIONS
    await bench.end()


async def test_the_page_that_is_on_its_way_is_waited_for_and_no_further_one() -> None:
    bench = Bench()
    await bench.reserve(1)
    bench.ledger.settle(STORE, *range(1, AHEAD_POSITIONS + 1))
    await settle()
    bench.ledger.settle(STORE, AHEAD_POSITIONS + 1)
    covered = await bench.begin(AHEAD_POSITIONS + RESERVE_POSITIONS)
    beyond = await bench.begin(AHEAD_POSITIONS + RESERVE_POSITIONS + 1)
    await bench.write()
    assert (covered.done(), beyond.done()) == (True, False)
    await bench.write()
    assert beyond.done()
    await bench.end()


@pytest.mark.parametrize("takers", [1, 2, 5])
@pytest.mark.parametrize("seed", range(8))
async def test_no_page_leaves_more_in_doubt_than_may_be(seed: int, takers: int) -> None:
    """However slices of what waits are settled, and whenever pages are durable; and none waits for ever."""
    random = Random(seed)
    bench, out, last = Bench(), list[range](), 0
    role = bench.roles[STORE]
    cursor = role.cursor
    assert cursor is not None
    while last < 12 * RESERVE_POSITIONS:
        following = range(last + 1, last + 1 + random.randint(1, AHEAD_POSITIONS))
        must_wait = len(out) == takers or following[-1] > cursor.reach(RESERVE_POSITIONS)
        if out and (must_wait or random.random() < 0.3):
            bench.ledger.settle_all(role, out.pop(random.randrange(len(out))))
        elif bench.ledger.is_reserved(role, following[-1], lambda: None):
            assert following[-1] <= bench.journal.handed_to[STORE]
            out.append(following)
            last = following[-1]
        else:
            await bench.write()
        if random.random() < 0.3:
            await bench.write()
    assert max(len(each.unsettled()) for page in bench.journal.pages for each in page.cursors) <= RESERVE_POSITIONS
    await bench.end()


async def test_another_that_reserved_for_this_one_too_is_waited_for() -> None:
    bench = Bench()
    first, second = await bench.begin(1), await bench.begin(2)
    assert (first.done(), second.done()) == (False, False)
    await bench.write()
    assert (first.done(), second.done()) == (True, True)
    await bench.end()


async def test_each_of_several_roles_is_reserved_for() -> None:
    bench = Bench()
    first = await bench.begin(1, STORE)
    await bench.write()
    both = await bench.begin(2, STORE, AUDIT)
    assert first.done()
    assert not both.done()
    await bench.write()
    assert both.done()
    assert bench.journal.handed_to[AUDIT] >= 2
    await bench.end()


@given(
    st.lists(
        st.tuples(st.sampled_from([STORE, AUDIT]), st.integers(0, RESERVE_POSITIONS * 2), st.booleans()), max_size=25
    )
)
def test_nothing_is_handed_over_above_what_is_durable(steps: list[tuple[int, int, bool]]) -> None:
    async def carry_out() -> None:
        bench = Bench()
        at = {STORE: 0, AUDIT: 0}
        under_way: list[tuple[int, int, asyncio.Task[Any]]] = []
        for role_id, further, writes in steps:
            at[role_id] += further
            under_way.append((role_id, max(at[role_id], 1), await bench.begin(max(at[role_id], 1), role_id)))
            check(bench, under_way)
            if writes:
                await bench.write()
                check(bench, under_way)
        for _ in range(3):
            await bench.write()
        check(bench, under_way)
        assert all(task.done() for _, _, task in under_way)
        await bench.end()

    asyncio.run(carry_out())


def check(bench: Bench, under_way: list[tuple[int, int, "asyncio.Task[Any]"]]) -> None:
    for role_id, position, task in under_way:
        assert not task.done() or position <= bench.journal.handed_to[role_id]


async def test_in_a_stream_only_the_first_hand_over_waits() -> None:
    bench = Bench()
    role = bench.roles[STORE]
    refused = 0
    for position in range(1, 4 * RESERVE_POSITIONS):
        while position > role.reserved_to and not bench.ledger.is_reserved(role, position, lambda: None):
            refused += 1
            await bench.write()
        assert position <= bench.journal.handed_to[STORE]
        bench.ledger.settle(STORE, position)
        if position % WORTH_POSITIONS == 0:
            await bench.write()
    assert refused == 1
    bench.ledger.return_reserved()
    assert role.reserved_to == 0
    await bench.end()


# -- a role that is attached again -----------------------------------------------------------------------------------


async def test_what_was_reserved_before_a_role_was_attached_again_is_reserved_anew() -> None:
    bench = Bench()
    assert not bench.ledger.is_reserved(bench.roles[STORE], 1, lambda: None)
    await bench.write()
    assert bench.ledger.is_reserved(bench.roles[STORE], 1, lambda: None)
    attach(bench, 101)
    assert bench.roles[STORE].reserved_to == 0
    first = await bench.begin(101)
    assert not first.done()
    await bench.write()
    assert first.done()
    assert bench.journal.handed_to[STORE] >= 101
    await bench.end()


async def test_what_is_in_flight_when_a_role_is_found_attached_again_is_reserved_anew() -> None:
    bench = Bench()
    first = await bench.begin(105)
    await bench.write()
    assert first.done()
    bench.roles[STORE].in_flight.begin(105)
    attach(bench, 101)
    await bench.write()
    assert bench.journal.handed_to[STORE] >= 105
    await bench.end()


async def test_what_was_reserved_before_a_role_without_a_lag_was_attached_again_is_reserved_anew() -> None:
    """Nothing was sealed between the settling of all and the attachment, which has what was reserved forgotten."""
    bench = Bench()
    await bench.reserve(1)
    bench.ledger.settle(STORE, 1)
    await bench.written()
    assert bench.journal.handed_to[STORE] == 1 + RESERVE_POSITIONS
    attach(bench, 2)
    second = await bench.begin(2)
    assert not second.done()
    await bench.write()
    assert second.done()
    assert bench.journal.handed_to[STORE] >= 2
    await bench.end()


def test_a_cursor_that_lies_before_its_beginning_keeps_what_may_have_been_handed_over() -> None:
    cursor = Cursor(STORE, 101, None, 50, handed_to=103)
    ledger = DeliveryLedger(
        cast(Journal, HeldJournal()), SystemClock(), consumer_roles(), RoleEvents(), retry_seconds=0
    )
    ledger.adopt({STORE: cursor})
    assert cursor.unsettled() == [101, 102, 103]


def attach(bench: Bench, position: int) -> None:
    """Attach a role again, from a position on."""
    bench.journal.handed_to[STORE] = position - 1
    bench.ledger.adopt({STORE: Cursor(STORE, position, None, position - 1, 0, position - 1)})
