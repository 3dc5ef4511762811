"""Sealed envelopes to which their emitter gave a key: the same content again gets the first receipt, other content is
told that the key is taken; and the digests that tell the one from the other."""

import hashlib
from uuid import UUID

from xbus.broker.front.envelopes.checks import Checks
from xbus.broker.front.envelopes.closed import PAGE_BYTES, ClosedEnvelope, done
from xbus.broker.front.envelopes.state import EndedEvent, OpenEnvelopeState, envelope_closed
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import StoredEnvelope
from xbus.broker.journal.log.reading import digest_segments
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import pack_items, unpack_items
from xbus.rpc.deferred import Deferred


def key_reused(cause: str) -> Refused:
    """The answer to other content under a key that stands for an envelope already."""
    return Refused(cause, "send it under another key; nothing of this was kept", code="key_reused")


class SealedKeyedEnvelope(ClosedEnvelope):
    """A sealed envelope with a key, its content still here: other content is refused with key_reused."""

    def _refused(self, refusal: Refused) -> Refused:
        return key_reused(f"the key {self.key!r:.80} stands for an envelope with other content: {refusal.cause}")


class PrunedKeyedEnvelope:
    """A sealed envelope with a key, its content long removed: what comes under the key again is not stored but hashed,
    and compared at its end. The hash so far is in memory only: who began before a restart of the broker begins anew.

    Args:
        stored: what the journal still has of it.
        checks: lets pass what its emitter sends.
    """

    def __init__(self, stored: StoredEnvelope, checks: Checks) -> None:
        self._stored = stored
        self._checks = checks
        self._content = OpenEnvelopeState(stored.envelope_id, stored.emitter_id, key=stored.head.key)
        self._compared = False
        self.emitter_id = stored.emitter_id
        self.key = stored.head.key
        self.is_given_up = False

    @property
    def holder(self) -> bytes | None:
        """The hash of the session that compares it now; None where none does."""
        return None if self._compared else self._content.holder

    def hold(self, session: bytes) -> None:
        """Begin anew, unless this session is in the midst of it."""
        if self._compared or self._content.holder != session:
            stored = self._stored
            self._content = OpenEnvelopeState(
                stored.envelope_id, stored.emitter_id, key=stored.head.key, holder=session
            )
            self._compared = False

    def check_headers(self, headers: bytes | None) -> None:
        """Take the headers for those that are compared at the end."""
        self._content.headers = headers

    def start_event(self, event_id: UUID, type_name: str, estimate: int, tags: EventTags = NO_TAGS) -> UUID:
        """Raises Refused: wrong_arguments."""
        if event_id not in self._content.events:
            self._content.start_event(event_id, type_name, self._first_name(type_name), tags)
        return event_id

    def _first_name(self, type_name: str) -> str:
        try:
            return self._checks.event_type(self.emitter_id, type_name).hashed_name
        except Refused:  # the type may have been removed since; nothing of this is kept
            return type_name

    def append(self, event_id: UUID, first_index: int | None, items: int, data: bytes) -> Deferred[int]:
        """Raises Refused: event_unknown, event_closed, envelope_too_large; key_reused where items are left out."""
        event = self._content.event(event_id)
        held = event.items if first_index is None else event.items - first_index
        if first_index is None or held < 0:
            raise self._differs()
        if held < items:
            rest = pack_items(unpack_items(data, items)[held:]) if held else data
            self._content.take(event, items - held, rest, self._checks.limits(self.emitter_id))
        return Deferred.of(done(first_index + items))

    def end_event(self, event_id: UUID, items: int | None) -> Deferred[EndedEvent]:
        """Raises Refused: event_unknown, or key_reused for another number of items."""
        event = self._content.event(event_id)
        if items is not None and items != event.items:
            raise self._differs()
        event.ended = True
        return Deferred.of(done(EndedEvent(event.items)))

    def seal(self, events: int | None) -> Deferred[SealReceipt]:
        """Raises Refused: event_open, or key_reused."""
        self._content.check_sealable()
        self._compared = True
        receipt = self._stored.receipt
        if receipt is None or self._content.content_hash != self._stored.content_hash:
            raise self._differs()
        return Deferred.of(done(receipt))

    def cancel(self, reason: str) -> Deferred[bool]:
        """Raises Refused: envelope_closed."""
        self._compared = True
        raise envelope_closed(self._stored.envelope_id)

    def _differs(self) -> Refused:
        return key_reused(f"the key {self.key!r:.80} stands for an envelope with other content")


async def stored_digest(journal: Journal, event_id: UUID) -> "hashlib._Hash":
    """SHA-256 over the items that the journal holds of an event, with which the front goes on."""
    digest = hashlib.sha256()
    index: int | None = 0
    while index is not None:
        index = await journal.read(digest_segments, event_id, index, PAGE_BYTES, digest)
    return digest
