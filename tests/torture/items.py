"""Items that tell where they come from, so that whoever gets one can tell whether anybody sent it; pure."""

import zlib
from collections.abc import Iterable

LONGEST_FILLER = 30
"""How often the check number is repeated at the most."""


def event_ref(envelope: str, number: int) -> str:
    """What an emitter calls an event: the name that it gave the envelope, and the number of the event in it."""
    return f"{envelope}/{number}"


def envelope_of(event: str) -> str:
    """What an emitter calls the envelope of an event."""
    return event.rpartition("/")[0]


def envelope_headers(envelope: str) -> dict[str, str]:
    """The headers of an envelope, by what its emitter calls it."""
    return {"correlation_id": envelope}


def event_headers(event: str) -> dict[str, str]:
    """The headers of an event alone; a recipient gets those of its envelope, too."""
    return {"event": event}


def make(event: str, index: int) -> bytes:
    """The item of an event at an index: both, and a filler that depends on them, of any length."""
    head = f"{event} {index} "
    check = zlib.crc32(head.encode())
    return (head + f"{check:08x}" * (1 + check % LONGEST_FILLER)).encode()


def mark(item: bytes, worker: str) -> bytes:
    """The item as it leaves a worker."""
    return item + b" " + worker.encode()


def read(item: bytes, path: Iterable[str]) -> tuple[str, int] | None:
    """The event and the index of an item that came by these workers; None where it is not as it should be."""
    parts = item.split(b" ", 2)
    try:
        event, index = parts[0].decode(), int(parts[1])
    except (IndexError, ValueError):
        return None
    expected = make(event, index)
    for worker in path:
        expected = mark(expected, worker)
    return (event, index) if item == expected else None


def reply_to(event: str, items: int) -> str:
    """The immediate reply to an event of so many items."""
    return f"{event} has {items} items"
