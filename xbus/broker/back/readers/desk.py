"""Hands batches of one reader to its programs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias
from uuid import UUID, uuid4

from xbus.broker.back.log import LogSlices
from xbus.broker.back.readers.calls import BatchCall, ReadingProgram, Settlement
from xbus.broker.back.readers.failing import FailingBatches, NextAttempt
from xbus.broker.back.readers.known_ranges import KnownRanges
from xbus.broker.back.readers.sharing import RangeLease, RangeSharing
from xbus.broker.back.readers.steps import RangeSteps
from xbus.broker.back.readers.waiting import WaitingCalls
from xbus.broker.back.reading import event_map
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices.items import DamagedItems
from xbus.broker.journal.log.slices.values import Place, Slice, SliceBounds
from xbus.broker.journal.readers.parked import BatchFailure, park, park_next, postpone
from xbus.broker.journal.readers.ranges import ReaderRange, read_served_ranges
from xbus.broker.journal.readers.settings import ReaderEntry
from xbus.broker.journal.readers.steps import (
    ActNote,
    LeaseOf,
    ReaderAct,
    SettleStep,
    lease_lost,
    pass_idle,
    pass_to,
    release,
)
from xbus.clock import Clock, span
from xbus.errors import JournalUnavailable, Refused
from xbus.rpc.messages import BatchAnswer, ClaimedBatchMap, RangesAnswer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OwedSettlement:
    """A lease, with the step that settles its batch."""

    lease: RangeLease
    step: SettleStep
    is_settled: bool = False


def lease_of(lease: RangeLease, program: UUID) -> LeaseOf:
    """Give a lease as the journal knows it."""
    return LeaseOf(lease.range_id, lease.counter, program)


def batch_bounds(entry: ReaderEntry, call: BatchCall) -> SliceBounds:
    """Give the bounds of a batch: those of the reader, or smaller ones of the program."""
    return SliceBounds(
        min(call.max_items or entry.batch_items, entry.batch_items),
        min(call.max_bytes or entry.batch_bytes, entry.batch_bytes),
    )


async def read_owed(slices: LogSlices, entry: ReaderEntry, current: ReaderRange, bounds: SliceBounds) -> Slice:
    """Read the next items of a range, or those of its batch, without events that the reader does not get."""
    found = await slices.read(entry.read_types, current.stretches, bounds)
    if not entry.spans:
        return found
    owed = [each for each in found.events if entry.gets(each.facts.type_name, each.facts.position)]
    return replace(found, events=tuple(owed))


def batch_map(entry: ReaderEntry, out: ReaderRange, found: Slice, *, is_repeated: bool) -> ClaimedBatchMap:
    """Make the answer that hands a batch out.

    Args:
        out: the range whose batch it is.
        found: its items.
        is_repeated: whether it was handed out before.
    """
    return {
        "range": out.id,
        "counter": out.counter,
        "from": [*out.batch_begin],
        "to": [*out.batch_end],
        "id": out.batch_id(entry.key),
        "repeated": is_repeated,
        "events": [event_map(event) for event in found.events],
    }


class BatchTimes:
    """The times of the ranges of one reader.

    Args:
        clock: says what time it is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits_since: dict[int, float] = {}
        """Since when a range has items that are too few for a batch."""

    def may_wait(self, range_id: int, batch_wait: float) -> bool:
        """Check whether items that are too few for a batch may wait for more."""
        now = self._clock.monotonic()
        return batch_wait > 0 and now < self._waits_since.setdefault(range_id, now) + batch_wait

    def put_out(self, range_id: int) -> None:
        """Note that a range has a batch."""
        self._waits_since.pop(range_id, None)

    def is_too_early(self, found: ReaderRange) -> bool:
        """Check whether the batch that is out is not to be handed out again yet."""
        return found.handed_out and found.retry_at is not None and self._clock.now() < found.retry_at

    def seconds_to(self, found: ReaderRange, batch_wait: float) -> float:
        """Say in how many seconds a range has a batch by itself; 0 or less for no such moment."""
        if found.handed_out:
            return 0.0 if found.retry_at is None else (found.retry_at - self._clock.now()).total_seconds()
        if found.id in self._waits_since:
            return self._waits_since[found.id] + batch_wait - self._clock.monotonic()
        return 0.0


