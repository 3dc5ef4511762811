"""Sends the items of files in one envelope, an event for each file."""

from collections.abc import Callable, Sequence

from xbus.admin.files.bad_lines import StopAtBadLine
from xbus.admin.files.item_file import ItemFile
from xbus.emitter import Envelope, Event
from xbus.errors import Refused, XbusError

OF_THE_ITEM = frozenset({"bad_items", "item_too_large"})
"""Codes of refusals that an item itself is the reason for."""


def send_files(
    envelope: Envelope,
    event_types: Sequence[str],
    files: Sequence[ItemFile],
    bad: StopAtBadLine,
    on_bytes: Callable[[int], object],
    *,
    allow_empty: bool = False,
) -> None:
    """Send the items of each file as an event of its type.

    Args:
        envelope: open; whoever opened it ends it.
        event_types: the type of each file.
        files: to send.
        bad: decides about bad lines.
        on_bytes: called with the number of bytes read, again and again.
        allow_empty: whether a file may have no items.

    Raises:
        XbusError: a file can't be read, a line is bad, or a file has no items (``empty_file``).
    """
    for event_type, file in zip(event_types, files, strict=True):
        with envelope.event(event_type) as event:
            entries = _send_file(event, file, bad, on_bytes)
            if not entries and not allow_empty:
                step = "see whether it is complete, or send it with --allow-empty"
                raise XbusError(f"{file.name} has no items", step, code="empty_file")
    bad.finish()


def _send_file(event: Event, file: ItemFile, bad: StopAtBadLine, on_bytes: Callable[[int], object]) -> int:
    """Send the items of a file; give the number of its entries, bad ones included."""
    entries = 0
    for entry in file.entries(on_bytes):
        entries += 1
        if entry.fault:
            bad.meet(file, entry, entry.fault)
            continue
        try:
            event.send(entry.item)
        except Refused as error:
            if error.code not in OF_THE_ITEM:
                raise
            # What the bus said about an earlier batch would come up here too, and is not this line's fault.
            event.flush()
            bad.meet(file, entry, error.cause)
    return entries
