"""Group commit: one thread owns the write connection and commits all that arrived meanwhile in one transaction."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from xbus.broker.counts import Histogram
from xbus.broker.journal.commit.committer import UNDECIDED, Committer, Seen, Step, WriteJob
from xbus.broker.journal.commit.statements import News
from xbus.broker.journal.writes import (
    Append,
    Sealed,
    SealedGroup,
    Write,
    WriteAnswer,
    write_size,
)
from xbus.errors import JournalUnavailable, XbusError
from xbus.loop_turn import LoopTurn, ThreadBell

T = TypeVar("T")

GROUP_BYTES = 4 * 1024 * 1024
"""A group is closed when it holds this much, so that a transaction stays short."""

GROUP_CALLS = 5_000

GROUP_STEPS = 64
"""Steps of a transaction at the most. More spare commits where many readers are served at once; writes that come
meanwhile wait for all of them."""

CLOSE_SECONDS = 15.0
"""How long the thread is waited for at the end: one that waits for a silent database is left behind."""

UNPROMISED_SECONDS = 0.02
"""How long a write that promises nothing waits for another one to share its commit."""

LOOK_SECONDS = 1.0
"""Seconds after which a writer without work looks whether it may still write. Less ends it sooner where another broker
has taken over, and costs reads."""


@dataclass(frozen=True, slots=True)
class WriterPace:
    """The times of a writer, in seconds.

    Args:
        answer: after so long the database counts as silent.
        ask_again: between two questions to a database that went away during a COMMIT, what became of it.
        look: between two looks of a writer without work whether it may still write.
    """

    answer: float
    ask_again: float
    look: float = LOOK_SECONDS


@dataclass(eq=False, slots=True)
class _Pending(WriteJob):
    """A write or errand on its way."""

    size: int
    answer: WriteAnswer[Any]


class CommitFigures(NamedTuple):
    """The counts of the commits; the writer's thread counts on.

    Args:
        seconds: how long transactions took.
        writes: how many writes they held.
        faults: how often a write, or the whole database, failed.
    """

    seconds: Histogram
    writes: Histogram
    faults: int


class Writer:
    """Takes writes from the event loop, makes them durable in a thread, and answers them on the loop.

    Args:
        engine: the journal's database.
        name: the row of ``model.writer`` that is this writer's.
        max_segment_bytes: appends are gathered up to this size.
        max_pending_bytes: with more than this not yet committed, ``has_room`` is false.
        pace: its times.
        seen: the end of the log that this process has seen.
        turn: of the loop.

    Attributes:
        room_listeners: called on the loop whenever ``has_room`` turns true again.
        append_listeners: called after each commit that stored items of envelopes that come in parts.
        seal_listeners: called after each commit that sealed envelopes, behind the answers to their emitters.
    """

    def __init__(
        self,
        engine: sa.Engine,
        name: str,
        *,
        max_segment_bytes: int,
        max_pending_bytes: int,
        pace: WriterPace,
        seen: Seen,
        turn: LoopTurn,
    ) -> None:
        self._committer = Committer(engine, name, max_segment_bytes, seen)
        self.max_pending_bytes = max_pending_bytes
        self._pace = pace
        self._turn = turn
        self.room_listeners: list[Callable[[], None]] = []
        self.append_listeners: list[Callable[[Sequence[Append]], None]] = []
        self.seal_listeners: list[Callable[[Sequence[Sealed]], None]] = []
        self._gathered: list[_Pending | None] = []
        self._unpromised_since = 0.0
        """When the first of those was gathered that promise nothing; 0.0 without one."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_handing_over = False
        self._calls: deque[list[_Pending | None]] = deque()
        self._nothing_came = threading.Lock()
        """Guards nothing. It is locked if no call has come since the thread waited for one. The loop alone releases it,
        and the thread alone takes it. ``SimpleQueue.get`` with a time-out, behind calls that were taken without a wait,
        waits for ever where the thread loses its core for longer than that (CPython 3.11)."""
        self._taken: deque[_Pending | None] = deque()
        self._undecided: list[_Pending] = []
        self._pending_bytes = 0
        self.has_room = True
        """Whether more should be submitted; false means: let those who send wait."""
        self._faults_known = 0
        self._closing = False
        self._busy_since: float | None = None
        self._tried_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"journal-{name}", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._bell: ThreadBell
        self._is_left = False
        """Whether what the thread still tells concerns nobody any more."""
        self._ended: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Begin to write, under a new epoch: a process that still writes under the old one must stop.

        Raises:
            ConfigurationError: the database does not make durable what it commits.
            JournalUnavailable: the database can't be reached.
        """
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._bell = ThreadBell(self._turn)
        self._thread.start()
        try:
            await self.run(self._committer.begin_epoch)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit what was submitted, then end the thread."""
        if not self._closing:
            self._closing = True
            self._gathered.append(None)
            self._hand_over()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        self._bell.close()
        await asyncio.sleep(0)  # what the thread has told is done meanwhile
        self._is_left = True
        # One that is left behind may still ring.
        if self.has_ended:
            self._bell.end()

    @property
    def has_ended(self) -> bool:
        """Check whether its thread has ended, or never began."""
        return not self._thread.is_alive()

    @property
    def thread_id(self) -> int:
        """The id by which the system knows its thread."""
        assert self._thread.native_id is not None, "the writer is started"
        return self._thread.native_id

    @property
    def outage(self) -> JournalUnavailable | None:
        """Why nothing can be written now; None while all goes well, as far as it was tried."""
        return self._committer.outage or self.overdue

    @property
    def overdue(self) -> JournalUnavailable | None:
        """That the database is silent, where it has been so for long: then nobody should wait longer."""
        since = self._busy_since
        if since is None or time.monotonic() - since < self._pace.answer:
            return None
        return silent(time.monotonic() - since)

    @property
    def pending_bytes(self) -> int:
        """The bytes that wait to be committed."""
        return self._pending_bytes

    @property
    def stored_bytes(self) -> int:
        """The bytes of items stored since it began, as far as that is known."""
        return self._committer.stored_bytes

    @property
    def commits(self) -> CommitFigures:
        """The counts of the commits."""
        return CommitFigures(self._committer.seconds, self._committer.group_sizes, self._committer.faults)

    async def ended(self) -> None:
        """Wait until the thread has ended.

        Raises:
            Exception: what it died of; without it the broker must not go on.
        """
        assert self._ended is not None, "the writer is not started"
        await asyncio.shield(self._ended)

    def submit(
        self,
        write: Write[T] | Step | Callable[[sa.Connection], T],
        answer: WriteAnswer[T],
        *,
        promises: bool = True,
        order: object = None,
    ) -> None:
        """Have something made durable, behind all that was submitted before.

        Args:
            write: the write, or a step or another errand.
            answer: gets the call's answer (see ``carry_out``) when the transaction is committed; or
                JournalUnavailable or JournalError, and then nothing of the call was kept.
            promises: false where nobody waits for it: then it waits a moment for one that promises something.
            order: of no use here, as each write is behind all that were submitted before.
        """
        if (self._closing or not self.has_room) and self._refuse(answer):
            return
        size = write_size(write)
        self._pending_bytes += size
        if self._pending_bytes > self.max_pending_bytes:
            self.has_room = False
        self._gathered.append(_Pending(write, self._faults_known, size, answer))
        if promises:
            if not self._is_handing_over:
                # What this turn of the loop submits shares a commit, and wakes the thread once.
                self._is_handing_over = True
                self._turn.at_end(self._hand_over)
        elif not self._unpromised_since:
            self._unpromised_since = time.monotonic()
            if self._timer is None:
                self._timer = self._loop.call_later(UNPROMISED_SECONDS, self._hand_over_late)

    def hold(self, size: int) -> None:
        """Count bytes that wait elsewhere for their turn; negative once they are submitted, or given up."""
        self._pending_bytes += size
        self.has_room = self.has_room and self._pending_bytes <= self.max_pending_bytes
        self._look_for_room()

    def hurry(self) -> None:
        """Wait no longer with what promises nothing."""
        if self._unpromised_since:
            self._turn.at_end(self._hand_over)

    def run(self, errand: Callable[[sa.Connection], T]) -> "asyncio.Future[T]":
        """Do something else on the write connection, in its turn and in a transaction of its own."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self.submit(errand, answer)
        self._hand_over()
        return answer

    def step(self, row: int, errand: Callable[[sa.Connection], T]) -> "asyncio.Future[T]":
        """Do something to one row on the write connection, in a transaction that it shares; see ``Step``."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self.submit(Step(row, errand), answer)
        return answer

    def _refuse(self, answer: WriteAnswer[T]) -> bool:
        """Refuse a write if the journal is closed or, while there is no room, the database is silent."""
        refusal = self.overdue
        if self._closing:
            refusal = JournalUnavailable("the journal is closed", "repeat the call when the broker runs")
        if refusal is not None and not answer.done():
            answer.set_exception(refusal)
        return refusal is not None

    def _hand_over_late(self) -> None:
        """Hand over what promises nothing, if it has waited long enough."""
        self._timer = None
        if not self._unpromised_since:
            return
        left = self._unpromised_since + UNPROMISED_SECONDS - time.monotonic()
        if left > 0:
            # What the timer was set for has gone with another write.
            self._timer = self._loop.call_later(left, self._hand_over_late)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        self._is_handing_over = False
        self._unpromised_since = 0.0
        if self._gathered:
            self._calls.append(self._gathered)
            self._gathered = []
            if self._nothing_came.locked():
                self._nothing_came.release()

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        going_on = True
        group: list[_Pending] = []
        died_of: BaseException | None = None
        try:
            while going_on:
                group, going_on = self._take()
                self._busy_since = self._busy_since or time.monotonic()
                if self._undecided:
                    self._decide()
                elif self._committer.outage is not None and self._is_time_to_try(group):
                    self._committer.try_to_write()
                elif not group and going_on:
                    self._committer.look()
                answers = self._committer.do(group)
                if UNDECIDED in answers:
                    told = zip(group, answers, strict=True)
                    self._undecided += [pending for pending, answer in told if answer is UNDECIDED]
                if not self._undecided:
                    self._busy_since = None
                self._tell(group, answers)
                if group and self._committer.faults:
                    # What the first of them knew, all that come behind them know.
                    self._committer.forget_faults(group[0].faults_known)
        except BaseException as error:
            died_of = error
        finally:
            self._committer.close()
        self._turn.told.append(partial(self._end, died_of, group))
        self._bell.ring()

    def _is_time_to_try(self, group: Sequence[_Pending]) -> bool:
        """Check whether to try again to write: where nothing comes; for want of room also beside what comes."""
        now = time.monotonic()
        if group and (not self._committer.is_short_of_room or now - self._tried_at < self._pace.ask_again):
            return False
        self._tried_at = now
        return True

    def _tell(self, group: Sequence[_Pending], answers: Sequence[object]) -> None:
        """Tell the loop of answers; and emitters themselves, if the thread has nothing else to do.

        To wake the loop takes a tenth of the time from call to call of an emitter that waits for each answer.
        """
        faults, news = self._committer.faults, self._committer.take_news()
        self._turn.told.append(partial(self._answer, group, answers, faults, news))
        for pending, answer in zip(group, answers, strict=True) if not self._calls else ():
            if type(answer) is SealedGroup and (early := getattr(pending.answer, "early", None)) is not None:
                early(answer)
        self._bell.ring()

    def _decide(self) -> None:
        answers = self._committer.decide()
        if answers is not None:
            decided, self._undecided = self._undecided, []
            self._tell(decided, answers)

    def _take(self) -> tuple[list[_Pending], bool]:
        """Wait for a call, and choose of all that are there then; false says that the writer is being closed.

        Nothing may come for the time of a look: then it takes nothing. Writes pass steps for which this group has no
        room, and errands pass nothing.
        """
        taken, calls = self._taken, self._calls
        if not taken and not calls:
            asks = self._undecided or self._committer.outage
            # It is free where the call that came was taken without a wait: then the whole wait begins.
            while not calls and self._nothing_came.acquire(timeout=self._pace.ask_again if asks else self._pace.look):
                pass
        while calls:
            taken += calls.popleft()
        group: list[_Pending] = []
        left: list[_Pending] = []
        size = steps = 0
        while taken and size <= GROUP_BYTES and len(group) < GROUP_CALLS:
            pending = taken.popleft()
            if pending is None or not isinstance(pending.what, Write):
                if left and (pending is None or callable(pending.what)):
                    taken.appendleft(pending)
                    break
                if pending is None:
                    return group, False
                if isinstance(pending.what, Step):
                    if steps == GROUP_STEPS:
                        left.append(pending)
                        continue
                    steps += 1
            group.append(pending)
            size += pending.size
        taken.extendleft(reversed(left))
        return group, True

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _answer(self, group: Sequence[_Pending], answers: Sequence[object], faults: int, news: News) -> None:
        if self._is_left:
            return
        appends, sealed = news
        if faults != self._faults_known:
            # Not before those who wait are told, now or in the next turn of the loop: what is called until then is of
            # somebody who can't know. It runs ahead of those of the next turn, as they may go on as soon as they know.
            self._loop.call_soon(self._know, faults)
        if appends:
            for tell_stored in self.append_listeners:
                tell_stored(appends)
        for pending, answer in zip(group, answers, strict=True):
            if answer is UNDECIDED:
                continue
            self._pending_bytes -= pending.size
            waits = pending.answer
            if waits.done():
                continue
            if isinstance(answer, XbusError):
                waits.set_exception(answer)
            else:
                waits.set_result(answer)
        if sealed:
            # Behind the answers, which go now: emitters go on while recipients are called.
            for tell in self.seal_listeners:
                self._turn.at_end(partial(tell, sealed))
        if not self.has_room:
            self._look_for_room()

    def _look_for_room(self) -> None:
        if not self.has_room and self._pending_bytes <= self.max_pending_bytes // 2:
            self.has_room = True
            for tell_room in self.room_listeners:
                tell_room()

    def _know(self, faults: int) -> None:
        self._faults_known = faults

    def _end(self, died_of: BaseException | None, last: Sequence[_Pending]) -> None:
        assert self._ended is not None
        if self._is_left:
            return
        self._closing = True
        if died_of is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(died_of)
        # Whoever waits for an answer of the last group, or has waited behind it, will get none.
        waiting: list[_Pending | None] = [*self._undecided, *last, *self._taken, *self._gathered]
        while self._calls:
            waiting += self._calls.popleft()
        for pending in waiting:
            if pending is not None and not pending.answer.done():
                pending.answer.set_exception(JournalUnavailable("the journal has ended", "see the broker's log"))


def silent(seconds: float) -> JournalUnavailable:
    """The error of those who have waited for a database in vain."""
    return JournalUnavailable(f"the database has said nothing for {seconds:.0f} s", "see that it runs, then repeat")
