"""The front carries out the calls of emitters, whichever verbs bring them. ``verbs`` puts it on the wire."""

import asyncio
import functools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar
from uuid import UUID

from xbus.broker.front.envelopes import (
    Checks,
    EndedEvent,
    EnvelopeDirectory,
    Intake,
    Known,
    NewEvent,
    OpenEnvelope,
    ReplyRequests,
    envelope_unknown,
    not_plain,
)
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import PutEnvelope, SealedGroup, SealReceipt
from xbus.clock import Clock
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import CallError, Failed, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import numbered_event_id, token_hash
from xbus.rpc.codec import Value, pack_item
from xbus.rpc.deferred import Answer, Deferred, Promise

T = TypeVar("T")


class Front:
    """Carries out the calls of emitters, whichever verbs they speak.

    Each call gives its answer at once or later; what it raises may also come out of the later one.

    Args:
        replies: gets immediate replies.
        ring: called whenever an envelope was cancelled that a recipient may hold open.
        tasks: where what calls leave running runs.
        space: says whether there is space for more.
    """

    def __init__(
        self,
        journal: Journal,
        checks: Checks,
        clock: Clock,
        replies: ReplyRequests,
        ring: Callable[[], None],
        tasks: asyncio.TaskGroup,
        space: Space,
    ) -> None:
        self._ring = ring
        self._space = space
        self._checks = checks
        self._clock = clock
        self._envelopes = EnvelopeDirectory(journal, clock, checks, replies, tasks)
        self._large_bytes = journal.large_bytes
        self.keeps_objects = journal.keeps_objects
        """Whether large data goes to an object store: then emitters wait for their own data only."""
        self._has_holders = False
        """Whether any session has taken an envelope over by its key."""

    @property
    def intake(self) -> Intake:
        """The count of what was sealed."""
        return self._envelopes.intake

    @property
    def open_envelopes(self) -> int:
        """The number of open envelopes that are in memory."""
        return len(self._envelopes)

    def has_open_envelope(self, emitter_id: int) -> bool:
        """Check whether an emitter is in the midst of sending."""
        return self._envelopes.holds_open(emitter_id)

    def start_envelope(
        self, emitter_id: int, envelope_id: UUID, *, is_new: bool, options: EnvelopeHead = PLAIN_HEAD
    ) -> Answer[UUID]:
        """Open an envelope; it promises nothing and need not be waited for. A repeat changes nothing.

        Args:
            options: without a key.
            is_new: whether the id was made here and now, so that the journal can't know it.
        """

        def start(known: "Known | None") -> "Answer[UUID]":
            if known is None:
                self._check_open(emitter_id)
                self._envelopes.open(emitter_id, envelope_id, options)
            else:
                _check_owner(known, emitter_id, envelope_id)
                known.check_headers(options.headers)
            return envelope_id

        return start(None) if is_new else self._envelopes.with_envelope(envelope_id, start)

    def start_keyed(self, emitter_id: int, session: bytes, options: EnvelopeHead) -> Deferred[UUID]:
        """Open the envelope that the emitter's key stands for, go on with it, or begin to repeat it. Answered with
        its id. From then on this session alone may send it.

        Args:
            session: the hash of the caller's token.
            options: with a key.

        Raises:
            Refused: key_reused, where an envelope that has not this key has the id that it leads to, or the sealed one
                has other headers; content_differs, where the open one has.
        """

        def start(envelope_id: UUID, known: Known | None) -> Answer[UUID]:
            if known is None:
                self._check_open(emitter_id)
                known = self._envelopes.open(emitter_id, envelope_id, options)
            self._hold(known, session)
            known.check_headers(options.headers)
            return envelope_id

        return self._envelopes.with_key(emitter_id, options, start)

    def _check_open(self, emitter_id: int) -> None:
        """Let an emitter open an envelope.

        Raises:
            Failed: slow_down, and those of ``_check_new``.
        """
        self._check_new(emitter_id)
        self._checks.throttle.check_open(emitter_id, self._envelopes.count_open)

    def _check_new(self, emitter_id: int, data_bytes: int = 0) -> None:
        """Let an emitter begin an envelope, while it is not paused and the journal has space.

        Args:
            data_bytes: of the items that come with it.

        Raises:
            Failed: paused, journal_full.
        """
        self._checks.new_envelope(emitter_id)
        self._space.check_new()
        self._space.take(emitter_id, data_bytes)

    def held(self, emitter_id: int, token: str, envelope_id: UUID) -> UUID:
        """Give the id of an envelope that no other session of the emitter has taken over by its key.

        Raises:
            Refused: session_superseded.
        """
        holder = self._envelopes.holder(emitter_id, envelope_id) if self._has_holders else None
        if holder is not None and holder != token_hash(token):
            raise Refused(
                f"another session goes on with envelope {envelope_id}, by its key",
                "leave it to that session, or begin the envelope again with its key",
                code="session_superseded",
            )
        return envelope_id

    def _hold(self, known: Known, session: bytes) -> None:
        self._has_holders = True
        known.hold(session)

    def start_event(
        self,
        emitter_id: int,
        envelope_id: UUID,
        event_id: UUID,
        type_name: str,
        estimate: int,
        tags: EventTags = NO_TAGS,
        number: int | None = None,
    ) -> Answer[UUID]:
        """Begin an event; it promises nothing and need not be waited for.

        Args:
            tags: its headers and its partition key.
            number: its place in the envelope, from 1; None for behind all others.

        Raises:
            Refused: unknown_type, type_not_allowed, envelope_unknown, envelope_closed, content_differs.
        """

        def start(known: "Known") -> UUID:
            if number is not None and isinstance(known, OpenEnvelope):
                known.check_number(event_id, number)
            return known.start_event(event_id, type_name, estimate, tags)

        return self._call(emitter_id, envelope_id, start)

    def append(
        self, emitter_id: int, envelope_id: UUID, event_id: UUID, first_index: int | None, items: int, data: bytes
    ) -> Answer[int]:
        """Take items; answered with how many the event holds up to these, durably. See ``OpenEnvelope.append``.

        Raises:
            Refused: batch_too_large, item_too_large, bad_items, and those of ``OpenEnvelope.append``.
        """
        self._checks.batch(items, data)
        append = functools.partial(self._append, emitter_id, event_id, first_index, items, data)
        return self._call(emitter_id, envelope_id, append)

    def append_item(self, emitter_id: int, envelope_id: UUID, event_id: UUID, item: bytes) -> Answer[int]:
        """Take one item, behind all others. See ``OpenEnvelope.append``.

        Raises:
            Refused: item_too_large, and those of ``OpenEnvelope.append``.
        """
        self._checks.item_size(len(item))
        append = functools.partial(self._append, emitter_id, event_id, None, 1, pack_item(item))
        return self._call(emitter_id, envelope_id, append)

    def _append(
        self, emitter_id: int, event_id: UUID, first_index: int | None, items: int, data: bytes, known: Known
    ) -> Deferred[int]:
        """Append to a known envelope, while the journal has space."""
        self._space.check_more()
        self._space.take(emitter_id, len(data))
        try:
            appending = known.append(event_id, first_index, items, data)
        except CallError:
            self._space.give_back((emitter_id,), (data,))
            raise
        self._space.await_storing((emitter_id,), (data,), appending)
        return appending

    def end_event(self, emitter_id: int, envelope_id: UUID, event_id: UUID, items: int | None) -> Answer[EndedEvent]:
        """End an event; answered with its ``EndedEvent``, durably. See ``OpenEnvelope.end_event``."""
        return self._call(emitter_id, envelope_id, lambda known: known.end_event(event_id, items))

    def end_envelope(self, emitter_id: int, envelope_id: UUID, events: int | None) -> Answer[SealReceipt]:
        """Seal an envelope; answered with its receipt. See ``OpenEnvelope.seal``."""
        return self._call(emitter_id, envelope_id, lambda known: known.seal(events))

    def cancel_envelope(self, emitter_id: int, envelope_id: UUID) -> Answer[bool]:
        """Give an envelope up; answered with True. See ``OpenEnvelope.cancel``."""
        return self._call(emitter_id, envelope_id, self._cancel)

    def called(self) -> set[UUID]:
        """The envelopes that calls were made for since this was asked last."""
        called, self._envelopes.called = self._envelopes.called, set()
        return called

    def give_up(self, envelope_id: UUID, reason: str) -> Answer[bool]:
        """Cancel an envelope whose emitter has left it; answered with whether that was still to be done."""

        def cancel(known: Known | None) -> Answer[bool]:
            return known.cancel(reason).map(self._cancelled) if isinstance(known, OpenEnvelope) else False

        return self._envelopes.with_envelope(envelope_id, cancel)

    async def forget_cancelled(self) -> Collection[UUID]:
        """Forget the open envelopes that an operator cancelled in the journal; their next calls get the reason.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        forgotten = await self._envelopes.forget_cancelled()
        if forgotten:
            self._ring()
        return forgotten

    def put_envelope(
        self,
        emitter_id: int,
        envelope_id: UUID,
        events: Sequence[NewEvent],
        options: EnvelopeHead = PLAIN_HEAD,
        *,
        is_taken: bool = False,
    ) -> Answer[SealReceipt]:
        """Take a whole envelope in one call; answered with its receipt, and so is a repeat.

        Args:
            options: without a key.
            is_taken: whether the journal has said that its id is taken, or that of an event.

        Raises:
            Refused: as the single calls would; then nothing of it is kept.
        """

        put = functools.partial(self._put, emitter_id, envelope_id, events, options)
        if is_taken or self._envelopes.has_heard_of(envelope_id):
            return self._envelopes.with_envelope(envelope_id, put)
        try:
            return put(None)
        except CallError:
            # A repeat is answered as the first time, whatever is allowed by now.
            return self._envelopes.with_envelope(envelope_id, put)

    # A method, as a closure that names itself would keep its items until the collector comes.
    def _put(
        self,
        emitter_id: int,
        envelope_id: UUID,
        events: Sequence[NewEvent],
        options: EnvelopeHead,
        known: Known | None,
    ) -> Answer[SealReceipt]:
        if known is not None:
            _check_owner(known, emitter_id, envelope_id)
            return Deferred.of(self._envelopes.later(self._put_again(known, events, options)))
        puts = self._checks.whole(emitter_id, envelope_id, events, len(options.headers or b""))
        data_bytes = sum(len(event.data) for event in events)
        self._check_new(emitter_id, data_bytes)
        try:
            self._checks.throttle.charge(emitter_id, sum(event.items for event in events), data_bytes)
        except Failed:
            self._space.give_back([emitter_id] * len(events), [event.data for event in events])
            raise
        write = PutEnvelope(envelope_id, emitter_id, puts, self._clock.now(), options)
        writing: Promise[SealReceipt] = Promise()
        put_again = functools.partial(self._put, emitter_id, envelope_id, events, options)
        answer = self._envelopes.put(write, writing, put_again)
        self._space.await_storing((emitter_id,) * len(events), [event.data for event in events], writing)
        return answer

    def may_group(self, emitter_ids: Sequence[int], entries: Sequence[Value]) -> bool:
        """Check whether envelopes may come as a group: nothing is known of them. Limits are left out that they use up.

        Raises:
            CallError: one of them could not come alone, or has to.
        """
        return not self._envelopes.heard_of(self._checks.group(emitter_ids, entries, self._large_bytes).envelope_ids)

    def put_group(self, emitter_ids: Sequence[int], entries: Sequence[Value]) -> Promise[SealedGroup]:
        """Take envelopes of one event each, all or none of them; answered with what was sealed.

        Args:
            emitter_ids: of the emitter of each.
            entries: the envelopes as ``GroupIntake.put_envelopes`` gets them.

        Raises:
            CallError: one of them could not come alone, or has to; or all together are too much for now.
        """
        group = self._checks.group(emitter_ids, entries, self._large_bytes)
        if self._envelopes.heard_of(group.envelope_ids):
            raise not_plain()
        self._space.take_new(emitter_ids, group.data)
        try:
            self._checks.throttle.charge_all(emitter_ids, group.items, group.data)
        except Failed:
            self._space.give_back(emitter_ids, group.data)
            raise
        writing = self._envelopes.put_group(group)
        self._space.await_storing(emitter_ids, group.data, writing)
        return writing

    def put_keyed(
        self, emitter_id: int, session: bytes, events: Sequence[NewEvent], options: EnvelopeHead
    ) -> Deferred[SealReceipt]:
        """Take the whole envelope that the emitter's key stands for; answered with its receipt, and so is a repeat.

        Args:
            session: the hash of the caller's token.
            events: their ids are made here.
            options: with a key.

        Raises:
            Refused: as ``put_envelope`` and ``start_keyed``.
        """

        def put(envelope_id: UUID, known: Known | None) -> Answer[SealReceipt]:
            numbered = [
                event._replace(event_id=numbered_event_id(envelope_id, number))
                for number, event in enumerate(events, start=1)
            ]
            if known is not None:
                self._hold(known, session)
            return self._put(emitter_id, envelope_id, numbered, options, known)

        return self._envelopes.with_key(emitter_id, options, put)

    def _call(self, emitter_id: int, envelope_id: UUID, act: Callable[[Known], Answer[T]]) -> Answer[T]:
        opened = self._envelopes.opened(envelope_id)
        if opened is not None and opened.emitter_id == emitter_id:
            return act(opened)

        # In quotes, as annotations of inner functions are worked out at each call.
        def act_as_owner(known: "Known | None") -> "Answer[T]":
            if known is None or known.emitter_id != emitter_id:
                raise envelope_unknown(envelope_id)
            return act(known)

        return self._envelopes.with_envelope(envelope_id, act_as_owner)

    def _cancel(self, known: Known) -> Deferred[bool]:
        return known.cancel("cancelled by its emitter").map(self._cancelled)

    def _cancelled(self, cancelled: bool) -> bool:
        self._ring()
        return cancelled

    async def _put_again(self, known: Known, events: Sequence[NewEvent], options: EnvelopeHead) -> SealReceipt:
        """Compare a repeat with its first time; do now what a crash of the broker left undone."""
        known.check_headers(options.headers)
        answers: list[Deferred[int] | Deferred[EndedEvent]] = []
        try:
            for event in events:
                known.start_event(event.event_id, event.type_name, event.items, event.tags)
                if event.items:
                    answers.append(known.append(event.event_id, 0, event.items, event.data))
                answers.append(known.end_event(event.event_id, event.items))
        except CallError:
            # What follows them tells as much.
            for answer in answers:
                answer.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())
            raise
        await asyncio.gather(*answers)
        return await known.seal(len(events))


def _check_owner(known: Known, emitter_id: int, envelope_id: UUID) -> None:
    if known.emitter_id != emitter_id:
        raise envelope_unknown(envelope_id)
