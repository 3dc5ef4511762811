"""Hands batches of one reader to its programs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from xbus.broker.back.log import LogSlices
from xbus.broker.back.readers.calls import BatchCall, ReadingProgram, Settlement
from xbus.broker.back.readers.sharing import RangeLease, RangeSharing
from xbus.broker.back.readers.waiting import WaitingCalls
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
    pass_to,
    put_out,
    read_ranges,
    release,
    settle,
    settle_and_put_out,
    take,
)
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.rpc.messages import BatchAnswer, ClaimedBatchMap, RangesAnswer

MAX_LAG = "max_lag"
"""The name in the history of who skips what a reader has not read in time."""

POLLS_PER_LEASE = 2
"""A program with ranges waits in one call for a part of the lease. More make more calls of idle programs."""


class ReaderDesk:
    """One reader, whose programs share its ranges.

    What is in memory is what the journal has, with leases beside: a step that the journal refuses has it read anew.

    Args:
        entry: the reader's settings.
        journal: keeps the ranges.
        slices: reads the log.
        clock: measures leases.
    """

    def __init__(self, entry: ReaderEntry, journal: Journal, slices: LogSlices, clock: Clock) -> None:
        self.entry = entry
        self.sharing = RangeSharing(entry.lease)
        self._journal = journal
        self._slices = slices
        self._clock = clock
        self._ranges: dict[int, ReaderRange] = {}
        self._busy: set[int] = set()
        """The ranges for which a step is under way."""
        self.calls = WaitingCalls(slices)
        self._waits_since: dict[int, float] = {}
        """Since when a range has items that are too few for a batch."""
        self._turn = 0

    # -- calls -----------------------------------------------------------------------------------------------------

    async def read(self, program: ReadingProgram, call: BatchCall, is_paused: Callable[[], bool]) -> BatchAnswer:
        """Settle what is done, and find the next batch, or wait for it.

        Raises:
            Refused: the program has lost what it settles (``lease_lost``), or the place is not within its batch.
            JournalUnavailable: the database can't do it now.
        """
        self.sharing.renew(program.id, self._clock.monotonic())
        with self.calls.calling(program.id) as is_newest:
            batch = None
            if call.done is not None:
                batch = await self._go_on(program, call, call.done, is_paused)
            if batch is None:
                batch = await self._poll(program, call, is_paused, is_newest)
        return {"lease": self.entry.lease, "ranges": len(self.sharing.of(program.id)), "batch": batch}

    async def _poll(
        self,
        program: ReadingProgram,
        call: BatchCall,
        is_paused: Callable[[], bool],
        is_newest: Callable[[], bool],
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
            waits = (self._waits_since.get(lease.range_id) for lease in own)
            fills = [since + self.entry.batch_wait for since in waits if since is not None]
            types = self.entry.event_types if own else frozenset()
            await self.calls.wait(changes, min([heard_until, *fills]), types, head)
        return None

    async def settle(self, program: ReadingProgram, done: Settlement) -> None:
        """Settle a batch up to a place.

        Raises:
            Refused: the program has lost the range (``lease_lost``), or the place is not within its batch
                (``place_not_in_batch``).
            JournalUnavailable: the database can't be written now.
        """
        self.sharing.renew(program.id, self._clock.monotonic())
        await self._settle(self._owing(program, done))

    async def _go_on(
        self, program: ReadingProgram, call: BatchCall, done: Settlement, is_paused: Callable[[], bool]
    ) -> ClaimedBatchMap | None:
        """Settle a batch, with the bounds of the next one where that is there already and was not out before."""
        owing = self._owing(program, done)
        batch = None
        if not self._ranges[done.range_id].settled(done.place).handed_out and not is_paused():
            batch = await self._next(program, call, owing)
        if not owing.is_settled:
            await self._settle(owing)
        return batch

    def _owing(self, program: ReadingProgram, done: Settlement) -> "_Owing":
        lease = self._lease(program, done.range_id, done.counter)
        note = ActNote(uuid4(), self._clock.now(), program.login, ReaderAct.CHECKPOINT)
        return _Owing(lease, SettleStep(_known(lease, program.id), done.place, note))

    async def _settle(self, owing: "_Owing") -> None:
        try:
            settled = await self._journal.run(settle, owing.step.lease, owing.step.place, owing.step.note)
        except Refused as refusal:
            if refusal.code == "lease_lost":
                await self.follow()
            raise
        self._was_settled(owing, settled)

    def _was_settled(self, owing: "_Owing", settled: ReaderRange) -> None:
        owing.is_settled = True
        lease = owing.lease
        self._ranges[settled.id] = settled
        if lease.counter == owing.step.lease.counter:
            lease.counter = settled.counter
        lease.is_out = settled.handed_out
        if lease.heir is not None and lease.owner == owing.step.lease.program and not lease.is_out:
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
        self.calls.forget(program.id)
        left = self.sharing.leave(program.id)
        self.wake()
        await self._journal.run(release, [_known(lease, program.id) for lease in left])

    def unheard(self, range_id: int, counter: int) -> None:
        """Free the ranges of a program that a batch did not reach, unless it calls again already."""
        lease = self.sharing.leases.get(range_id)
        if lease is None or lease.counter != counter or lease.owner is None or lease.owner in self.calls:
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
        found = await self._journal.run(read_ranges, [self.entry.id])
        self._ranges = {each.id: each for each in found}
        rows = [(each.id, each.counter, each.owner, each.handed_out) for each in found]
        self.sharing.follow(rows, self._clock.monotonic())
        self.wake()

    async def pass_to(self, place: Place, reason: str) -> int:
        """Have ranges go on at a place that stand before it; returns how many do.

        A batch that is out stays so: it is forgotten only where its program is gone and it ends before the place.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        moved = 0
        note = ActNote(uuid4(), self._clock.now(), MAX_LAG, ReaderAct.SKIP, reason)
        for lease in list(self.sharing.leases.values()):
            known = self._ranges[lease.range_id]
            is_in_use = known.handed_out and (lease.owner is not None or known.batch_end > place)
            if lease.range_id in self._busy or known.place >= place or is_in_use:
                continue
            self._busy.add(lease.range_id)
            try:
                passed = await self._journal.run(pass_to, known, place, note)
            except Refused:
                return moved
            finally:
                self._busy.discard(lease.range_id)
            self._ranges[passed.id] = passed
            lease.counter, lease.is_out = passed.counter, passed.handed_out
            moved += 1
        if moved:
            self.wake()
        return moved

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
        self.calls.wake()

    # -- the next batch --------------------------------------------------------------------------------------------

    async def _next(self, program: ReadingProgram, call: BatchCall, owing: "_Owing | None") -> ClaimedBatchMap | None:
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
            known = _known(lease, program.id)
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
        self, lease: RangeLease, program: ReadingProgram, call: BatchCall, owing: "_Owing | None"
    ) -> ClaimedBatchMap | None:
        current = self._ranges[lease.range_id]
        if owing is not None and owing.lease is lease:
            current = current.settled(owing.step.place)
        is_repeated = current.handed_out
        bounds = SliceBounds(
            min(call.max_items or self.entry.batch_items, self.entry.batch_items),
            min(call.max_bytes or self.entry.batch_bytes, self.entry.batch_bytes),
        )
        found = await (self._read_again(current, bounds) if is_repeated else self._read_on(current, bounds))
        if (
            found is None
            or (is_repeated and found.archived)
            or (not is_repeated and self._is_too_small(current.id, found, bounds))
        ):
            return None
        if not is_repeated:
            self._waits_since.pop(current.id, None)
            try:
                current = await self._put_out(_known(lease, program.id), found.to, owing)
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
            "repeated": is_repeated,
            "events": [event_map(event) for event in found.events],
        }

    async def _put_out(self, known: LeaseOf, to: Place, owing: "_Owing | None") -> ReaderRange:
        if owing is None:
            out = await self._journal.run(put_out, known, to, self._expires_at())
        else:
            settled, out = await self._journal.run(settle_and_put_out, owing.step, known, to, self._expires_at())
            self._was_settled(owing, settled)
        self._ranges[out.id] = out
        return out

    async def _read_again(self, current: ReaderRange, bounds: SliceBounds) -> Slice | None:
        """Read the items of a batch; nothing while an archive has some of them."""
        found = await self._slices.read(self.entry.event_types, current.stretches, bounds)
        return None if found.archived else found

    async def _read_on(self, current: ReaderRange, bounds: SliceBounds) -> Slice | None:
        """Read the next items of a range; nothing at the head of the log, where nothing needs to be read either."""
        while current.place.position <= self._slices.head:
            found = await self._slices.read(self.entry.event_types, current.stretches, bounds)
            if found.events:
                return found
            before, current = current.place, current.passed(found.to)
            known = self._ranges.get(current.id)
            if known is not None and (known.counter, known.handed_out) == (current.counter, False):
                self._ranges[current.id] = current
            if found.to <= before:
                return None
        return None

    def _is_too_small(self, range_id: int, found: Slice, bounds: SliceBounds) -> bool:
        """Check whether a batch is to wait for more items."""
        if not self.entry.batch_wait or found.to.position <= self._slices.head:
            return False
        if sum(event.items for event in found.events) >= bounds.items:
            return False
        now = asyncio.get_running_loop().time()
        return now < self._waits_since.setdefault(range_id, now) + self.entry.batch_wait

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _lease(self, program: ReadingProgram, range_id: int, counter: int) -> RangeLease:
        lease = self.sharing.leases.get(range_id)
        if lease is None or (lease.owner, lease.counter) != (program.id, counter):
            raise lease_lost(range_id)
        return lease

    def _expires_at(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.entry.lease)


@dataclass(slots=True)
class _Owing:
    """A batch that its program has processed, until the journal has noted it."""

    lease: RangeLease
    step: SettleStep
    is_settled: bool = False


def _known(lease: RangeLease, program: UUID) -> LeaseOf:
    return LeaseOf(lease.range_id, lease.counter, program)
