"""Open envelopes as the front knows them: what may be done with one, and how large it may grow; pure."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from xbus.broker.front.envelopes.checks import EnvelopeLimits, check_room
from xbus.broker.journal.log.envelopes import StoredEnvelope
from xbus.broker.journal.log.segments import content_hash
from xbus.broker.journal.writes import GroupType, PutGroup, SealReceipt
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import is_computed, numbered_event_id
from xbus.rpc.deferred import Promise

KEPT_BYTES = 4096
"""The most bytes of items and headers of an open envelope that is kept in memory. The back need not read it when it is
sealed. More spare more reads, and take more memory."""

MOST_PARTS = 64
"""The most appends of such an envelope: each is an object, which takes more memory than a small item."""

Writing: TypeAlias = Promise[SealReceipt | None]
"""A write that the journal has not answered yet, or has: with the receipt for a seal, with None for all else."""


@dataclass(slots=True)
class EndedEvent:
    """The end of an event, durable.

    Args:
        items: how many it holds.
        reply: the immediate reply in msgpack; None where its type has none.
    """

    items: int
    reply: bytes | None = None


@dataclass(slots=True)
class OpenEventState:
    """An event of an open envelope.

    Args:
        hashed_name: the first name of its type, which hashes hold.
        items: counts what was taken so far, durable or not.
        asking: done when its immediate reply has come, or failed to; None while nobody waits for one.
        digest: SHA-256 over the data of all its items so far, in an envelope with a key; else None.
        tags: its headers and its partition key.
        kind: its type, where it began in this process and has no immediate reply; else None.
    """

    event_id: UUID
    number: int
    type_name: str
    hashed_name: str
    items: int = 0
    ended: bool = False
    asking: "asyncio.Future[EndedEvent] | None" = None
    digest: "hashlib._Hash | None" = None
    tags: EventTags = NO_TAGS
    kind: GroupType | None = None

    @property
    def hashes(self) -> list[bytes]:
        """The hash of its items as one segment; none where it has no items, or no digest."""
        return [self.digest.digest()] if self.digest is not None and self.items else []


@dataclass(slots=True)
class OpenEnvelopeState:
    """An envelope that its emitter is still sending.

    Args:
        data_bytes: of its items and headers.
        last_write: what was written last of it; done when all of it is durable.
        closing: the seal or cancel that is under way.
        cancelled: why somebody else cancelled it; None while nobody did.
        damaged: whether items are missing, because a write failed while one behind it went well.
        went_back: whether items that were acknowledged may be gone, because the journal went back.
        key: what its emitter calls it, for good; None for none.
        holder: the hash of the session that sends it, where it has a key and that is known; no other may.
        giving_up: whether what closes it is a cancel.
        headers: packed; None for none.
        opened_at: when its first call came; None if that was before a restart.
        sealed_at: when its seal was written, if it was.
        ordering_key: as it began with; None also for one that began before a restart.
        kept: its items so far, while it is small and has one event; None where they are not kept.
    """

    envelope_id: UUID
    emitter_id: int
    events: dict[UUID, OpenEventState] = field(default_factory=dict)
    items: int = 0
    data_bytes: int = 0
    last_write: Writing | None = None
    closing: Writing | None = None
    cancelled: str | None = None
    damaged: bool = False
    went_back: bool = False
    key: str | None = None
    holder: bytes | None = None
    giving_up: bool = False
    headers: bytes | None = None
    opened_at: datetime | None = None
    sealed_at: datetime | None = None
    ordering_key: str | None = None
    kept: list[bytes] | None = None

    @classmethod
    def of_stored(cls, stored: StoredEnvelope, digests: "Mapping[UUID, hashlib._Hash]") -> "OpenEnvelopeState":
        """The envelope as the journal has it.

        Args:
            digests: those of its events, where it has a key.
        """
        events = {
            event.event_id: OpenEventState(
                event.event_id,
                event.number,
                event.type_name,
                event.first_name,
                event.items,
                event.ended,
                digest=digests.get(event.event_id),
                tags=event.tags,
            )
            for event in stored.events
        }
        items = sum(event.items for event in stored.events)
        data_bytes = sum(event.data_bytes + event.tags.size for event in stored.events) + len(
            stored.head.headers or b""
        )
        damaged = any(event.damaged for event in stored.events)
        return cls(
            *(stored.envelope_id, stored.emitter_id, events, items, data_bytes),
            damaged=damaged,
            went_back=stored.went_back,
            key=stored.head.key,
            headers=stored.head.headers,
        )

    def event(self, event_id: UUID) -> OpenEventState:
        """One of its events.

        Raises:
            Refused: event_unknown.
        """
        event = self.events.get(event_id)
        if event is None:
            raise event_unknown(event_id, self.envelope_id)
        return event

    def check_open(self) -> None:
        """Let a change pass.

        Raises:
            Refused: envelope_closed while a seal or cancel is under way, or after a cancel by somebody else;
                envelope_broken where items are missing.
        """
        if self.closing is not None or self.cancelled is not None:
            raise envelope_closed(self.envelope_id, self.cancelled)
        if self.damaged:
            raise Refused(
                f"items of envelope {self.envelope_id} could not be stored",
                "cancel the envelope and send it again",
                code="envelope_broken",
            )

    def check_complete(self, count: int | None) -> None:
        """Let a call pass whose sender can't have lost anything unnoticed.

        Args:
            count: what the sender counted; None for an old client, which counts nothing.

        Raises:
            Refused: envelope_broken, where acknowledged items may be gone.
        """
        if self.went_back and count is None:
            raise Refused(
                f"the journal went back while envelope {self.envelope_id} was open: acknowledged items may be gone",
                "cancel the envelope and send it again",
                code="envelope_broken",
            )

    def start_event(self, event_id: UUID, type_name: str, first_name: str, tags: EventTags = NO_TAGS) -> OpenEventState:
        """Begin one more event.

        Args:
            first_name: the name with which its type was made; hashes hold it.

        Raises:
            Refused: wrong_arguments, where the envelope has a key and the id is not that of its number, or has none and
                the id is one that the bus computes.
        """
        number = len(self.events) + 1
        if self.key is not None and event_id != numbered_event_id(self.envelope_id, number):
            raise Refused(
                f"event {event_id} can't be number {number} of an envelope with a key",
                f"give it the id {numbered_event_id(self.envelope_id, number)}: uuid5 of envelope id and number",
                code="wrong_arguments",
            )
        if self.key is None and is_computed(event_id):
            raise Refused(
                f"event {event_id} has a UUID of version 5, and these are the bus's own",
                "make it with uuid.uuid4()",
                code="wrong_arguments",
            )
        digest = None if self.key is None else hashlib.sha256()
        event = OpenEventState(event_id, number, type_name, first_name, digest=digest, tags=tags)
        self.events[event_id] = event
        if tags is not NO_TAGS:
            self.data_bytes += tags.size
        return event

    def take(self, event: OpenEventState, items: int, data: bytes, limits: EnvelopeLimits) -> int:
        """Count items into an event.

        Returns:
            The index of the first of them.

        Raises:
            Refused: event_closed, or envelope_too_large; then nothing was counted.
        """
        if event.ended or event.asking is not None:
            raise Refused(f"event {event.event_id} is ended", "start another event", code="event_closed")
        check_room(self.envelope_id, self.items + items, self.data_bytes + len(data), limits)
        first_index = event.items
        event.items += items
        self.items += items
        self.data_bytes += len(data)
        if event.digest is not None:
            event.digest.update(data)
        if self.kept is not None:
            self.kept.append(data)
            if self.data_bytes > KEPT_BYTES or len(self.kept) > MOST_PARTS:
                self.kept = None
        return first_index

    def content(self, at: datetime) -> PutGroup | None:
        """Give all of it as it is sealed, where that is kept."""
        if self.kept is None or len(self.events) != 1:
            return None
        ((event_id, event),) = self.events.items()
        if event.kind is None:
            return None
        return PutGroup(
            (self.emitter_id,),
            at,
            (self.envelope_id.bytes,),
            (event_id.bytes,),
            (event.kind,),
            (event.items,),
            (self.kept[0] if len(self.kept) == 1 else b"".join(self.kept),),
            (EnvelopeHead(self.ordering_key, self.key, self.headers),),
            (event.tags,),
            self.data_bytes,
        )

    @property
    def content_hash(self) -> bytes | None:
        """The hash of its content however that was cut into batches; None where it has no key."""
        return None if self.key is None else content_hash(self.events.values(), self.headers)

    @property
    def asking(self) -> "list[asyncio.Future[EndedEvent]]":
        """The ends of events that wait for their immediate replies."""
        return [event.asking for event in self.events.values() if event.asking is not None]

    def check_sealable(self) -> None:
        """Let the end of the envelope pass.

        Raises:
            Refused: event_open, envelope_broken.
        """
        self.check_open()
        for event in self.events.values():
            if not event.ended:
                raise Refused(
                    f"event {event.event_id} of type {event.type_name} is still open",
                    "end it, or cancel the envelope",
                    code="event_open",
                )


def event_unknown(event_id: object, envelope_id: object) -> Refused:
    """The answer to a call for an event that the envelope doesn't hold."""
    return Refused(
        f"envelope {envelope_id} has no event {event_id}", "use the id that start_event gave", code="event_unknown"
    )


def envelope_unknown(envelope_id: object) -> Refused:
    """The answer to a call for an envelope that there is not, or that is another emitter's: nobody learns which."""
    return Refused(
        f"envelope {envelope_id} is unknown to this emitter",
        "use the id that start_envelope gave",
        code="envelope_unknown",
    )


def envelope_closed(envelope_id: object, why: str | None = None) -> Refused:
    """The answer to a change of an envelope that never changes again.

    Args:
        why: why it was cancelled, where it was and that is known.
    """
    state = "sealed or cancelled" if why is None else f"cancelled: {why}"
    return Refused(f"envelope {envelope_id} is {state}", "start another envelope", code="envelope_closed")
