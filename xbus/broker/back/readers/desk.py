"""Hands batches of one reader to its programs."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from xbus.broker.back.log import LogSlices
from xbus.broker.back.readers.calls import BatchCall, ReadingProgram, Settlement
from xbus.broker.back.readers.failing import FailingBatches, NextAttempt
from xbus.broker.back.readers.owing import OwedSettlement, lease_of
from xbus.broker.back.readers.sharing import RangeLease, RangeSharing
from xbus.broker.back.readers.times import BatchTimes
from xbus.broker.back.reading import event_map
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices import Place, Slice, SliceBounds
from xbus.broker.journal.readers import (
    ActNote,
    LeaseOf,
    ReaderAct,
    ReaderEntry,
    ReaderRange,
    SettleStep,
    lease_lost,
    put_out,
    read_served_ranges,
    release,
    settle,
    settle_and_put_out,
    take,
)
from xbus.broker.journal.readers.parked import BatchFailure, park, postpone
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.rpc.messages import BatchAnswer, ClaimedBatchMap, RangesAnswer

POLLS_PER_LEASE = 3
"""A call waits for a batch for a part of the lease. More make more calls of idle programs."""


class ReaderDesk:
    """One reader, whose programs share its ranges.

    What is in memory is what the journal has, with leases beside: a step that the journal refuses has it read anew.

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
        self._journal = journal
        self._slices = slices
        self._clock = clock
        self._failing = failing
        self._ranges: dict[int, ReaderRange] = {}
        self._busy: set[int] = set()
        """The ranges for which a step is under way."""
        self._polls: dict[UUID, object] = {}
        """The newest call for a batch of each program that waits for one."""
        self._times = BatchTimes(clock)
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = 0

    # -- calls -----------------------------------------------------------------------------------------------------

    async def read(self, program: ReadingProgram, call: BatchCall, is_paused: Callable[[], bool]) -> BatchAnswer:
        """Settle what is done, and find the next batch, or wait for it.

        Raises:
            Refused: the program has lost what it settles (``lease_lost``), or the place is not within its batch.
            JournalUnavailable: the database can't do it now.
        """
        poll = self._polls[program.id] = object()
        self.sharing.renew(program.id, self._clock.monotonic())
        try:
            batch = None
            if call.done is not None:
                batch = await self._go_on(program, call, call.done, is_paused)
            # Who waits calls again in time: so its silence tells of its end, however that came.
            wait = min(call.wait, self.entry.lease / POLLS_PER_LEASE)
            until = asyncio.get_running_loop().time() + wait
            # A program that asks again has not heard the answer to its former call.
            while batch is None and self._polls.get(program.id) is poll:
                head, changed = self._slices.head, self._changed
                if not is_paused():
                    batch = await self._next(program, call, None)
                has_ranges = bool(self.sharing.of(program.id))
                if batch is None and not await self._wait(program, head if has_ranges else None, changed, until):
                    break
        finally:
            if self._polls.get(program.id) is poll:
                del self._polls[program.id]
        return {"lease": self.entry.lease, "ranges": len(self.sharing.of(program.id)), "batch": batch}

    async def settle(self, program: ReadingProgram, done: Settlement) -> None:
        """Settle a batch up to a place.

        Raises:
            Refused: the program has lost the range (``lease_lost``), or the place is not within its batch
                (``place_not_in_batch``).
            JournalUnavailable: the database can't be written now.
        """
        self.sharing.renew(program.id, self._clock.monotonic())
        await self._settle(self._owing(program, done))

    async def fail(self, program: ReadingProgram, failed: Settlement, failure: BatchFailure) -> NextAttempt | None:
        """Have the batch that is out handed out again later, or park it; None for a batch that is out no more.

        Args:
            failed: names the batch by its end.

        Raises:
            Refused: the program has lost the range (``lease_lost``).
            JournalUnavailable: the database can't be written now.
        """
        self.sharing.renew(program.id, self._clock.monotonic())
        lease = self._lease(program, failed.range_id, failed.counter)
        current = self._ranges[failed.range_id]
        if not current.handed_out or current.batch_end != failed.place:
            return None
        decided = self._failing.failed(self.entry, current, failure.code)
        known = lease_of(lease, program.id)
        try:
            if decided.retry_at is not None:
                after: ReaderRange | None = await self._journal.run(postpone, known, decided.attempts, decided.retry_at)
            else:
                note = ActNote(uuid4(), self._clock.now(), program.login, ReaderAct.PARK, failure.code)
                after = await self._journal.run(park, known, decided.attempts, failure, note)
        except Refused:
            await self.follow()
            raise
        self._keep(lease, known, after)
        return decided

    async def _go_on(
        self, program: ReadingProgram, call: BatchCall, done: Settlement, is_paused: Callable[[], bool]
    ) -> ClaimedBatchMap | None:
        """Settle a batch, with the bounds of the next one where that is there already and was not out before."""
        owing = self._owing(program, done)
        batch = None
        behind = self._ranges[done.range_id].settled(done.place)
        if not behind.handed_out and not behind.has_ended and not is_paused():
            batch = await self._next(program, call, owing)
        if not owing.is_settled:
            await self._settle(owing)
        return batch

    def _owing(self, program: ReadingProgram, done: Settlement) -> OwedSettlement:
        lease = self._lease(program, done.range_id, done.counter)
        note = ActNote(uuid4(), self._clock.now(), program.login, ReaderAct.CHECKPOINT)
        return OwedSettlement(lease, SettleStep(lease_of(lease, program.id), done.place, note))

    async def _settle(self, owing: OwedSettlement) -> None:
        try:
            settled = await self._journal.run(settle, owing.step.lease, owing.step.place, owing.step.note)
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
        """Take up a range as its owner has left it; None for a parked batch, which has ended."""
        if changed is None:
            self._ranges.pop(known.range_id, None)
            self.sharing.leases.pop(known.range_id, None)
            return
        self._ranges[changed.id] = changed
        if lease.counter == known.counter:
            lease.counter = changed.counter
        lease.is_out = changed.handed_out
        if lease.heir is not None and lease.owner == known.program and not lease.is_out:
            lease.owner = None
            self.wake()

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
            JournalUnavailable: the database can't be written now; they are free all the same.
        """
        self._polls.pop(program.id, None)
        left = self.sharing.leave(program.id)
        self.wake()
        await self._journal.run(release, [lease_of(lease, program.id) for lease in left])

    def unheard(self, range_id: int, counter: int) -> None:
        """Free the ranges of a program that a batch did not reach, unless it calls again already."""
        lease = self.sharing.leases.get(range_id)
        if lease is None or lease.counter != counter or lease.owner is None or lease.owner in self._polls:
            return
        self.sharing.leave(lease.owner)
        self.wake()

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
        self._ranges = {each.id: each for each in found}
        rows = [(each.id, each.counter, each.owner, each.handed_out) for each in found]
        self.sharing.follow(rows, self._clock.monotonic())
        self.wake()

    def look(self) -> None:
        """Free what silent programs had; nobody is silent for whom a step is under way, as the journal may be slow."""
        now = self._clock.monotonic()
        for range_id in self._busy:
            lease = self.sharing.leases.get(range_id)
            if lease is not None and lease.owner is not None:
                self.sharing.renew(lease.owner, now)
        if self.sharing.expire(now):
            self.wake()

    def wake(self) -> None:
        """Have all that wait look again."""
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    # -- the next batch --------------------------------------------------------------------------------------------

    async def _wait(
        self, program: ReadingProgram, head: int | None, changed: "asyncio.Future[None]", until: float
    ) -> bool:
        """Wait until there may be more than there was; false once the time is over.

        Args:
            program: that waits.
            head: the end of the log then; None for a program without a range, which more events do not concern.
            changed: is done when ranges may have become free.
        """
        loop = asyncio.get_running_loop()
        left = until - loop.time()
        if left <= 0:
            return False
        own = [self._ranges[lease.range_id] for lease in self.sharing.of(program.id)]
        due = [self._times.seconds_to(each, self.entry.batch_wait) for each in own]
        left = min([left, *(seconds for seconds in due if seconds > 0)])
        if head is None:
            await asyncio.wait({changed}, timeout=left)
            return True
        beyond = loop.create_task(self._slices.beyond(self.entry.event_types, Place(head + 1)))
        try:
            await asyncio.wait({beyond, changed}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            beyond.cancel()
        return True

    async def _next(
        self, program: ReadingProgram, call: BatchCall, owing: OwedSettlement | None
    ) -> ClaimedBatchMap | None:
        """Find the next batch.

        Args:
            owing: what is settled together with its bounds.
        """
        ended = None if owing is None else owing.lease.range_id
        while (free := self.sharing.next_for(program.id)) is not None and free.range_id not in self._busy:
            if not await self._take(free, program):
                break
        for lease in self.sharing.of(program.id, ended):
            is_out = lease.is_out and lease.range_id != ended
            if lease.range_id in self._busy or (lease.heir is not None and not is_out):
                continue
            self._busy.add(lease.range_id)
            try:
                batch = await self._batch(lease, program, call, owing)
            finally:
                self._busy.discard(lease.range_id)
            if batch is not None:
                return batch
        return None

    async def _take(self, lease: RangeLease, program: ReadingProgram) -> bool:
        self._busy.add(lease.range_id)
        try:
            known = lease_of(lease, program.id)
            taken = await self._journal.run(take, known, program.role_id, self._expires_at())
        except Refused:
            await self.follow()
            return False
        finally:
            self._busy.discard(lease.range_id)
        self._ranges[taken.id] = taken
        lease.is_out = taken.handed_out
        self.sharing.took(lease, program.id, taken.counter, self._clock.monotonic())
        return True

    async def _batch(
        self, lease: RangeLease, program: ReadingProgram, call: BatchCall, owing: OwedSettlement | None
    ) -> ClaimedBatchMap | None:
        current = self._ranges[lease.range_id]
        if owing is not None and owing.lease is lease:
            current = current.settled(owing.step.place)
        is_repeated = current.handed_out
        if self._times.is_too_early(current):
            return None
        bounds = SliceBounds(
            min(call.max_items or self.entry.batch_items, self.entry.batch_items),
            min(call.max_bytes or self.entry.batch_bytes, self.entry.batch_bytes),
        )
        again = self._slices.read(self.entry.event_types, current.stretches, bounds) if is_repeated else None
        found = await (again or self._read_on(current, bounds))
        if found is None or (not is_repeated and self._is_too_small(current.id, found, bounds)):
            return None
        if not is_repeated:
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
        return {
            "range": current.id,
            "counter": current.counter,
            "from": [*current.batch_begin],
            "to": [*current.batch_end],
            "id": current.batch_id(self.entry.key),
            "repeated": is_repeated,
            "events": [event_map(event) for event in found.events],
        }

    async def _put_out(self, known: LeaseOf, to: Place, owing: OwedSettlement | None) -> ReaderRange:
        if owing is None:
            out = await self._journal.run(put_out, known, to, self._expires_at())
        else:
            settled, out = await self._journal.run(settle_and_put_out, owing.step, known, to, self._expires_at())
            self._was_settled(owing, settled)
        self._ranges[out.id] = out
        return out

    async def _read_on(self, current: ReaderRange, bounds: SliceBounds) -> Slice | None:
        """Read the next items of a range; nothing at the head of the log."""
        while True:
            found = await self._slices.read(self.entry.event_types, current.stretches, bounds)
            if found.events:
                return found
            before, current = current.place, current.passed(found.to)
            known = self._ranges.get(current.id)
            if known is not None and (known.counter, known.handed_out) == (current.counter, False):
                self._ranges[current.id] = current
            if found.to.position > self._slices.head or found.to <= before:
                return None

    def _is_too_small(self, range_id: int, found: Slice, bounds: SliceBounds) -> bool:
        """Check whether a batch is to wait for more items."""
        if not self.entry.batch_wait or found.to.position <= self._slices.head:
            return False
        if sum(event.items for event in found.events) >= bounds.items:
            return False
        return self._times.may_wait(range_id, self.entry.batch_wait)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _lease(self, program: ReadingProgram, range_id: int, counter: int) -> RangeLease:
        lease = self.sharing.leases.get(range_id)
        if lease is None or (lease.owner, lease.counter) != (program.id, counter):
            raise lease_lost(range_id)
        return lease

    def _expires_at(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.entry.lease)
