"""The directory of envelopes: it keeps the open ones, and asks the journal about all others."""

import asyncio
import contextlib
import functools
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from xbus import tracing
from xbus.broker.counts import CountsBy
from xbus.broker.front.envelopes.checks import Checks
from xbus.broker.front.envelopes.closed import ClosedEnvelope, PrunedEnvelope
from xbus.broker.front.envelopes.keyed import PrunedKeyedEnvelope, SealedKeyedEnvelope, key_reused, stored_digest
from xbus.broker.front.envelopes.open import OpenEnvelope
from xbus.broker.front.envelopes.replies import ReplyRequests, SlowAnswers
from xbus.broker.front.envelopes.state import OpenEnvelopeState
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import StoredEnvelope, read_envelope
from xbus.broker.journal.log.replies import read_cancelled
from xbus.broker.journal.objects.stowing import NO_ORDER, Order
from xbus.broker.journal.writes import GroupType, PutEnvelope, PutGroup, SealedGroup, SealReceipt, StartEnvelope
from xbus.clock import Clock
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import EnvelopeIdTaken, JournalUnavailable, XbusError
from xbus.ids import keyed_envelope_id
from xbus.rpc.deferred import Answer, Deferred, Promise, awaited, settled
from xbus.states import EnvelopeState

log = logging.getLogger(__name__)

ASKED_AT_ONCE = 500
"""Envelopes about which one read asks the journal. More would keep other readers waiting for longer."""

SETTLE_SECONDS = 0.5
"""Seconds that a call waits for the fate of earlier ones of its envelope, before it is refused for now."""

COMPARED = 256
"""How many envelopes whose content was removed may be compared at a time; one more, and the oldest begins anew."""

MOST_KEPT = 1_000
"""The open envelopes whose items are kept in memory while they are small, 4 MB at the most. More spare reads where more
clients send at once."""

COUNTED_AT_ONCE = 1_000
"""The envelopes of groups that are counted in one go. Most are alike, so that more cost less; and they take memory."""

Known: TypeAlias = OpenEnvelope | ClosedEnvelope | PrunedKeyedEnvelope
T = TypeVar("T")

_NOBODY: frozenset[bytes] = frozenset()

Act: TypeAlias = Callable[[Known | None], Answer[T]]
"""The act of a call on its envelope, which is None where there is none."""


class TakenEvent(Protocol):
    """An event of a sealed envelope."""

    @property
    def type_name(self) -> str:
        """The name of its event type."""

    @property
    def items(self) -> int:
        """The number of its items."""


@dataclass(slots=True)
class EmitterIntake:
    """The counts of an emitter; ``data_bytes`` are those of the items."""

    envelopes: int = 0
    data_bytes: int = 0


@dataclass(slots=True)
class TypeIntake:
    """The counts of an event type."""

    events: int = 0
    items: int = 0


class Intake:
    """Counts the envelopes that this process has sealed for emitters; repeats of calls count once."""

    def __init__(self) -> None:
        self._by_emitter: CountsBy[int, EmitterIntake] = CountsBy(EmitterIntake)
        self._by_type: CountsBy[str, TypeIntake] = CountsBy(TypeIntake)
        self._rows: list[tuple[int, GroupType, int, int]] = []
        """The emitter, type, bytes and items of envelopes of groups that are not counted yet."""

    @property
    def by_emitter(self) -> Mapping[int | None, EmitterIntake]:
        """The counts by the id of the emitter."""
        self._count_rows()
        return self._by_emitter

    @property
    def by_type(self) -> Mapping[str | None, TypeIntake]:
        """The counts by the name of the event type."""
        self._count_rows()
        return self._by_type

    def take(self, emitter_id: int, receipt: SealReceipt, events: Iterable[TakenEvent]) -> None:
        """Count an envelope that was just sealed."""
        of_emitter = self._by_emitter[emitter_id]
        of_emitter.envelopes += 1
        of_emitter.data_bytes += receipt.data_bytes
        for event in events:
            of_type = self._by_type[event.type_name]
            of_type.events += 1
            of_type.items += event.items

    def take_group(self, sealed: SealedGroup) -> None:
        """Count the envelopes of a group that was just sealed."""
        group = sealed.group
        self._rows += zip(group.emitter_ids, group.types, map(len, group.data), group.items, strict=True)
        if len(self._rows) >= COUNTED_AT_ONCE:
            self._count_rows()

    def _count_rows(self) -> None:
        for (emitter_id, event_type, data_bytes, items), envelopes in Counter(self._rows).items():
            of_emitter = self._by_emitter[emitter_id]
            of_emitter.envelopes += envelopes
            of_emitter.data_bytes += envelopes * data_bytes
            of_type = self._by_type[event_type.name]
            of_type.events += envelopes
            of_type.items += envelopes * items
        self._rows.clear()


