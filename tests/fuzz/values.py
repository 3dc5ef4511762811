"""Arguments for calls: mostly those that a verb expects, at times anything that msgpack can say."""

import uuid

from tests.fuzz.tape import Tape
from xbus.rpc.codec import pack_items

TEXTS = ("notes", "flights", "", "north", "\x1b[31m", "\u202egnp", "a" * 300, "key 7", "\0", "2020-02-29T12:00:00Z")
NUMBERS = (0, 1, 2, 3, -1, 255, 100_000, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)
NAMES = (
    "key",
    "ordering_key",
    "headers",
    "partition_key",
    "immediate_reply",
    "type",
    "id",
    "items",
    "data",
    "traceparent",
    "source_time",
)
DEEPEST = 4


def anything(tape: Tape, depth: int = 0) -> object:
    """Make any value of the wire."""
    kind = tape.number(10 if depth < DEEPEST else 7)
    if kind == 0:
        return tape.one_of((None, True, False))
    if kind in (1, 2):
        return number(tape)
    if kind == 3:
        return tape.one_of((0.0, -1.5, float("nan"), float("inf")))
    if kind in (4, 5):
        return text(tape)
    if kind == 6:
        return packed_items(tape)
    if kind == 7:
        return [anything(tape, depth + 1) for _ in range(tape.number(5))]
    return {tape.one_of((*NAMES, 1, None)): anything(tape, depth + 1) for _ in range(tape.number(5))}


def number(tape: Tape) -> int:
    """Make an integer of up to 64 bits, a small one most of the time."""
    return tape.number(5) if tape.number(2) else tape.one_of(NUMBERS)


def text(tape: Tape) -> str:
    """Make a text."""
    return tape.one_of(TEXTS) if tape.number(2) else tape.text(40)


def identity(tape: Tape, known: list[str]) -> str:
    """Make the id of an envelope or event: one that is known, a new one, or none."""
    choice = tape.number(8)
    if choice < 5 and known:
        return tape.one_of(known)
    return str(uuid.UUID(bytes=tape.bytes(16).ljust(16, b"\1"))) if choice < 7 else text(tape)


def packed_items(tape: Tape) -> bytes:
    """Make some items, packed as a batch; at times other bytes."""
    if tape.rarely():
        return tape.bytes(tape.number(64))
    return pack_items([tape.bytes(tape.number(24)) for _ in range(tape.number(4))])


def event(tape: Tape, known: list[str]) -> object:
    """Make an event of ``xbus.put_envelope``."""
    if tape.rarely():
        return anything(tape)
    items = [tape.bytes(tape.number(24)) for _ in range(tape.number(4))]
    parts = [identity(tape, known), tape.one_of(TEXTS[:2]), len(items), pack_items(items), options(tape)]
    return parts[: tape.one_of((4, 5, 4, 3))]


def envelope(tape: Tape, known: list[str]) -> object:
    """Make an envelope of ``xbus.put_envelopes``."""
    if tape.rarely():
        return anything(tape)
    items = [tape.bytes(tape.number(24)) for _ in range(tape.number(4))]
    ids = [_short(identity(tape, known)), _short(identity(tape, known))] if tape.number(2) else [None, None]
    head = tape.one_of((None, [None, text(tape), None], [text(tape), None, tape.bytes(tape.number(8))], options(tape)))
    tags = tape.one_of((None, [None, text(tape)], [tape.bytes(tape.number(8)), None], anything(tape)))
    parts = [*ids, tape.one_of(TEXTS[:2]), len(items), pack_items(items), head, tags]
    return parts[: tape.one_of((7, 7, 7, 6))]


def _short(known: object) -> object:
    try:
        return uuid.UUID(str(known)).bytes
    except ValueError:
        return known


def options(tape: Tape) -> object:
    """Make the options of an envelope or event."""
    if tape.rarely():
        return anything(tape)
    return {tape.one_of(NAMES): text(tape) if tape.number(2) else anything(tape) for _ in range(tape.number(4))}
