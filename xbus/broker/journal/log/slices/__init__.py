"""Slices of the log: items of some event types from a place on, as far as they hash into some stretches of the ring.

A slice begins and ends at any item, also in the middle of an event. Items stay the bytes that they are in the log, with
the corrections for all roles laid over them. They come from the database, or from whoever has them in memory. Nothing
here writes, waits or knows a reader.
"""

from xbus.broker.journal.log.slices.items import DamagedItems, ItemSpan, SegmentSize, cut_slice, read_heads, read_slice
from xbus.broker.journal.log.slices.listing import (
    EventLists,
    ListedEvent,
    ListPage,
    Start,
    parse_start,
    read_list_page,
    read_start,
    read_types,
)
from xbus.broker.journal.log.slices.values import (
    LAST_HASH,
    BadPlace,
    EventHead,
    Place,
    Slice,
    SliceBounds,
    SliceEvent,
    Stretch,
    key_hash,
    ring_hash,
    whole_ring,
)

__all__ = [
    "LAST_HASH",
    "BadPlace",
    "DamagedItems",
    "EventHead",
    "EventLists",
    "ItemSpan",
    "ListPage",
    "ListedEvent",
    "Place",
    "SegmentSize",
    "Slice",
    "SliceBounds",
    "SliceEvent",
    "Start",
    "Stretch",
    "cut_slice",
    "key_hash",
    "parse_start",
    "read_heads",
    "read_list_page",
    "read_slice",
    "read_start",
    "read_types",
    "ring_hash",
    "whole_ring",
]