MAX_LAG = "max_lag"
"""The name in the history for the limit that skips events which a reader has not read in time."""

BUS = "xbus"
"""The name in the history for the bus itself."""

POLLS_PER_LEASE = 2
"""A program with ranges waits in one call for a part of the lease. More make more calls of idle programs."""

PASSED_SECONDS = 10.0
"""Seconds between notes of ranges into which nothing falls. More leave them behind for longer, and write less."""

Check: TypeAlias = Callable[[], bool]


class ReaderDesk:
    """One reader, whose programs share its ranges.

    Memory has the state of the journal, with leases beside: a step that the journal refuses has it read anew.

    Args:
        entry: the reader's settings.
        journal: keeps the ranges.
        slices: reads the log.
        clock: measures leases.
        failing: decides about batches that a subscriber does not take.
    """

    def __init__(
        self, entry: ReaderEntry, journal: Journal, slices: LogSlices, clock: Clock, failing: FailingBatches
    ) -> None:
        self.entry = entry
        self.sharing = RangeSharing(entry.lease)
        self._known = KnownRanges(self.sharing, clock)
        self._journal = journal
        self._steps = RangeSteps(journal)
        self._slices = slices
        self._clock = clock
        self._failing = failing
        self.calls = WaitingCalls(slices)
        self._times = BatchTimes(clock)
        self._turn = 0
        self._freed: list[LeaseOf] = []
        """The leases of lost programs, until the journal knows that they have ended."""
        self._passed_at = -PASSED_SECONDS

    # -- calls -----------------------------------------------------------------------------------------------------

    async def read(self, program: ReadingProgram, call: BatchCall, is_paused: Check) -> BatchAnswer:
        """Settle what is done, and find the next batch, or wait for it.

        Raises:
            Refused: the program has lost what it settles (``lease_lost``), or the place is not within its batch.
            JournalUnavailable: the database can't do it now.
        """
        self._hear(program, call.done)
        with self.calls.calling(program.id) as is_newest:
            batch = None if call.done is None else await self._go_on(program, call, call.done, is_paused)
            if batch is None:
                batch = await self._poll(program, call, is_paused, is_newest)
        return {"lease": self.entry.lease, "ranges": len(self.sharing.of(program.id)), "batch": batch}

    async def _poll(
        self, program: ReadingProgram, call: BatchCall, is_paused: Check, is_newest: Check
    ) -> ClaimedBatchMap | None:
        """Wait for a batch.

        A program with ranges is answered in time to call again, as its silence tells of its end. One without may wait
        longer, as it has nothing to lose. It counts as gone meanwhile: it has to call again before it gets a range.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + call.wait
        heard_until = min(until, loop.time() + self.entry.lease / POLLS_PER_LEASE)
        while is_newest():
            head, changes = self._slices.head, self.calls.changes
            batch = None if is_paused() else await self._next(program, call, None)
            is_late = loop.time() >= heard_until
            if batch is not None or (is_late and self.sharing.is_concerned(program.id)):
                return batch
            if is_late:
                await self.calls.wait(changes, until)
                break
            own = self.sharing.of(program.id)
            due = [self._times.seconds_to(self._known[lease.range_id], self.entry.batch_wait) for lease in own]
            fills = [loop.time() + seconds for seconds in due if seconds > 0]
            await self.calls.wait(changes, min([heard_until, *fills]), self.entry.event_types if own else set(), head)
        return None

    async def settle(self, program: ReadingProgram, done: Settlement) -> None:
        """Settle a batch up to a place.

        Raises:
            Refused: the program has lost the range (``lease_lost``), or the place is not within its batch
                (``place_not_in_batch``).
            JournalUnavailable: the database can't be written now.
        """
        self._hear(program, done)
        await self._settle(self._owing(program, done))

    async def fail(self, program: ReadingProgram, failed: Settlement, failure: BatchFailure) -> NextAttempt | None:
        """Have the batch that is out handed out again later, or park it. None for a batch that is out no more.

        Args:
            failed: names the batch by its end.

        Raises:
            Refused: the program has lost the range (``lease_lost``), or called with settings that are no longer in
                force (``settings_changed``).
            JournalUnavailable: the database can't be written now.
        """
        self._hear(program, failed)
        lease = self._known.lease(program.id, failed.range_id, failed.counter)
        current = self._known[failed.range_id]
        if not current.handed_out or current.batch_end != failed.place:
            return None
        decided = self._failing.failed(self.entry, current, failure.code)
        known = lease_of(lease, program.id)
        try:
            if decided.retry_at is not None:
                after: ReaderRange | None = await self._journal.run(
                    postpone, known, decided.attempts, failure, decided.retry_at
                )
            else:
                note = self._note(program.login, ReaderAct.PARK, failure.code)
                after = await self._journal.run(park, known, decided.attempts, failure, note)
        except Refused:
            await self.follow()
            raise
        self._keep(lease, known, after)
        return decided

    def _hear(self, program: ReadingProgram, done: Settlement | None) -> None:
        """Note a sign of life. A program without ranges gives none by a settlement: it would keep ranges from others.

        Raises:
            Refused: the program has no range, so it has lost that of the settlement (``lease_lost``).
        """
        if done is not None and not self.sharing.is_concerned(program.id):
            raise lease_lost(done.range_id)
        self.sharing.renew(program.id, self._clock.monotonic())

    async def _go_on(
        self, program: ReadingProgram, call: BatchCall, done: Settlement, is_paused: Check
    ) -> ClaimedBatchMap | None:
        """Settle a batch, with the bounds of the next one where that is there already and was not out before."""
        owing = self._owing(program, done)
        batch = None
        behind = self._known[done.range_id].settled(done.place)
        if not behind.handed_out and not behind.has_ended and not is_paused():
            batch = await self._next(program, call, owing)
        if not owing.is_settled:
            await self._settle(owing)
        return batch

    def _owing(self, program: ReadingProgram, done: Settlement) -> OwedSettlement:
        lease = self._known.lease(program.id, done.range_id, done.counter)
        step = SettleStep(lease_of(lease, program.id), done.place, self._note(program.login, ReaderAct.CHECKPOINT))
        return OwedSettlement(lease, step)

    async def _settle(self, owing: OwedSettlement) -> None:
        try:
            settled = await self._steps.settle(owing.step)
        except Refused as refusal:
            if refusal.code == "lease_lost":
                await self.follow()
            raise
        self._was_settled(owing, settled)

    def _was_settled(self, owing: OwedSettlement, settled: ReaderRange) -> None:
        owing.is_settled = True
        self._failing.taken(settled.id)
        self._keep(owing.lease, owing.step.lease, None if settled.has_ended else settled)

    def _keep(self, lease: RangeLease, known: LeaseOf, changed: ReaderRange | None) -> None:
        if self._known.keep(lease, known, changed):
            self.calls.wake()

    def renew(self, program: ReadingProgram) -> RangesAnswer:
        """Note a sign of life; answer which ranges the program has, and which of them it is to give up."""
        self.sharing.renew(program.id, self._clock.monotonic())
        self.sharing.next_for(program.id)
        own = self.sharing.of(program.id)
        return {
            "ranges": [[lease.range_id, lease.counter] for lease in own],
            "give_up": [lease.range_id for lease in own if lease.heir is not None],
        }

    async def leave(self, program: ReadingProgram) -> None:
        """Give all ranges of a program up in order.

        Raises:
            JournalUnavailable: the database can't be written now; they are free all the same, and a later look writes
                it down.
        """
        self.calls.forget(program.id)
        left = [lease_of(lease, program.id) for lease in self.sharing.leave(program.id)]
        self.calls.wake()
        try:
            await self._journal.run(release, left)
        except JournalUnavailable:
            self._freed += left
            raise

    def unheard(self, range_id: int, counter: int) -> None:
        """Free the ranges of a program that a batch did not reach, unless it calls again already."""
        lease = self.sharing.leases.get(range_id)
        if lease is None or lease.counter != counter or lease.owner is None or lease.owner in self.calls:
            return
        owner = lease.owner
        self._freed += [lease_of(left, owner) for left in self.sharing.leave(owner)]
        self.calls.wake()

    # -- changes from outside --------------------------------------------------------------------------------------

    async def follow(self, entry: ReaderEntry | None = None) -> None:
        """Take up the ranges as the journal has them, and other settings.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        if entry is not None:
            self.entry, self.sharing.seconds = entry, entry.lease
        # In the turn of the steps that are under way, so that none of them is missed.
        found = await self._journal.run(read_served_ranges, self.entry.id)
        self._known.follow(found)
        self.calls.wake()

    async def pass_to(self, place: Place, reason: str) -> int:
        """Have the ranges that stand before a place go on there; returns how many do.

        A batch that is out, and nobody works on, is forgotten if it ends before the place. A resumed batch stays.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        moved, note = 0, self._note(MAX_LAG, ReaderAct.SKIP, reason)
        for lease in list(self.sharing.leases.values()):
            known = self._known[lease.range_id]
            is_idle = lease.owner is None or self._times.is_too_early(known)
            is_in_use = known.batch_of is not None or (known.handed_out and (known.batch_end > place or not is_idle))
            if self._known.is_busy(lease.range_id) or known.place >= place or is_in_use:
                continue
            try:
                with self._known.busy(lease.range_id):
                    passed = await self._journal.run(pass_to, known, place, note)
            except Refused:
                return moved
            self._known.put(passed)
            lease.owner, lease.counter, lease.is_out = passed.owner, passed.counter, passed.handed_out
            moved += 1
        self.calls.wake()
        return moved

    async def look(self) -> None:
        """Free the ranges of silent programs, and write down the free ranges and those that have passed foreign
        events.

        Raises:
            JournalUnavailable: the database can't be written now. A later look does it.
        """
        silent = self._known.expire()
        if silent:
            self.calls.wake()
        self._freed += [lease_of(lease, program) for program, leases in silent.items() for lease in leases]
        if freed := list(self._freed):
            # Else commands show a program that was lost as one that reads, until another takes its ranges.
            await self._journal.run(release, freed)
            self._freed = self._freed[len(freed) :]
        await self._write_passed()

    async def _write_passed(self) -> None:
        now = self._clock.monotonic()
        if now < self._passed_at + PASSED_SECONDS or not (passed := self._known.take_passed()):
            return
        self._passed_at = now
        try:
            await self._journal.run(pass_idle, passed, self._note(BUS, ReaderAct.PASS))
        except JournalUnavailable:
            for each in passed:
                self._known.pass_on(each)
            raise

    # -- the next batch --------------------------------------------------------------------------------------------

    async def _next(
        self, program: ReadingProgram, call: BatchCall, owing: OwedSettlement | None
    ) -> ClaimedBatchMap | None:
        """Find the next batch.

        Args:
            owing: what is settled together with its bounds.
        """
        ended = None if owing is None else owing.lease.range_id
        while (free := self.sharing.next_for(program.id)) is not None and not self._known.is_busy(free.range_id):
            if not await self._take(free, program):
                break
        for lease in self.sharing.of(program.id, ended):
            is_out = lease.is_out and lease.range_id != ended
            if self.sharing.leases.get(lease.range_id) is not lease:
                # 1. Somebody moves this range. 2. The journal refuses the step of the range before, and all ranges are
                # read anew. 3. What is known of this one has nothing to do with the lease that was listed.
                continue
            if self._known.is_busy(lease.range_id) or (lease.heir is not None and not is_out):
                continue
            with self._known.busy(lease.range_id):
                batch = await self._batch_unless_damaged(lease, program, call, owing)
            if batch is not None:
                return batch
        return None

    async def _take(self, lease: RangeLease, program: ReadingProgram) -> bool:
        with self._known.busy(lease.range_id):
            try:
                taken = await self._steps.take(lease_of(lease, program.id), program.role_id, self._expires_at())
            except Refused:
                await self.follow()
                return False
        self._known.put(taken)
        lease.is_out = taken.handed_out
        if program.id not in self.calls and program.id not in self.sharing.programs:
            # 1. A call takes a range. 2. Its program leaves. 3. The journal answers: nobody would read the range.
            lease.owner, lease.counter = None, taken.counter
            self._freed.append(lease_of(lease, program.id))
            self.calls.wake()
            return False
        self.sharing.took(lease, program.id, taken.counter, self._clock.monotonic())
        return True

    async def _batch_unless_damaged(
        self, lease: RangeLease, program: ReadingProgram, call: BatchCall, owing: OwedSettlement | None
    ) -> ClaimedBatchMap | None:
        """Make the next batch of a range; where its items are damaged, they are parked and the range goes on."""
        try:
            return await self._batch(lease, program, call, owing)
        except DamagedItems as error:
            if owing is None or owing.lease is not lease or owing.is_settled:
                await self._park_damaged(lease, program, error)
            # Else the caller settles first, and finds the damage again.
            return None

    async def _park_damaged(self, lease: RangeLease, program: ReadingProgram, error: DamagedItems) -> None:
        current, known = self._known[lease.range_id], lease_of(lease, program.id)
        where = {"action": error.code, "reader": self.entry.name, "range": lease.range_id}
        log.error("items of range %s of reader %s are parked: %s", lease.range_id, self.entry.name, error, extra=where)
        failure, note = BatchFailure(error.code, error.cause), self._note(BUS, ReaderAct.PARK, error.code)
        try:
            if current.handed_out:
                after = await self._journal.run(park, known, current.attempts, failure, note)
            else:
                after = await self._journal.run(park_next, known, error.to, failure, note)
        except Refused:
            await self.follow()
            return
        self._keep(lease, known, after)
        self.calls.wake()

    async def _batch(
        self, lease: RangeLease, program: ReadingProgram, call: BatchCall, owing: OwedSettlement | None
    ) -> ClaimedBatchMap | None:
        current = self._known[lease.range_id]
        if owing is not None and owing.lease is lease:
            current = current.settled(owing.step.place)
        is_repeated = current.handed_out
        if self._times.is_too_early(current):
            return None
        bounds = batch_bounds(self.entry, call)
        found = await (self._read_again(current, bounds) if is_repeated else self._read_on(current, bounds))
        if found is None:
            return None
        if not is_repeated:
            is_small = found.ends_log and found.items < bounds.items
            if is_small and self._times.may_wait(current.id, self.entry.batch_wait):
                return None
            self._times.put_out(current.id)
            try:
                current = await self._put_out(lease_of(lease, program.id), found.to, owing)
            except Refused:
                await self.follow()
                return None
        if lease.owner != program.id or lease.counter != current.counter:
            return None
        lease.is_out = True
        self._turn += 1
        lease.served = self._turn
        behind = current.settled(current.batch_end)
        if not (found.ends_log or behind.handed_out or behind.has_ended):
            self._slices.read_ahead(self.entry.read_types, behind.stretches, bounds)
        return batch_map(self.entry, current, found, is_repeated=is_repeated)

    async def _put_out(self, known: LeaseOf, to: Place, owing: OwedSettlement | None) -> ReaderRange:
        if owing is None:
            out = await self._steps.put_out(known, to, self._expires_at())
        else:
            settled, out = await self._steps.settle_and_put_out(owing.step, known, to, self._expires_at())
            self._was_settled(owing, settled)
        self._known.put(out)
        return out

    async def _read_again(self, current: ReaderRange, bounds: SliceBounds) -> Slice | None:
        """Read the items of a batch; nothing while an archive has some of them."""
        found = await read_owed(self._slices, self.entry, current, bounds)
        return None if found.archived else found

    async def _read_on(self, current: ReaderRange, bounds: SliceBounds) -> Slice | None:
        """Read the next items of a range. At the head of the log read nothing, and give none."""
        while current.place.position <= self._slices.head:
            found = await read_owed(self._slices, self.entry, current, bounds)
            if found.events:
                return found
            before, current = current.place, current.passed(found.to)
            self._known.pass_on(current)
            if found.to <= before:
                return None
        return None

    def _note(self, by: str, act: ReaderAct, reason: str = "") -> ActNote:
        return ActNote(uuid4(), self._clock.now(), by, act, reason)

    def _expires_at(self) -> datetime:
        return self._clock.now() + span(self.entry.lease)
