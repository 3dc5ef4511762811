"""Keeps readers in the journal: their settings, their ranges with places and leases, and their history.

The back and people decide who gets a range. Here each step is one transaction, and takes effect only if the range is as
its caller believes. Nothing here reads items.

Face: the names below, and ``parked``, ``people``, ``status``, ``subscribers``, ``subscriptions``,
``type_spans``.
"""

from xbus.broker.journal.readers.ranges import ReaderRange, read_range, read_ranges, read_served_ranges
from xbus.broker.journal.readers.settings import ReaderEntry, make_ranges, read_readers, write_settings
from xbus.broker.journal.readers.steps import (
    KEPT_MOVES,
    ActNote,
    LeaseOf,
    ReaderAct,
    SettleStep,
    lease_lost,
    pass_idle,
    pass_to,
    put_out,
    release,
    settle,
    settle_and_put_out,
    take,
)

__all__ = [
    "KEPT_MOVES",
    "ActNote",
    "LeaseOf",
    "ReaderAct",
    "ReaderEntry",
    "ReaderRange",
    "SettleStep",
    "lease_lost",
    "make_ranges",
    "pass_idle",
    "pass_to",
    "put_out",
    "read_range",
    "read_ranges",
    "read_readers",
    "read_served_ranges",
    "release",
    "settle",
    "settle_and_put_out",
    "take",
    "write_settings",
]