class _GivenUp(XbusError):
    """The envelope that a key leads to was cancelled: the key stands for the next one. It never leaves this module.

    Args:
        envelope: the one that was cancelled, or is being cancelled.
    """

    def __init__(self, envelope: Known) -> None:
        super().__init__("the envelope was cancelled")
        self.envelope = envelope


@dataclass(slots=True)
class _WaitingCall(Generic[T]):
    """A call that waits until it is known what there is of its envelope."""

    act: Act[T]
    answer: Promise[T]

    def go_on(self, known: Known | None) -> None:
        """Do it now, unless nobody waits for it any longer."""
        if self.answer.done():
            return
        try:
            outcome = self.act(known)
        except XbusError as refusal:
            self.answer.set_exception(refusal)
        else:
            pass_on(outcome, self.answer)

    def succeed(self, answer: T) -> None:
        """It is done already."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: XbusError) -> None:
        """Do it never."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class _Lookup:
    """Calls that wait, in order of arrival, until the journal has told what it knows of their envelope."""

    waiting: list[_WaitingCall[Any]] = field(default_factory=list)


class EnvelopeDirectory:
    """The envelopes by id.

    After a failed write an envelope is forgotten: what the journal has of it is then what is so.

    Args:
        journal: where envelopes are kept.
        clock: dates what is written.
        checks: lets pass what emitters send.
        replies: gets them.
        tasks: where the journal is asked.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        checks: Checks,
        replies: ReplyRequests,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._checks = checks
        self._open: dict[UUID, OpenEnvelope] = {}
        self._unsettled: dict[UUID, OpenEnvelope] = {}
        self._lookups: dict[UUID, _Lookup] = {}
        self._pruned: dict[UUID, PrunedKeyedEnvelope] = {}
        self._grouped: dict[bytes, Promise[SealedGroup]] = {}
        """The envelopes of groups that are being written, by their ids."""
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._answers = SlowAnswers(self.later, replies, checks.wants_reply)
        self.intake = Intake()
        """The count of what was sealed."""
        self._moment_of = -1, clock.now()
        """The number of a turn of the loop, and its moment."""
        self.called: set[UUID] = set()
        """The envelopes that calls were made for, until somebody takes them out."""

    def __len__(self) -> int:
        """Count the open envelopes that are in memory."""
        return len(self._open)

    def holds_open(self, emitter_id: int) -> bool:
        """Check whether an emitter is in the midst of sending."""
        return any(envelope.emitter_id == emitter_id for envelope in self._open.values())

    def count_open(self, emitter_id: int) -> int:
        """Count the open envelopes of an emitter."""
        return sum(envelope.emitter_id == emitter_id for envelope in self._open.values())

    def holder(self, emitter_id: int, envelope_id: UUID) -> bytes | None:
        """Give the hash of the session that alone may send an envelope.

        Returns:
            None where any session of the emitter may, where that is not known, and to other emitters.
        """
        known = self._open.get(envelope_id) or self._pruned.get(envelope_id)
        return known.holder if known is not None and known.emitter_id == emitter_id else None

    def open(self, emitter_id: int, envelope_id: UUID, options: EnvelopeHead = PLAIN_HEAD) -> OpenEnvelope:
        """Begin an envelope that there is not."""
        size = len(options.headers or b"")
        ordering_key, key, headers = options
        state = OpenEnvelopeState(envelope_id, emitter_id, data_bytes=size, key=key, headers=headers)
        state.ordering_key, state.kept = ordering_key, [] if len(self._open) < MOST_KEPT else None
        envelope = self._keep(state)
        self.called.add(envelope_id)
        state.opened_at = now = self._moment()
        envelope.write(StartEnvelope(envelope_id, emitter_id, now, options))
        return envelope

    def opened(self, envelope_id: UUID) -> OpenEnvelope | None:
        """Give an envelope that is open in memory, for a call of its emitter."""
        self.called.add(envelope_id)
        # Those who wait for a look at the journal have acted before anybody else finds the envelope here.
        return self._open.get(envelope_id)

    def with_envelope(self, envelope_id: UUID, act: Act[T]) -> Answer[T]:
        """Do ``act`` with an envelope: at once where it is in memory, else in order when the journal has been asked."""
        known = self.opened(envelope_id)
        if known is not None:
            return act(known)
        lookup = self._lookups.get(envelope_id)
        if lookup is None:
            lookup = self._lookups[envelope_id] = _Lookup()
            self._spawn(self._look_up(envelope_id, lookup))
        call = _WaitingCall(act, Promise())
        lookup.waiting.append(call)
        return Deferred.of(call.answer)

    async def forget_cancelled(self) -> list[UUID]:
        """Forget the envelopes in memory that somebody else cancelled in the journal; gives their ids.

        Raises:
            JournalUnavailable: the journal can't say now.
        """
        # One that is being looked up may have been read before it was cancelled: its turn comes behind that.
        here = [*self._open, *self._lookups]
        forgotten: list[UUID] = []
        for some in portions(here, ASKED_AT_ONCE):
            for envelope_id in await self._journal.read(read_cancelled, some):
                stored = await self._journal.read(read_envelope, envelope_id)
                end = functools.partial(self._end, None if stored is None else stored.reason)
                if await awaited(self.with_envelope(envelope_id, end)):
                    forgotten.append(envelope_id)
        return forgotten

    def _end(self, reason: str | None, known: Known | None) -> bool:
        """End an envelope that was cancelled in the journal; whether it was thought to be open."""
        # What is being closed learns of it by the answer to that.
        if not isinstance(known, OpenEnvelope) or known.state.closing is not None:
            return False
        known.state.cancelled = reason or "no reason is kept"
        self._forget(known)
        return True

    def has_heard_of(self, envelope_id: UUID) -> bool:
        """Check whether an envelope is open, or a call for it is under way. The journal knows more of any other."""
        is_here = envelope_id in self._lookups or envelope_id in self._open or envelope_id in self._unsettled
        return is_here or (bool(self._grouped) and envelope_id.bytes in self._grouped)

    def heard_of(self, envelope_ids: Sequence[bytes]) -> AbstractSet[bytes]:
        """Give those of some envelopes of which ``has_heard_of`` is true."""
        if not (self._grouped or self._lookups or self._open or self._unsettled):
            return _NOBODY
        found = self._grouped.keys() & envelope_ids
        for here in (self._lookups, self._open, self._unsettled):
            if here:
                found.update({each.bytes for each in here}.intersection(envelope_ids))
        return found

    def put_group(self, group: PutGroup) -> Promise[SealedGroup]:
        """Write envelopes of which nothing is known here. Other calls for them wait until that is answered."""
        # What ends behind it in this turn of the loop has a later moment.
        self._moment_of = -1, group.at
        writing: Promise[SealedGroup] = Promise()
        self._grouped.update(dict.fromkeys(group.envelope_ids, writing))
        writing.add_done_callback(functools.partial(self._answer_group, group))
        order = Order(group.emitter_ids[0]) if self._journal.keeps_objects else NO_ORDER
        self._journal.submit(group, writing, order=order)
        return writing

    def _answer_group(self, group: PutGroup, writing: Promise[SealedGroup]) -> None:
        deque(map(self._grouped.pop, group.envelope_ids), maxlen=0)
        if (sealed := writing.answer) is not None:
            self.intake.take_group(sealed)
            heads = sealed.group.heads
            # Most envelopes with headers have no trace, and a receipt of each would take longer than all else here.
            for place, (_, _, headers) in enumerate(heads if heads.count(PLAIN_HEAD) < len(heads) else ()):
                if headers and tracing.IN_BYTES in headers:
                    trace_received(headers, group.at, group.at, sealed.receipt(place))

    def put(self, write: PutEnvelope, writing: Promise[SealReceipt], act: Act[SealReceipt]) -> Deferred[SealReceipt]:
        """Write a whole envelope of which nothing is known here. Other calls for it wait until that is answered.

        Args:
            writing: gets the answer to the write.
            act: what the call does instead, where the journal turns out to have an envelope of that id.
        """
        self._moment_of = -1, write.at
        lookup = self._lookups[write.envelope_id] = _Lookup()
        call = _WaitingCall(act, Promise())
        self._journal.submit(write, writing, order=Order(write.emitter_id))
        writing.add_done_callback(functools.partial(self._answer_put, write, lookup, call))
        return Deferred.of(call.answer)

    def _answer_put(
        self,
        write: PutEnvelope,
        lookup: _Lookup,
        call: _WaitingCall[SealReceipt],
        writing: Promise[SealReceipt],
    ) -> None:
        envelope_id = write.envelope_id
        error = writing.exception()
        if isinstance(error, EnvelopeIdTaken):
            lookup.waiting.insert(0, call)
        elif isinstance(error, XbusError):
            call.fail(error)
        else:
            receipt = writing.result()
            self.intake.take(write.emitter_id, receipt, write.events)
            if write.head.headers is not None:
                trace_received(write.head.headers, write.at, write.at, receipt)
            call.succeed(receipt)
        if lookup.waiting:
            self._spawn(self._look_up(envelope_id, lookup))
        else:
            del self._lookups[envelope_id]

    def with_key(
        self, emitter_id: int, options: EnvelopeHead, act: Callable[[UUID, Known | None], Answer[T]]
    ) -> Deferred[T]:
        """Do ``act`` with the envelope that an emitter's key stands for: the first under it that was not cancelled.

        Args:
            act: gets its id too; None stands for one that there is not.

        Raises:
            Refused: key_reused, where the id that the key leads to is that of an envelope without it.
        """
        return Deferred.of(self.later(self._act_with_key(emitter_id, options, act)))

    async def _act_with_key(
        self, emitter_id: int, options: EnvelopeHead, act: Callable[[UUID, Known | None], Answer[T]]
    ) -> T:
        assert options.key is not None
        generation = 0
        while True:
            envelope_id = keyed_envelope_id(emitter_id, options.key, generation)

            def try_to_act(known: Known | None, envelope_id: UUID = envelope_id) -> Answer[T]:
                if known is not None and (known.emitter_id, known.key) != (emitter_id, options.key):
                    raise key_reused(f"envelope {envelope_id} is there without the key {options.key!r:.80}")
                if known is not None and known.is_given_up:
                    raise _GivenUp(known)
                return act(envelope_id, known)

            try:
                return await awaited(self.with_envelope(envelope_id, try_to_act))
            except _GivenUp as cancelled:
                envelope = cancelled.envelope
            if isinstance(envelope, OpenEnvelope):
                # A cancel may fail, and leave the envelope open: only what the journal says of it counts.
                await envelope.settled()
            else:
                generation += 1

    async def _look_up(self, envelope_id: UUID, lookup: _Lookup) -> None:
        error: XbusError | None = None
        known: Known | None = None
        try:
            await self._settle(envelope_id)
            stored = await self._journal.read(read_envelope, envelope_id)
            known = None if stored is None else await self._know(stored)
        except XbusError as caught:
            error = caught
        self._answer_waiting(envelope_id, lookup, known, error)

    def _answer_waiting(self, envelope_id: UUID, lookup: _Lookup, known: Known | None, error: XbusError | None) -> None:
        """Act for all who waited for a look at the journal, in one go: a later call finds the envelope in memory."""
        del self._lookups[envelope_id]
        for call in lookup.waiting:
            if error is not None:
                call.fail(error)
            elif (put := self._lookups.get(envelope_id)) is not None:
                # One of those before has put the envelope.
                put.waiting.append(call)
            else:
                call.go_on(self._open.get(envelope_id, known))

    async def _settle(self, envelope_id: UUID) -> None:
        """Wait until the journal has answered all that was written of an envelope before it was forgotten.

        Raises:
            JournalUnavailable: it can't say for now what became of a write.
        """
        if (writing := self._grouped.get(envelope_id.bytes)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await settled(writing)
            if not writing.done():
                raise JournalUnavailable("what became of an earlier write is not known yet", "repeat the call later")
        unsettled = self._unsettled.get(envelope_id)
        if unsettled is None:
            return
        await unsettled.settled(SETTLE_SECONDS)
        if not unsettled.is_settled:
            raise JournalUnavailable("what became of an earlier write is not known yet", "repeat the call later")

    async def _know(self, stored: StoredEnvelope) -> Known:
        if stored.state is EnvelopeState.OPEN:
            digests = {}
            if stored.head.key is not None:
                digests = {
                    event.event_id: await stored_digest(self._journal, event.event_id) for event in stored.events
                }
            return self._keep(OpenEnvelopeState.of_stored(stored, digests))
        if stored.state is EnvelopeState.CANCELLED:
            kind = ClosedEnvelope
        elif stored.head.key is None:
            kind = PrunedEnvelope if stored.pruned else ClosedEnvelope
        elif stored.pruned:
            return self._compare(stored)
        else:
            kind = SealedKeyedEnvelope
        return kind(stored, self._journal, self._answers.replies)

    def _compare(self, stored: StoredEnvelope) -> PrunedKeyedEnvelope:
        pruned = self._pruned.get(stored.envelope_id)
        if pruned is None:
            if len(self._pruned) >= COMPARED:
                del self._pruned[next(iter(self._pruned))]
            pruned = self._pruned[stored.envelope_id] = PrunedKeyedEnvelope(stored, self._checks)
        return pruned

    def _keep(self, state: OpenEnvelopeState) -> OpenEnvelope:
        envelope = OpenEnvelope(state, self._journal, self._checks, self._forget, self._answers, self._moment)
        self._open[state.envelope_id] = envelope
        return envelope

    def _moment(self) -> datetime:
        """Give the moment at which envelopes end. It is one for a turn of the loop, so that they can be a group."""
        turn = self._journal.turn
        if not turn.is_busy:
            return self._clock.now()
        if turn.number != self._moment_of[0]:
            self._moment_of = turn.number, self._clock.now()
        return self._moment_of[1]

    def _forget(self, envelope: OpenEnvelope) -> None:
        envelope_id = envelope.state.envelope_id
        if self._open.get(envelope_id) is envelope:
            del self._open[envelope_id]
            if (receipt := envelope.receipt) is not None:
                state = envelope.state
                self.intake.take(envelope.emitter_id, receipt, state.events.values())
                if state.headers is not None and state.sealed_at is not None:
                    trace_received(state.headers, state.opened_at, state.sealed_at, receipt)
            if not envelope.is_settled:
                self._unsettled[envelope_id] = envelope
                self._spawn(self._let_go(envelope))

    async def _let_go(self, envelope: OpenEnvelope) -> None:
        await envelope.settled()
        if self._unsettled.get(envelope.state.envelope_id) is envelope:
            del self._unsettled[envelope.state.envelope_id]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The broker is ending, and answers nobody any more.
            work.close()

    def later(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """The answer that ``work`` will give; its error is the caller's, and no death of a task."""
        answer: asyncio.Future[T] = self._loop.create_future()

        async def give() -> None:
            try:
                outcome = await work
            except XbusError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(outcome)

        self._spawn(give())
        return answer


