"""Calls that were made before: each gets its first answer, from what is durable, or is told that it is another call."""

import asyncio
from typing import TypeVar
from uuid import UUID

from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EndedEvent, envelope_closed, event_unknown
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import StoredEnvelope, StoredEvent
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import unpack_items
from xbus.rpc.deferred import Deferred, Promise
from xbus.states import EnvelopeState

PAGE_BYTES = 4 * 1024 * 1024

T = TypeVar("T")


class ClosedEnvelope:
    """An envelope that is sealed or cancelled: it answers repeats, and refuses everything else.

    Args:
        stored: what the journal holds of it.
        journal: where its items are read from.
        replies: tells which immediate replies were given.
    """

    def __init__(self, stored: StoredEnvelope, journal: Journal, replies: ReplyRequests) -> None:
        self._stored = stored
        self._journal = journal
        self._replies = replies

    @property
    def emitter_id(self) -> int:
        return self._stored.emitter_id

    @property
    def key(self) -> str | None:
        return self._stored.head.key

    @property
    def is_given_up(self) -> bool:
        """Check whether it was cancelled."""
        return self._stored.state is EnvelopeState.CANCELLED

    def hold(self, session: bytes) -> None:
        """Any session may repeat what is past."""

    def _refused(self, refusal: Refused) -> Refused:
        """Make the error for a repeat of something that is none."""
        return refusal

    def _closed(self) -> Refused:
        return envelope_closed(self._stored.envelope_id, self._stored.reason)

    def _event(self, event_id: UUID) -> StoredEvent:
        if self._stored.state is not EnvelopeState.RECEIVED:
            raise self._refused(self._closed())
        for event in self._stored.events:
            if event.event_id == event_id:
                return event
        raise self._refused(event_unknown(event_id, self._stored.envelope_id))

    def check_headers(self, headers: bytes | None) -> None:
        """Raises Refused: content_differs for other headers than it began with."""
        if refusal := other_headers(self._stored.envelope_id, self._stored.head.headers, headers):
            raise self._refused(refusal)

    def start_event(self, event_id: UUID, type_name: str, estimate: int, tags: EventTags = NO_TAGS) -> UUID:
        """Raises Refused: envelope_closed for an event that it doesn't hold, content_differs if it began otherwise."""
        if all(event.event_id != event_id for event in self._stored.events):
            raise self._refused(self._closed())
        event = self._event(event_id)
        if refusal := started_otherwise(event_id, (event.type_name, event.tags), (type_name, tags)):
            raise self._refused(refusal)
        return event_id

    def append(self, event_id: UUID, first_index: int | None, items: int, data: bytes) -> Deferred[int]:
        """Raises Refused: envelope_closed for items that it doesn't hold; the future content_differs for other ones."""
        event = self._event(event_id)
        if first_index is None or first_index + items > event.items:
            raise self._refused(self._closed())
        return Deferred.of(asyncio.ensure_future(self._same_items(event.segments_id, first_index, items, data)))

    async def _same_items(self, segments_id: UUID, first_index: int, items: int, data: bytes) -> int:
        try:
            await check_same_items(self._journal, segments_id, first_index, items, data)
        except Refused as refusal:
            raise self._refused(refusal) from refusal
        return first_index + items

    def end_event(self, event_id: UUID, items: int | None) -> Deferred[EndedEvent]:
        """Raises Refused: event_unknown, envelope_closed, or content_differs for another number of items."""
        event = self._event(event_id)
        if items is not None and items != event.items:
            raise self._refused(content_differs(f"event {event_id} was ended with {event.items} items"))
        return Deferred.of(asyncio.ensure_future(self._ended(event)))

    async def _ended(self, event: StoredEvent) -> EndedEvent:
        return EndedEvent(event.items, await self._replies.given(event.event_id))

    def seal(self, events: int | None) -> Deferred[SealReceipt]:
        """Raises Refused: envelope_closed where it was cancelled, content_differs for another number of events."""
        receipt = self._stored.receipt
        if receipt is None:
            raise self._refused(self._closed())
        if events is not None and events != receipt.events:
            raise self._refused(
                content_differs(f"envelope {receipt.envelope_id} was sealed with {receipt.events} events")
            )
        return Deferred.of(done(receipt))

    def cancel(self, reason: str) -> Deferred[bool]:
        """Raises Refused: envelope_closed where it was sealed."""
        if self._stored.state is not EnvelopeState.CANCELLED:
            raise self._closed()
        return Deferred.of(done(True))


