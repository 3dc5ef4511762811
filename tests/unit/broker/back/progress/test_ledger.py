"""Who has got what, in memory and a moment later in a journal that answers when the test says so."""

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.support.delivering import consumer_roles
from xbus.broker.back.progress.consumer_role import ConsumerRoles
from xbus.broker.back.progress.ledger import AHEAD_POSITIONS, RESERVE_POSITIONS, WORTH_POSITIONS, DeliveryLedger
from xbus.broker.back.recipients.failures import nonsense
from xbus.broker.back.recipients.served import RoleEvents
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, ProgressUpdate
from xbus.broker.journal.writes.cursor import Cursor
from xbus.broker.journal.writes.write import WriteAnswer
from xbus.clock import SystemClock
from xbus.errors import JournalError, JournalUnavailable
from xbus.loop_turn import LoopTurn
from xbus.states import DeliveryState

STORE, AUDIT = 1, 2
NOW = datetime(2020, 2, 29, tzinfo=UTC)
AWAY = JournalUnavailable("the database is away")
DEADLINE_SECONDS = 60.0


class HeldJournal:
    """Takes writes, and answers each when it is told to."""

    def __init__(self) -> None:
        self.turn = LoopTurn()
        self.taken: list[ProgressUpdate] = []
        self.answers: list[WriteAnswer[None]] = []
        self.kept: list[ProgressUpdate] = []
        self.promised: list[bool] = []
        self.hurried: list[int] = []
        """The number of writes that were taken before each hurry."""

    def hurry(self) -> None:
        self.hurried.append(len(self.taken))

    def submit(self, progress: ProgressUpdate, answer: WriteAnswer[None], *, promises: bool) -> None:
        self.taken.append(progress)
        self.promised.append(promises)
        self.answers.append(answer)

    async def answer(self, outcome: Exception | None = None) -> None:
        """Answer the write that was taken last."""
        while not self.answers:
            await asyncio.sleep(0)
        answer = self.answers.pop()
        if outcome is None:
            self.kept.append(self.taken[-1])
            answer.set_result(None)
        else:
            answer.set_exception(outcome)
        await settle()

    @property
    def moves(self) -> list[DeliveryMove]:
        return [move for progress in self.kept for move in progress.deliveries]

    def cursor(self, role_id: int) -> Cursor | None:
        """As it was kept last."""
        found = [cursor for progress in self.kept for cursor in progress.cursors if cursor.role_id == role_id]
        return found[-1] if found else None


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def journal() -> HeldJournal:
    return HeldJournal()


@pytest.fixture
def roles() -> ConsumerRoles:
    return consumer_roles()


@pytest.fixture
def ledger(journal: HeldJournal, roles: ConsumerRoles) -> DeliveryLedger:
    return new_ledger(journal, roles)


def new_ledger(journal: HeldJournal, roles: ConsumerRoles, **options: Any) -> DeliveryLedger:
    cursors = {role_id: Cursor(role_id, 1, None, 0) for role_id in (STORE, AUDIT)}
    options = {"cursor_seconds": 0, **options}
    ledger = DeliveryLedger(cast(Journal, journal), SystemClock(), roles, RoleEvents(), retry_seconds=0, **options)
    ledger.adopt(cursors)
    return ledger


def delivery(position: int, state: DeliveryState = DeliveryState.RETRY) -> DeliveryRow:
    return DeliveryRow(STORE, uuid.UUID(int=position), position, state, 1, "timed_out", "no answer")


async def begin(work: Any) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.ensure_future(work)
    await settle()
    return task


# -- noting ----------------------------------------------------------------------------------------------------------


