"""Reserved hand-overs: nothing is handed over above what is durable, and few wait for that."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivering import consumer_roles
from xbus.broker.back.progress.consumer_role import Reservations
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS, DeliveryLedger
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

    def hurry(self) -> None:
        """Nothing waits."""

    def submit(self, progress: ProgressUpdate, answer: WriteAnswer[None], *, promises: bool) -> None:
        self.waiting.append((progress, answer))

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

    async def begin(self, position: int, *role_ids: int) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self.ledger.reserve(role_ids or [STORE], position))
        await settle()
        return task

    async def end(self) -> None:
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)


# -- reservations ----------------------------------------------------------------------------------------------------


def test_where_nothing_was_reserved_nothing_is_waited_for() -> None:
    assert Reservations().noted_for(7) == 0


def test_each_position_waits_for_the_first_reservation_that_covers_it() -> None:
    reservations = Reservations()
    reservations.add(10, 1)
    reservations.add(20, 5)
    assert [reservations.noted_for(position) for position in (3, 10, 11, 20)] == [1, 1, 5, 5]
    assert reservations.noted_for(3) == 5  # too high, and so too late at the worst


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20),
    st.lists(st.integers(1, 200), max_size=30),
)
def test_no_number_is_too_low(steps: list[tuple[int, int]], asked: list[int]) -> None:
    """However they are asked for: who waits for that many notes finds the position covered."""
    reservations, added, position, noted = Reservations(), list[tuple[int, int]](), 0, 0
    for further, more in steps:
        position, noted = position + further, noted + more
        reservations.add(position, noted)
        added.append((position, noted))
    for wanted in (each for each in asked if each <= position):
        least = next(noted for position, noted in added if position >= wanted)
        assert reservations.noted_for(wanted) >= least


# -- in the ledger ---------------------------------------------------------------------------------------------------


async def test_the_first_waits_until_it_is_durable() -> None:
    bench = Bench()
    first = await bench.begin(1)
    assert not first.done()
    await bench.write()
    assert first.done()
    assert bench.journal.handed_to[STORE] == 1 + RESERVE_POSITIONS
    await bench.end()


async def test_none_waits_while_half_of_it_is_left() -> None:
    bench = Bench()
    first = await bench.begin(1)
    await bench.write()
    assert first.done()
    handed_to = bench.journal.handed_to[STORE]
    middle = handed_to - RESERVE_POSITIONS // 2
    for position in (2, middle, middle + 1, handed_to):
        # Past the half more is reserved, and nobody waits for that before the rest is used up.
        assert (await bench.begin(position)).done()
    beyond = await bench.begin(handed_to + 1)
    assert not beyond.done()
    await bench.write()
    assert beyond.done()
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


async def test_hand_overs_that_are_not_asked_for_are_durable_and_reserve_in_time() -> None:
    bench = Bench()
    role = bench.roles[STORE]
    refused = 0
    for position in range(1, 4 * RESERVE_POSITIONS):
        while position > role.reserved_to and not bench.ledger.is_reserved(role, position, lambda: None):
            refused += 1
            await bench.write()
        assert position <= bench.journal.handed_to[STORE]
        if position % (RESERVE_POSITIONS // 4) == 0:
            await bench.write()
    assert refused == 1, "only the first waits"
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