class PrunedEnvelope(ClosedEnvelope):
    """A sealed envelope without a key, of which the receipt is left: whoever repeats its calls gets that at the end.

    The items that they send can't be compared any more. Nothing of it is kept, and nothing is delivered a second time.
    """

    def check_headers(self, headers: bytes | None) -> None:
        """Let all pass: they are removed, too."""

    def start_event(self, event_id: UUID, type_name: str, estimate: int, tags: EventTags = NO_TAGS) -> UUID:
        return event_id

    def append(self, event_id: UUID, first_index: int | None, items: int, data: bytes) -> Deferred[int]:
        """Raises Refused: envelope_closed for items of which nobody says where they belong."""
        if first_index is None:
            raise self._closed()
        return Deferred.of(done(first_index + items))

    def end_event(self, event_id: UUID, items: int | None) -> Deferred[EndedEvent]:
        return Deferred.of(done(EndedEvent(items or 0)))


async def check_same_items(journal: Journal, event_id: UUID, first_index: int, items: int, data: bytes) -> None:
    """Compare items with those that an event holds at the same place; segments may be cut otherwise.

    Args:
        data: as in ``model.segment``, already checked.

    Raises:
        Refused: content_differs.
    """
    wanted = unpack_items(data, items)
    for first, stored in await _stored_runs(journal, event_id, first_index, items):
        start = max(first, first_index)
        end = min(first + len(stored), first_index + items)
        if start >= end:  # a page of segments may hold more than was asked about
            continue
        if stored[start - first : end - first] != wanted[start - first_index : end - first_index]:
            raise content_differs(f"items from index {start} on of event {event_id} were sent with other content")


async def _stored_runs(journal: Journal, event_id: UUID, first_index: int, items: int) -> list[tuple[int, list[bytes]]]:
    """The stored items from ``first_index`` on, each run with the index of its first."""
    runs: list[tuple[int, list[bytes]]] = []
    index = first_index
    while index < first_index + items:
        segments = await journal.read(read_segments, event_id, index, PAGE_BYTES)
        if not segments:
            raise content_differs(f"items from index {index} on of event {event_id} were never stored")
        runs += [(segment.first_index, unpack_items(segment.data, segment.items)) for segment in segments]
        index = segments[-1].first_index + segments[-1].items
    return runs


def other_headers(envelope_id: UUID, begun: bytes | None, again: bytes | None) -> Refused | None:
    """The answer to a repeated beginning of an envelope; None where its headers are the same."""
    return None if begun == again else content_differs(f"envelope {envelope_id} began with other headers")


def started_otherwise(event_id: UUID, started: tuple[str, EventTags], again: tuple[str, EventTags]) -> Refused | None:
    """The answer to a repeated start of an event, by its type and its tags. None where they are the same."""
    (old_type, old), (new_type, new) = started, again
    if old_type != new_type:
        return content_differs(f"event {event_id} was started with type {old_type}")
    if old.headers != new.headers:
        return content_differs(f"event {event_id} was started with other headers")
    if old.partition_key != new.partition_key:
        return content_differs(f"event {event_id} was started with another partition key")
    return None


def content_differs(cause: str) -> Refused:
    """The answer to a repeat that is none."""
    return Refused(cause, "repeat a call as it was, or use another id", code="content_differs")


def done(value: T) -> Promise[T]:
    """An answer that is there already."""
    promise: Promise[T] = Promise()
    promise.set_result(value)
    return promise
