"""Searches the log for settled envelopes that have been kept for long enough, in bounded steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.envelopes import is_archived
from xbus.broker.journal.retention.needed import Candidate, settled_among
from xbus.broker.journal.retention.owed import FreePart, next_free, read_owed
from xbus.broker.journal.retention.rules import Rules, kept_long_enough

PAGE_ENVELOPES = 100
"""Envelopes that one step looks at."""

READ_ENVELOPES = 1_000
"""Envelopes that one step looks at that only reads, and keeps no writer waiting."""

SCANNED_POSITIONS = 5_000
"""Positions that one step searches for them. A large part of the log may consist of rows that are kept for good."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A way through the log.

    Args:
        rules: which envelopes may go.
        only: types of which an envelope must hold an event; None for any.
        without: types that pass nothing: an envelope must hold an event of another one, or none at all.
        upto: the last position that matters; None for all of the log.
        claimed: whether it passes by the types that nobody takes.
    """

    rules: Rules
    only: frozenset[int] | None = None
    without: frozenset[int] = frozenset()
    upto: int | None = None
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class SettledPage:
    """The result of a step.

    Args:
        settled: what may go, in position order.
        after: the next step goes on above this position; None where this one found the end.
    """

    settled: Sequence[Candidate]
    after: int | None


def search(
    connection: sa.Connection,
    after: int,
    scan: Scan,
    *,
    keep_rows: bool,
    scanned_positions: int = SCANNED_POSITIONS,
    envelopes: int = PAGE_ENVELOPES,
) -> SettledPage:
    """Find some of the received envelopes that nobody needs and that no rule keeps, in position order.

    Args:
        after: a position; what is looked at lies above it.
        scan: where and for what.
        keep_rows: whether rows that are only receipts stay.
        scanned_positions: how much of the log is looked at.
        envelopes: how many of those that the way passes.
    """
    owed = read_owed(connection, with_unclaimed=scan.claimed)
    free = next_free(connection, owed, after, envelopes, scan.only)
    if free is None:
        return SettledPage((), None)
    first = connection.execute(_FIRST, {"after": free.after}).scalar_one()
    if first is None or (scan.upto is not None and first > scan.upto):
        return SettledPage((), None)
    # What a page names is looked at whole, however far its positions are apart.
    last = min(free.last, first + scanned_positions) if free.positions is None else free.last
    last = last if scan.upto is None else min(last, scan.upto)
    candidates = _candidates(connection, replace(free, last=last), scan, keep_rows, envelopes)
    ripe = kept_long_enough(connection, scan.rules, candidates) if candidates else []
    settled = settled_among(connection, ripe, owed=owed) if ripe else ()
    return SettledPage(settled, candidates[-1].position if candidates else last)


def _candidates(connection: sa.Connection, free: FreePart, scan: Scan, keep_rows: bool, most: int) -> list[Candidate]:
    envelope = model.envelope.c
    has_events = sa.exists().where(model.event.c.envelope_id == envelope.id)
    # Of an envelope whose removal was broken off, events are left.
    goes = sa.or_(envelope.pruned_at.is_(None), has_events)
    if not keep_rows:
        goes = sa.true()
    is_begun = sa.and_(envelope.pruned_at.is_not(None), has_events)
    rows = connection.execute(
        sa.select(
            *(envelope.id, envelope.position, envelope.closed_at, envelope.bytes, is_begun),
        )
        # What is archived is moved, not removed: its rows tell where its items are.
        .where(*is_within(free), goes, ~is_archived(), *of_types(scan))
        .order_by(envelope.position)
        .limit(most)
    )
    return [
        Candidate(envelope_id, position, closed_at, data_bytes, keep_rows, bool(begun))
        for envelope_id, position, closed_at, data_bytes, begun in rows
    ]


def is_within(free: FreePart) -> list[sa.ColumnElement[bool]]:
    """Build the conditions that an envelope lies in a part of the log."""
    position = model.envelope.c.position
    if free.positions is not None:
        return [position.in_(free.positions), position <= free.last]
    return [position > free.after, position <= free.last]


def of_types(scan: Scan) -> list[sa.ColumnElement[bool]]:
    """Build the conditions that an envelope holds such events as a way is about."""
    envelope, event = model.envelope.c, model.event.c

    def holds(of_type: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
        return sa.exists().where(event.envelope_id == envelope.id, of_type)

    conditions = []
    if scan.only is not None:
        conditions.append(holds(event.event_type_id.in_(scan.only)))
    if scan.without:
        any_event: Any = sa.exists().where(event.envelope_id == envelope.id)
        conditions.append(sa.or_(holds(event.event_type_id.not_in(scan.without)), ~any_event))
    return conditions


_FIRST = sa.select(sa.func.min(model.envelope.c.position)).where(model.envelope.c.position > sa.bindparam("after"))
