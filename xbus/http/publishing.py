"""Sends what a request brings: an envelope of one event, in one call if it is small, else in parts while it comes."""

from collections.abc import AsyncIterator, Sequence

from xbus.emitter.batch import check_size
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import AsyncEnvelope, put_at_once
from xbus.emitter.event import AsyncEvent, EventStart
from xbus.emitter.puts import GoesAlone
from xbus.emitter.receipt import Receipt
from xbus.errors import Refused
from xbus.rpc.codec import Value
from xbus.rpc.items import ITEM_HEADER_BYTES
from xbus.rpc.messages import EnvelopeOptionsMap

SMALL_BYTES = 262_144
"""Items up to this size go in one call. More spare large requests some calls, and take memory until all has come."""


async def publish(
    line: EmitterContext, start: EventStart, items: AsyncIterator[bytes], options: EnvelopeOptionsMap
) -> Receipt:
    """Send an envelope of one event.

    Args:
        line: the way to the front, by the token of the request.
        start: the event type and the partition key.
        items: packed; they may still be coming.
        options: of the envelope.

    Raises:
        CallError: the front refuses it, or nothing answered for as long as the gateway insists. Nothing is kept then,
            or the same is answered again under the same key.
    """
    limits = line.session.limits
    most = min(SMALL_BYTES, limits.max_batch_bytes)
    first: list[bytes] = []
    size = 0
    async for item in items:
        check_size(len(item), limits.max_item_bytes)
        first.append(item)
        size += len(item) + ITEM_HEADER_BYTES
        if size > most:
            return await _publish_in_parts(line, start, first, items, options)
    ids: Sequence[str] = ()
    if limits.groups:
        try:
            return await line.puts.put(start.type_name, start.tags, first, options)
        except GoesAlone as alone:
            ids = alone.ids
    return await put_at_once(line, start, first, options, ids=ids)


async def _publish_in_parts(
    line: EmitterContext,
    start: EventStart,
    first: list[bytes],
    others: AsyncIterator[bytes],
    options: EnvelopeOptionsMap,
) -> Receipt:
    async with _envelope(line, options) as envelope, envelope.begin(start) as event:
        for item in first:
            await event.send(item)
        async for item in others:
            await event.send(item)
    return envelope.receipt


async def ask(
    line: EmitterContext, start: EventStart, items: AsyncIterator[bytes], options: EnvelopeOptionsMap
) -> tuple[Receipt, Value]:
    """Send an envelope of one event, and wait for a consumer's immediate reply to it.

    Raises:
        Refused: the event type has no immediate replies (``no_reply``).
        CallError: as of :func:`publish`, or no reply came.
    """
    async with _envelope(line, options) as envelope:
        async with envelope.begin(start) as event:
            async for item in items:
                await event.send(item)
        reply = await _reply(event, start.type_name)
    return envelope.receipt, reply


async def _reply(event: AsyncEvent, type_name: str) -> Value:
    if not await event.has_reply():
        raise Refused(
            f'events of type "{type_name}" have no immediate reply',
            "send the event without asking, or have the type given immediate_reply = true with xbus apply",
            code="no_reply",
        )
    return await event.reply()


def _envelope(line: EmitterContext, options: EnvelopeOptionsMap) -> AsyncEnvelope:
    async def give_line() -> EmitterContext:
        return line

    return AsyncEnvelope(give_line, line.new_id(), options)