def pass_on(outcome: Answer[T], answer: Promise[T]) -> None:
    """Give ``answer`` an outcome, at once or when it is there."""
    if not isinstance(outcome, Deferred):
        answer.set_result(outcome)
        return

    def give(outcome: Deferred[T]) -> None:
        if answer.done():
            return
        if outcome.cancelled():
            answer.set_exception(asyncio.CancelledError())
        elif (error := outcome.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(outcome.result())

    outcome.add_done_callback(give)


def trace_received(
    headers: bytes | None, opened_at: datetime | None, sealed_at: datetime, receipt: SealReceipt
) -> None:
    """Trace an envelope that was just sealed, if its headers ask for it.

    Args:
        headers: packed.
        opened_at: when its first call came; None if that was before a restart.
        sealed_at: when its seal was written.
    """
    parent = tracing.parent_of(headers)
    if parent is None:
        return
    about: tracing.Attributes = {"xbus.envelope_id": str(receipt.envelope_id), "xbus.position": receipt.position}
    receiving = tracing.begin("receive", parent, {**about, "xbus.items": receipt.items}, opened_at or sealed_at)
    if receiving is None:
        return
    commit = tracing.begin("commit", receiving.context, about, sealed_at)
    if commit is not None:
        commit.end()
    receiving.end()
