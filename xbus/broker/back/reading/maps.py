"""Slices of the log as they travel; pure."""

from xbus.broker.journal.log.slices import SliceEvent
from xbus.rpc.messages import ReadEventMap


def event_map(event: SliceEvent) -> ReadEventMap:
    """Write items of an event and the facts about it, as ``docs/wire.md`` describes them."""
    facts = event.facts
    return {
        "envelope_id": facts.envelope_id,
        "event_id": facts.event_id,
        "type": facts.type_name,
        "position": facts.position,
        "event": facts.event,
        "emitter": facts.emitter,
        "first_index": event.first_index,
        "items": event.items,
        "data": event.data,
        "sealed_at": facts.sealed_at.timestamp(),
        "key": facts.key,
        "ordering_key": facts.ordering_key,
        "partition_key": facts.partition_key,
        "headers": facts.headers,
        "event_headers": facts.event_headers,
    }
