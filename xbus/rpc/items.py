"""Turns values into items, and items into batches, for emitters and workers.

msgpack knows fewer kinds of values than programs have. The bus writes some as text, an author's function others;
a value without any form is named with its place in the item. The text of a value is always the same, so that an item
that is sent again has the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import TypeAlias, cast
from uuid import UUID

from xbus.errors import ProtocolError, Refused
from xbus.rpc.codec import BAD_ITEMS, exact_packer, pack

PackHook: TypeAlias = Callable[[object], object]
"""Gives, for a value that can't be packed, one that can. It raises ``TypeError`` for a value that it does not know."""

UNKNOWN = "it has no form in msgpack"

MOST_LEVELS = 50
"""Levels of lists and maps in which a fault is looked for. More take longer where a value contains itself."""


def as_text(value: object) -> object:
    """Write a date, a time, a decimal number or a UUID as text, and an enum's member as its value.

    Raises:
        TypeError: the value is something else.
    """
    if isinstance(value, Enum):
        return _packable(value.value)
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(UNKNOWN)


def _packable(value: object) -> object:
    """Write what a hook gives as text, too: msgpack asks only once for each value."""
    return as_text(value) if isinstance(value, (Enum, date, time, Decimal, UUID)) else value


def hook_for(pack_others: PackHook | None) -> PackHook:
    """Make the function that msgpack asks for the values that it does not know.

    Args:
        pack_others: the author's own, for those that ``as_text`` does not know either.
    """
    if pack_others is None:
        return as_text

    def hook(value: object) -> object:
        made = _packable(value)
        return _packable(pack_others(value)) if made is value else made

    return hook


def unpackable(value: object, hook: PackHook) -> Refused:
    """Make the error for an item that can't be packed; it names the place of the fault in the item."""
    place, fault = next(_faults(value, hook, "", 0), ("", "can't be packed"))
    return Refused(
        f"an item can't be packed: {place or 'it'} {fault}",
        "send numbers, texts, bytes, lists and maps, or give the emitter a function for other values, `pack=`",
        code=BAD_ITEMS,
    )


def _faults(value: object, hook: PackHook, place: str, level: int) -> Iterator[tuple[str, str]]:
    """Find the innermost values that can't be packed, each with its place."""
    if _is_packable(value, hook):
        return
    if level > MOST_LEVELS:
        yield "", f"is nested too deeply, contains itself, or has a fault below {MOST_LEVELS} levels"
        return
    if isinstance(value, dict):
        for key, member in value.items():
            if not _is_packable(key, hook):
                yield f"a key of {place or 'it'}", _fault(key, hook)
            yield from _faults(member, hook, _place_of(place, key), level + 1)
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _faults(member, hook, f"{place}[{index}]", level + 1)
    else:
        yield place, _fault(value, hook)


def _place_of(place: str, key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f"{place}.{key}" if place else key
    return f"{place}[{key!r:.40}]"


def _is_packable(value: object, hook: PackHook) -> bool:
    try:
        pack(value, hook)
    except (ProtocolError, RecursionError):
        return False
    return True


def _fault(value: object, hook: PackHook) -> str:
    kind = type(value)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    if kind is int:
        return "is an integer of more than 64 bits"
    if isinstance(value, str):
        return "is a text with characters that UTF-8 does not have"
    try:
        hook(value)
    except (TypeError, ValueError) as error:
        return f"is of the type {name} ({error})"
    return f"is of the type {name}, and what `pack=` makes of it can't be packed"


ITEM_HEADER_BYTES = 5
"""The most that msgpack puts before the bytes of an item."""


def item_bytes(value: object, hook: PackHook = as_text) -> bytes:
    """Give the bytes of an item: those given, or the msgpack of any other value.

    Args:
        value: the item.
        hook: asked for the values that msgpack does not know; see ``hook_for``.

    Raises:
        Refused: the value can't be packed (``bad_items``); the cause says where in it.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return pack(value, hook)
    except ProtocolError as error:
        raise unpackable(value, hook) from error


def item_packer(hook: PackHook) -> Callable[[object], bytes]:
    """Make a function that does as ``item_bytes``, in a third of the time for most items."""
    exact = exact_packer()

    def packed(value: object) -> bytes:
        kind = type(value)
        if kind is bytes:
            return cast(bytes, value)
        if kind is dict or kind is list:
            try:
                return exact(value)
            except (TypeError, ValueError, OverflowError):
                return item_bytes(value, hook)
        return item_bytes(value, hook)

    return packed


def check_several(items: Iterable[object]) -> None:
    """Refuse one item in the place of several: its keys, letters or bytes would become the items.

    Raises:
        Refused: it is a map, a text or bytes (``bad_items``).
    """
    # Asked first, as the question for a map costs more than all the rest of a small put's checks.
    if type(items) is not list and isinstance(items, (Mapping, str, bytes, bytearray, memoryview)):
        raise Refused(
            f"the items are of the type {type(items).__name__}, which is one item, not several",
            "send a list of items, such as [item]",
            code=BAD_ITEMS,
        )


def cut(items: list[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Iterate over the items in order, in lists of at most ``max_bytes`` each; a larger item goes alone."""
    if sum(map(len, items)) + ITEM_HEADER_BYTES * len(items) <= max_bytes:
        if items:
            yield items
        return
    piece: list[bytes] = []
    size = 0
    for item in items:
        item_size = len(item) + ITEM_HEADER_BYTES
        if piece and size + item_size > max_bytes:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += item_size
    yield piece
