"""Sends envelopes of a test to the front, as the SDK's emitter does."""

import functools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from random import Random
from uuid import UUID

from xbus.broker.front.envelopes import NewEvent
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes import SealReceipt
from xbus.emitter.receipt import Receipt
from xbus.envelope import EnvelopeHead
from xbus.errors import Failed, Refused
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import format_uuid, numbered_event_id, token_hash
from xbus.rpc.codec import Value, pack_items, unpack
from xbus.rpc.deferred import awaited
from xbus.rpc.items import item_bytes
from xbus.testing.broker import VirtualBroker, token_of


@dataclass(frozen=True)
class SentEnvelope:
    """A sealed envelope, and what consumers replied.

    Args:
        receipt: of the envelope.
        replies: to each event in turn; None where its type has no immediate reply.
    """

    receipt: Receipt
    replies: Sequence[Value]


class InMemoryEmitter:
    """Sends envelopes as one of the bus's emitters.

    Args:
        broker: takes them.
        emitter_id: of the emitter.
        random: makes the ids.
    """

    def __init__(self, broker: VirtualBroker, emitter_id: int, random: Random) -> None:
        self._broker = broker
        self._front = broker.front
        self._emitter_id = emitter_id
        self._session = token_hash(token_of(emitter_id))
        self._random = random

    async def send(
        self,
        events: Sequence[tuple[str, Sequence[object]]],
        options: EnvelopeHead,
        wants_reply: Callable[[str], bool],
        tags: EventTags = NO_TAGS,
    ) -> SentEnvelope:
        """Send an envelope until it is sealed.

        Args:
            events: type and items of each.
            wants_reply: tells whether the emitter of a type waits for an immediate reply.
            tags: those of each event.

        Raises:
            Refused: as the broker refuses it.
        """
        packed = [(name, [item_bytes(value) for value in values]) for name, values in events]
        if any(wants_reply(name) for name, _ in packed):
            return await self._stream(packed, options, tags)
        if len(packed) == 1:
            return SentEnvelope(await self._put(*packed[0], options, tags), [None])
        new = [NewEvent(self._new_id(), name, len(items), pack_items(items), tags) for name, items in packed]
        if options.key is not None:
            receipt = await self._front.put_keyed(self._emitter_id, self._session, new, options)
        else:
            receipt = await awaited(self._front.put_envelope(self._emitter_id, self._new_id(), new, options))
        return SentEnvelope(_receipt(receipt), [None] * len(events))

    async def _put(self, name: str, items: Sequence[bytes], options: EnvelopeHead, tags: EventTags) -> Receipt:
        """Put an envelope of one event by the verb that takes groups of them, as the SDK does."""
        ids = (None, None) if options.key is not None else (self._new_id().bytes, self._new_id().bytes)
        entry = [*ids, name, len(items), pack_items(items), options, tags]
        (answer,) = await self._broker.put_envelopes(self._emitter_id, [entry])
        if isinstance(answer, dict):
            error = Refused if answer["refused"] else Failed
            raise error(answer["cause"], answer["next_step"], code=answer["code"], details=answer["details"])
        envelope_id, position, content_hash = answer
        return Receipt(format_uuid(envelope_id), position, 1, len(items), content_hash)

    async def _stream(
        self, events: Sequence[tuple[str, list[bytes]]], options: EnvelopeHead, tags: EventTags
    ) -> SentEnvelope:
        """Send event by event: the emitter waits for each reply."""
        front, emitter_id = self._front, self._emitter_id
        if options.key is not None:
            envelope_id = await front.start_keyed(emitter_id, self._session, options)
        else:
            start = functools.partial(front.start_envelope, is_new=True, options=options)
            envelope_id = await awaited(start(emitter_id, self._new_id()))
        replies: list[Value] = []
        for number, (name, items) in enumerate(events, start=1):
            event_id = self._new_id() if options.key is None else numbered_event_id(envelope_id, number)
            await awaited(front.start_event(emitter_id, envelope_id, event_id, name, len(items), tags))
            if items:
                await awaited(front.append(emitter_id, envelope_id, event_id, 0, len(items), pack_items(items)))
            ended = await awaited(front.end_event(emitter_id, envelope_id, event_id, len(items)))
            replies.append(None if ended.reply is None else unpack(ended.reply))
        return SentEnvelope(_receipt(await awaited(front.end_envelope(emitter_id, envelope_id, len(events)))), replies)

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


def find_emitter(catalog: Catalog, types: Set[str], login: str) -> int:
    """Find the id of an emitter that may send some event types, or of one that will be refused.

    Args:
        login: its login; empty for any emitter.

    Raises:
        Refused: no emitter is called so (``unknown_login``).
    """
    emitters = sorted(catalog.emitters.values(), key=lambda entry: entry.login)
    named = [entry for entry in emitters if login in ("", entry.login)]
    if not named:
        known = ", ".join(entry.login for entry in emitters) or "none"
        raise Refused(f"the bus has no emitter {login}".rstrip(), f"there are: {known}", code="unknown_login")
    return next((entry.id for entry in named if types <= entry.event_types), named[0].id)


def _receipt(seal: SealReceipt) -> Receipt:
    return Receipt(str(seal.envelope_id), seal.position, seal.events, seal.items, seal.hash)
