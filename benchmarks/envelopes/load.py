"""A load: which envelopes of one item are put, and how."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What is put.

    Args:
        emitters: how many, all in one process.
        in_flight: envelopes of each of them that are not acknowledged yet.
        envelopes: how many in all.
        item_bytes: size of the one item of each.
        is_old: whether the emitters are clients of the old generation, with five calls for an envelope.
        pause_ms: how long an emitter waits between an answer and the next envelope.
        keys: the number of ordering keys that envelopes have in turn; 0 for envelopes without one.
        is_real: whether items are maps, of two types in turn, all with a key and headers, and one in ten with an
            ordering key.
    """

    emitters: int
    in_flight: int
    envelopes: int
    item_bytes: int = 200
    is_old: bool = False
    pause_ms: float = 0.0
    keys: int = 0
    is_real: bool = False
