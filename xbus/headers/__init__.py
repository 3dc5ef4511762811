"""Headers: named values that tell of an envelope or an event, without its items being opened.

This package checks them and gives them their bytes. The emitter asks it early, so that an author sees a mistake at
once; the front asks it again, and its answer counts. It needs msgpack and nothing else of the bus but its errors.
"""

from xbus.headers.packing import (
    MAX_BYTES,
    NO_TAGS,
    EventTags,
    Headers,
    HeaderValue,
    check_packed,
    check_partition_key,
    event_tags,
    pack_headers,
    unpack_headers,
)
from xbus.headers.texts import header_of_text, header_text, header_texts, joined_texts

__all__ = [
    "MAX_BYTES",
    "NO_TAGS",
    "EventTags",
    "HeaderValue",
    "Headers",
    "check_packed",
    "check_partition_key",
    "event_tags",
    "header_of_text",
    "header_text",
    "header_texts",
    "joined_texts",
    "pack_headers",
    "unpack_headers",
]
