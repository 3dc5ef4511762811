"""An open envelope: each call is checked, counted, and written behind the one before."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from xbus.broker.front.envelopes.checks import Checks, check_events, check_room
from xbus.broker.front.envelopes.closed import check_same_items, content_differs, other_headers, started_otherwise
from xbus.broker.front.envelopes.replies import SlowAnswers
from xbus.broker.front.envelopes.resend_checks import ResendChecks, both
from xbus.broker.front.envelopes.state import (
    EndedEvent,
    OpenEnvelopeState,
    OpenEventState,
    Writing,
    envelope_closed,
)
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.objects.stowing import NO_ORDER, Order
from xbus.broker.journal.writes import (
    Append,
    Cancel,
    EndEvent,
    GroupType,
    Seal,
    SealReceipt,
    StartEnvelope,
    StartEvent,
    Write,
)
from xbus.errors import EnvelopeCancelled, Failed, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import pack_items, unpack_items
from xbus.rpc.deferred import Deferred, Promise, settled

log = logging.getLogger(__name__)

UNPROMISED = (StartEnvelope, StartEvent)
"""The writes that promise nothing, and go along with what first promises something."""

LARGEST_ESTIMATE = 2**63 - 1
"""The largest estimate that the journal can keep; it is a hint, and is cut rather than refused."""


class OpenEnvelope:
    """An open envelope with its journal behind it.

    Every answer that promises something is there when it is durable.

    Args:
        state: what is known of it.
        checks: lets pass what its emitter sends.
        forget: called with this object when a write failed or it is closed: then what the journal has counts.
        answers: for what takes longer than a write.
        moment: gives the moment of its end.
    """

    def __init__(
        self,
        state: OpenEnvelopeState,
        journal: Journal,
        checks: Checks,
        forget: Callable[["OpenEnvelope"], None],
        answers: SlowAnswers,
        moment: Callable[[], datetime],
    ) -> None:
        self.state = state
        self.emitter_id = state.emitter_id
        self._journal = journal
        self._moment = moment
        self._checks = checks
        self._forget = forget
        self._answers = answers
        self._unanswered: set[Writing] = set()
        self._comparisons = ResendChecks()

    @property
    def key(self) -> str | None:
        return self.state.key

    @property
    def holder(self) -> bytes | None:
        """The hash of the session that alone may send it; None where any may."""
        return self.state.holder

    @property
    def is_given_up(self) -> bool:
        """Check whether it is being cancelled."""
        return self.state.giving_up

    @property
    def receipt(self) -> SealReceipt | None:
        """The receipt of its seal; None while it is not sealed, or if it never will be."""
        return None if self.state.closing is None else self.state.closing.answer

    def hold(self, session: bytes) -> None:
        """Have one session alone go on with it, from its beginning."""
        if self.state.holder != session:
            self.state.holder = session
            self._comparisons.begin_anew()

    def write(self, write: Write[SealReceipt | None]) -> Writing:
        """Write behind all that was written of this envelope before."""
        writing: Writing = Promise()
        order = Order(self.emitter_id, self.state.last_write) if self._journal.keeps_objects else NO_ORDER
        self._journal.submit(write, writing, promises=type(write) not in UNPROMISED, order=order)
        self.state.last_write = writing
        self._unanswered.add(writing)
        writing.add_done_callback(self._written)
        return writing

    def _written(self, writing: Writing) -> None:
        self._unanswered.discard(writing)
        error = writing.error
        if error is not None and not writing.cancelled():
            log.warning(
                "a write failed: %s", error, extra={"action": "write_failed", "envelope_id": self.state.envelope_id}
            )
            self._forget(self)

    def check_headers(self, headers: bytes | None) -> None:
        """Let a repeat of its beginning pass that has the same headers.

        Raises:
            Refused: content_differs.
        """
        refusal = other_headers(self.state.envelope_id, self.state.headers, headers)
        if refusal is not None:
            self._other_content("headers", refusal)
            raise refusal
        self._comparisons.agreed("headers")

    def check_number(self, event_id: UUID, number: int) -> None:
        """Let an event begin that comes in its turn, or has begun already.

        Else events would change their order:
        1. The start of the second event is refused, as the journal is away.
        2. The start of the third one, which was sent behind it, succeeds.
        3. The start of the second one is repeated.

        Raises:
            Failed: event_gap, where one before it has not begun.
            Refused: content_differs, where another one has its place.
        """
        begun = len(self.state.events)
        if event_id in self.state.events or number == begun + 1:
            return
        if number <= begun:
            raise content_differs(f"another event is number {number} of envelope {self.state.envelope_id}")
        raise Failed(
            f"event {number} of envelope {self.state.envelope_id} came while it has {begun}",
            f"begin the events from number {begun + 1} on again",
            code="event_gap",
        )

    def start_event(self, event_id: UUID, type_name: str, estimate: int, tags: EventTags = NO_TAGS) -> UUID:
        """Begin an event; it promises nothing and need not be waited for. A repeat changes nothing.

        Raises:
            Refused: unknown_type, type_not_allowed, envelope_closed, envelope_too_large; content_differs where the same
                event was started otherwise.
        """
        known = self.state.events.get(event_id)
        if known is not None:
            if refusal := started_otherwise(event_id, (known.type_name, known.tags), (type_name, tags)):
                self._other_content(("type", event_id), refusal)
                raise refusal
            self._comparisons.agreed(("type", event_id))
            return event_id
        self.state.check_open()
        limits = self._checks.limits(self.emitter_id)
        check_events(self.state.envelope_id, len(self.state.events) + 1, limits)
        event_type = self._checks.event_type(self.emitter_id, type_name)
        if tags is not NO_TAGS:
            check_room(self.state.envelope_id, self.state.items, self.state.data_bytes + tags.size, limits)
        event = self.state.start_event(event_id, type_name, event_type.hashed_name, tags)
        if not event_type.immediate_reply:
            about = (event_type.id, type_name, event_type.hashed_name, event_type.graph_id, event_type.compress)
            event.kind = GroupType(*about)
        self.write(
            StartEvent(
                event_id,
                self.state.envelope_id,
                event.number,
                event_type.id,
                event_type.graph_id,
                min(max(estimate, 0), LARGEST_ESTIMATE),
                tags,
            )
        )
        return event_id

    def append(self, event_id: UUID, first_index: int | None, items: int, data: bytes) -> Deferred[int]:
        """Take items into an event.

        Args:
            first_index: where its sender puts the first of them; None for behind all others.
            data: the items as in ``model.segment``, already checked.

        Returns:
            A future of how many items the event holds up to and including these, durably.

        Raises:
            Refused: envelope_closed, envelope_broken, event_unknown, event_closed, envelope_too_large, or index_gap.
            Failed: slow_down.
        """
        event = self.state.event(event_id)
        if first_index is not None and first_index < event.items:
            return self._repeated_append(event, first_index, items, data)
        self.state.check_open()
        self.state.check_complete(first_index)
        if first_index is not None and first_index > event.items:
            raise Refused(
                f"items from index {first_index} on came while event {event_id} holds {event.items}",
                f"send the items from index {event.items} on",
                code="index_gap",
            )
        self._checks.throttle.charge(self.emitter_id, items, len(data))
        first_index = self.state.take(event, items, data, self._checks.limits(self.emitter_id))
        kind = event.kind
        compress = self._checks.is_compressed(event.type_name) if kind is None else kind.compress
        write = Append(self.state.envelope_id, event_id, first_index, items, data, compress)
        return Deferred(self.write(write)).map(lambda _: first_index + items)

    def _other_content(self, what: Hashable, refusal: Refused) -> None:
        """Under a key not even a seal that was sent ahead may seal what its sender did not send."""
        if self.state.key is not None:
            self._comparisons.refused(what, refusal)

    def _repeated_append(self, event: OpenEventState, first_index: int, items: int, data: bytes) -> Deferred[int]:
        what = ("batch", event.event_id, first_index, items)
        held = event.items - first_index
        if held >= items:
            return Deferred.of(self._compare(what, event, first_index, items, data))
        if self.state.key is None or event.ended or event.asking is not None:
            raise content_differs(f"items from index {first_index} on of event {event.event_id} were sent otherwise")
        # Who goes on with an envelope that somebody else began cuts its batches otherwise.
        sent = unpack_items(data, items)
        rest = self.append(event.event_id, event.items, items - held, pack_items(sent[held:]))
        same = self._compare(what, event, first_index, held, pack_items(sent[:held]))
        return Deferred.of(self._answers.later(both(same, rest)))

    def _compare(
        self, what: Hashable, event: OpenEventState, first_index: int, items: int, data: bytes
    ) -> "asyncio.Future[int]":
        comparing = self._answers.later(self._answer_repeat(event, first_index, items, data))
        if self.state.key is not None:
            self._comparisons.add(what, comparing)
        return comparing

    async def _answer_repeat(self, event: OpenEventState, first_index: int, items: int, data: bytes) -> int:
        await self.durable()
        await check_same_items(self._journal, event.event_id, first_index, items, data)
        return first_index + items

    @property
    def is_settled(self) -> bool:
        """Check whether the journal has answered all that was written of this envelope so far."""
        return not self._unanswered

    async def settled(self, seconds: float | None = None) -> None:
        """Wait until it has, whatever it answers, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for writing in [*self._unanswered]:
                    await settled(writing)

    async def durable(self) -> None:
        """Wait until all that was written of this envelope so far is durable.

        Raises:
            JournalError: it could not be made so.
        """
        if self.state.last_write is not None:
            await self.state.last_write

    def end_event(self, event_id: UUID, items: int | None) -> Deferred[EndedEvent]:
        """End an event; one whose type wants an immediate reply has ended when that is there.

        Args:
            items: how many its sender counted; None where it did not.

        Returns:
            A future of its end, durably.

        Raises:
            Refused: event_unknown, envelope_closed, envelope_broken, or count_mismatch.
        """
        event = self.state.event(event_id)
        if items is not None and items != event.items:
            refusal = Refused(
                f"event {event_id} holds {event.items} items, not {items}",
                "send what is missing, or cancel the envelope",
                code="count_mismatch",
            )
            self._other_content(("items", event_id), refusal)
            raise refusal
        if self.state.key is not None and (items is not None or not event.ended):
            self._comparisons.agreed(("items", event_id))
        if event.asking is not None:
            return Deferred.of(event.asking)
        if event.ended:
            return Deferred.of(self._answers.later(self._ended_before(event)))
        self.state.check_open()
        self.state.check_complete(items)
        if self._answers.wants_reply(event.type_name):
            event.asking = self._answers.later(self._end_with_reply(event))
            return Deferred.of(event.asking)
        return Deferred(self._end(event)).map(lambda _: EndedEvent(event.items))

    def _end(self, event: OpenEventState) -> Writing:
        event.ended = True
        return self.write(EndEvent(self.state.envelope_id, event.event_id, event.items))

    async def _ended_before(self, event: OpenEventState) -> EndedEvent:
        await self.durable()
        return EndedEvent(event.items, await self._answers.replies.given(event.event_id))

    async def _end_with_reply(self, event: OpenEventState) -> EndedEvent:
        try:
            await self.durable()
            reply = await self._answers.replies.ask(self.state.envelope_id, event.event_id)
            self.state.check_open()
            await self._end(event)
        finally:
            event.asking = None
        return EndedEvent(event.items, reply)

    def seal(self, events: int | None) -> Deferred[SealReceipt]:
        """End the envelope: from then on it never changes and is delivered.

        Args:
            events: how many its sender counted; None where it did not.

        Raises:
            Refused: event_open, envelope_broken, count_mismatch; envelope_closed where it is being cancelled; where it
                has a key, also what this session was told when it sent something else than what is there, such as
                content_differs.
        """
        if self.state.closing is not None:
            return self._closing(self.state.closing).map(self._receipt)
        before: list[asyncio.Future[Any]] = [*self.state.asking, *self._comparisons.pending]
        if before:
            return Deferred.of(self._answers.later(self._seal_behind(before, events)))
        self._comparisons.check()
        self.state.check_complete(events)
        if events is not None and events != len(self.state.events):
            raise Refused(
                f"envelope {self.state.envelope_id} holds {len(self.state.events)} events, not {events}",
                "send what is missing, or cancel it",
                code="count_mismatch",
            )
        self.state.check_sealable()
        self.state.sealed_at = at = self._moment()
        content = self.state.content(at)
        if content is not None and not self._checks.is_called_so(content.types[0]):
            # Recipients get it by the present name of its type, which the journal has.
            content = None
        seal = Seal(
            self.state.envelope_id,
            len(self.state.events),
            self.state.items,
            at,
            self.state.content_hash,
            self.state.headers,
            content,
            self.state.kept is not None and len(self.state.kept) <= 1,
        )
        return self._closing(self._close(seal)).map(self._receipt)

    async def _seal_behind(self, before: Sequence["asyncio.Future[Any]"], events: int | None) -> SealReceipt:
        """Seal when earlier events have their replies, and repeated items are compared.

        An emitter that sends ahead does not wait for that.
        """
        await asyncio.wait(before)
        return await self.seal(events)

    def _receipt(self, answer: SealReceipt | None) -> SealReceipt:
        if answer is None:
            self.state.check_open()
        assert answer is not None
        return answer

    def cancel(self, reason: str) -> Deferred[bool]:
        """Give the envelope up.

        Raises:
            Refused: envelope_closed, where it is being sealed.
        """
        if self.state.closing is None:
            self.state.giving_up = True
            self._close(Cancel(self.state.envelope_id, self._moment(), reason))
        assert self.state.closing is not None
        return Deferred.of(self.state.closing).map(self._cancelled).recover(_cancelled_already)

    def _cancelled(self, answer: SealReceipt | None) -> bool:
        if answer is not None:
            self.state.check_open()
        return True

    def _closing(self, writing: Writing) -> Deferred[SealReceipt | None]:
        def explain(error: Exception) -> None:
            if isinstance(error, EnvelopeCancelled):
                raise envelope_closed(self.state.envelope_id, error.cause) from error
            raise error

        closing: Deferred[SealReceipt | None] = Deferred(writing)
        return closing.recover(explain)

    def _close(self, write: Seal | Cancel) -> Writing:
        closing = self.write(write)
        self.state.closing = closing
        closing.add_done_callback(lambda _: self._forget(self))
        return closing


def _cancelled_already(error: Exception) -> bool:
    if isinstance(error, EnvelopeCancelled):
        return True
    raise error