async def test_what_was_noted_is_written_together(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    ledger.settle(STORE, 1)
    ledger.settle(AUDIT, 1)
    ledger.settle(AUDIT, 2)
    ledger.fail(uuid.UUID(int=3), nonsense(STORE, "send_item", None, 7))
    ledger.move(None, delivery(3))
    writing = await begin(ledger.write())
    await journal.answer()
    await writing
    (progress,) = journal.kept
    assert {cursor.role_id: cursor.position for cursor in progress.cursors} == {STORE: 1, AUDIT: 2}
    assert {cursor.role_id for cursor in progress.cursors if cursor.is_settled(3)} == {STORE}
    assert progress.deliveries == [DeliveryMove(None, delivery(3))]
    assert [failure.verb for failure in progress.failures] == ["send_item"]


async def test_a_cursor_that_moves_on_is_not_moved_under_the_write(
    ledger: DeliveryLedger, journal: HeldJournal
) -> None:
    ledger.settle(STORE, 1)
    writing = await begin(ledger.write())
    ledger.settle(STORE, 2)
    await journal.answer()
    await writing
    kept = journal.cursor(STORE)
    assert kept is not None
    assert kept.position == 1


async def test_a_move_names_the_state_before(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    waiting = delivery(1, DeliveryState.WAITING)
    ledger.move(None, waiting)
    ledger.move(waiting, replace(waiting, state=DeliveryState.RETRY))
    writing = await begin(ledger.write())
    await journal.answer()
    await writing
    assert [move.old for move in journal.moves] == [None, DeliveryState.WAITING]


async def test_an_outage_only_delays(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    ledger.move(None, delivery(1))
    writing = await begin(ledger.write())
    for _ in range(3):
        await journal.answer(AWAY)
    assert not writing.done()
    await journal.answer()
    await writing
    assert len(journal.taken) == 4
    assert journal.moves == [DeliveryMove(None, delivery(1))]


async def test_who_waits_is_told_when_its_note_is_durable(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    ledger.settle(STORE, 1)
    first = await begin(ledger.written())
    writing = await begin(ledger.write())
    ledger.settle(STORE, 2)
    second = await begin(ledger.written())
    assert not first.done()
    await journal.answer()
    await writing
    assert [first.done(), second.done()] == [True, False]
    writing = await begin(ledger.write())
    await journal.answer()
    await writing
    await second


async def test_nobody_waits_for_nothing(ledger: DeliveryLedger) -> None:
    await ledger.written()
    await ledger.room()


async def test_who_notes_too_much_waits(journal: HeldJournal, roles: ConsumerRoles) -> None:
    ledger = new_ledger(journal, roles, max_unwritten=2)
    for position in (1, 2):
        ledger.settle(STORE, position)
    await ledger.room()
    ledger.settle(STORE, 3)
    waiting = await begin(ledger.room())
    assert not waiting.done()
    writing = await begin(ledger.write())
    await journal.answer()
    await asyncio.gather(writing, waiting)


async def test_the_keeper_writes_what_is_noted(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    keeping = await begin(ledger.keep())
    ledger.settle(STORE, 1)
    await journal.answer()
    assert [cursor.position for cursor in journal.kept[0].cursors] == [1]
    ledger.settle(STORE, 2)
    await journal.answer()
    assert [cursor.position for cursor in journal.kept[1].cursors] == [2]
    keeping.cancel()


async def test_what_was_being_written_when_the_keeper_was_stopped_is_written_after_all(
    ledger: DeliveryLedger, journal: HeldJournal
) -> None:
    """Else the cursor would pass an envelope whose row never was."""
    keeping = await begin(ledger.keep())
    ledger.move(None, delivery(1))
    await journal.answer(AWAY)
    keeping.cancel()
    await settle()
    ledger.settle(STORE, 2)
    writing = await begin(ledger.write())
    while not writing.done():
        await journal.answer()
        await settle()
    kept = journal.cursor(STORE)
    assert kept is not None
    assert kept.is_settled(1)
    assert DeliveryMove(None, delivery(1)) in journal.moves


# -- hand-overs ------------------------------------------------------------------------------------------------------


async def test_a_hand_over_is_reserved_durably_a_window_ahead(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    reserving = await begin(ledger.reserve([STORE, AUDIT], 5))
    assert not reserving.done()
    writing = await begin(ledger.write())
    assert not reserving.done()
    await journal.answer()
    await asyncio.gather(writing, reserving)
    assert {cursor.role_id: cursor.handed_to for cursor in journal.kept[0].cursors} == {
        STORE: RESERVE_POSITIONS,
        AUDIT: RESERVE_POSITIONS,
    }


async def test_within_the_window_nothing_is_written(ledger: DeliveryLedger, journal: HeldJournal) -> None:
    reserving = await begin(ledger.reserve([STORE], 5))
    writing = await begin(ledger.write())
    await journal.answer()
    await asyncio.gather(writing, reserving)
    for position in range(6, RESERVE_POSITIONS + 1):
        await ledger.reserve([STORE], position)
    assert len(journal.taken) == 1
    assert not (await begin(ledger.reserve([STORE], RESERVE_POSITIONS + 1))).done()


async def test_cursors_that_move_wait_for_more_of_them_and_go_with_the_first_failure(
    journal: HeldJournal, roles: ConsumerRoles
) -> None:
    ledger = new_ledger(journal, roles, cursor_seconds=DEADLINE_SECONDS)
    keeping = await begin(ledger.keep())
    ledger.settle(STORE, 1)
    await settle()
    ledger.settle(STORE, 2)
    await settle()
    assert not journal.taken
    ledger.fail(uuid.UUID(int=3), nonsense(STORE, "send_item", None, 7))
    await journal.answer()
    assert (journal.promised, len(journal.kept)) == ([True], 1)
    cursor = journal.cursor(STORE)
    assert cursor is not None
    assert cursor.position == 2
    keeping.cancel()


async def test_the_next_window_shares_a_commit_and_is_hurried_where_more_waits(
    journal: HeldJournal, roles: ConsumerRoles
) -> None:
    ledger = new_ledger(journal, roles, cursor_seconds=DEADLINE_SECONDS)
    keeping = asyncio.create_task(ledger.keep())
    reserving = await begin(ledger.reserve([STORE], 5))
    await journal.answer()
    await reserving
    hurried = len(journal.hurried)
    ledger.settle(STORE, *range(1, AHEAD_POSITIONS + 1))
    await settle()
    assert (journal.promised[-1], len(journal.taken), len(journal.hurried)) == (False, 2, hurried)
    assert ledger.is_reserved(roles[STORE], RESERVE_POSITIONS, lambda: None)
    await settle()
    assert journal.hurried[hurried:] == [2]
    await journal.answer()
    cursor = journal.cursor(STORE)
    assert cursor is not None
    assert (cursor.handed_to, len(journal.taken)) == (AHEAD_POSITIONS + RESERVE_POSITIONS, 2)
    keeping.cancel()


async def test_a_page_for_what_waits_is_hurried_if_it_is_worth_that(journal: HeldJournal, roles: ConsumerRoles) -> None:
    ledger = new_ledger(journal, roles, cursor_seconds=DEADLINE_SECONDS)
    keeping = asyncio.create_task(ledger.keep())
    reserving = await begin(ledger.reserve([STORE], 5))
    await journal.answer()
    await reserving
    for number, pages in [(WORTH_POSITIONS - 1, 1), (WORTH_POSITIONS, 2)]:
        ledger.settle(STORE, number)
        ledger.settle(STORE, *range(1, number))
        assert ledger.is_reserved(roles[STORE], RESERVE_POSITIONS, lambda: None)
        await settle()
        assert len(journal.taken) == pages
    assert journal.promised[-1]
    keeping.cancel()


async def test_a_hand_over_waits_for_a_reservation_that_another_made(
    ledger: DeliveryLedger, journal: HeldJournal
) -> None:
    first = await begin(ledger.reserve([STORE], 5))
    second = await begin(ledger.reserve([STORE], 6))
    writing = await begin(ledger.write())
    assert (first.done(), second.done()) == (False, False)
    await journal.answer()
    await asyncio.gather(writing, first, second)


async def test_a_clean_stop_leaves_nothing_in_doubt(
    ledger: DeliveryLedger, journal: HeldJournal, roles: ConsumerRoles
) -> None:
    reserving = await begin(ledger.reserve([STORE, AUDIT], 1))
    writing = await begin(ledger.write())
    await journal.answer()
    await asyncio.gather(writing, reserving)
    for position in (1, 2, 4):
        ledger.settle(STORE, position)
    roles[AUDIT].in_flight.begin(3)
    ledger.return_reserved()
    writing = await begin(ledger.write())
    await journal.answer()
    await writing
    store, audit = journal.cursor(STORE), journal.cursor(AUDIT)
    assert store is not None
    assert audit is not None
    assert (store.handed_to, store.unsettled()) == (4, [3])
    assert (audit.handed_to, audit.unsettled()) == (3, [1, 2, 3])


# -- roles that come and go ------------------------------------------------------------------------------------------


def test_new_cursors_are_taken_up_and_known_ones_keep_their_place(ledger: DeliveryLedger) -> None:
    ledger.pass_over(STORE, 1, 1)
    ledger.adopt({STORE: Cursor(STORE, 1, 9, 0), 3: Cursor(3, 5, None, 4)})
    store, new = ledger.cursor(STORE), ledger.cursor(3)
    assert store is not None
    assert new is not None
    assert (store.position, store.until_position) == (1, 9)
    assert new.position == 4


def test_a_worker_has_no_cursor(ledger: DeliveryLedger) -> None:
    assert ledger.cursor(77) is None


async def test_what_an_operator_changed_meanwhile_costs_only_that_move(
    ledger: DeliveryLedger, journal: HeldJournal, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.settle(AUDIT, 1)
    ledger.move(delivery(2), delivery(2, DeliveryState.SETTLED))
    ledger.move(None, delivery(3))
    writing = await begin(ledger.write())
    lost = JournalError("the delivery is no longer retry")
    for outcome in (lost, lost, None, None, None):
        assert not writing.done()
        await journal.answer(outcome)
    await writing
    assert journal.moves == [DeliveryMove(None, delivery(3))]
    kept = journal.cursor(STORE)
    assert kept is not None
    assert kept.is_settled(2)
    assert kept.is_settled(3)
    assert "no longer retry" in caplog.text
    await ledger.written()
