"""Names the faults that an examination finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import sqlalchemy as sa


class FaultCode(StrEnum):
    """The kinds of faults; a code never changes its meaning."""

    DATABASE_DAMAGED = "database_damaged"
    """The database itself reports damage, or can't read a row."""
    VALUE_UNREADABLE = "value_unreadable"
    """A value is none of its column's type."""
    REFERENCE_BROKEN = "reference_broken"
    """A row names a row of another table that does not exist."""
    SEGMENT_CHANGED = "segment_changed"
    """The items of a segment do not agree with its hash, its number of items, or its neighbours."""
    EVENT_CHANGED = "event_changed"
    """An event does not agree with its segments, its envelope, or its graph."""
    ENVELOPE_CHANGED = "envelope_changed"
    """An envelope does not agree with its events, its hash, or its key."""
    LOG_BROKEN = "log_broken"
    """The end of the log, or its table of contents, does not agree with the envelopes."""
    PROGRESS_WRONG = "progress_wrong"
    """A cursor, a delivery row, or a row about an item does not agree with the log."""
    OUTPUT_CHANGED = "output_changed"
    """The output of a bulk worker does not agree with its hashes and totals."""
    AUDIT_CHANGED = "audit_changed"
    """A row of the audit was changed or removed."""
    CONFIGURATION_WRONG = "configuration_wrong"
    """A row of the configuration makes no sense."""
    NOT_CHECKED = "not_checked"
    """A check could not go on, mostly because of a fault that is reported before it."""
    NO_CHECKSUMS = "no_checksums"
    """PostgreSQL keeps no checksums of its pages, so it notices less damage."""
    BYTES_MISCOUNTED = "bytes_miscounted"
    """The count of the bytes that are stored differs from their sum. It decides when the journal is full."""


NOTES = frozenset({FaultCode.NO_CHECKSUMS, FaultCode.BYTES_MISCOUNTED})
"""The codes by which nothing is lost."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Args:
        table: in which table it is; empty where that is not known.
        row: the row's key, or another place in the table; empty where that is not known.
        cause: the fault, one sentence without a final full stop.
    """

    code: FaultCode
    table: str
    row: str
    cause: str

    @property
    def is_note(self) -> bool:
        """True if nothing is lost by it."""
        return self.code in NOTES

    @property
    def place(self) -> str:
        """The table and the row."""
        return f"{self.table} {self.row}".strip()


Tell: TypeAlias = Callable[[int], None]
"""Gets the number of rows that were examined since it was called last."""

Check: TypeAlias = Callable[[sa.Connection, Tell], Iterator[Fault]]
"""Examines something over a connection without a transaction."""
