"""Decides by the rules of their types which envelopes have been kept for long enough.

An envelope goes as a whole: it stays as long as the type of one of its events wants it.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.log.contents import find_newest
from xbus.broker.journal.log.envelopes import is_archived
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.retention.needed import IDS, Candidate, FreePart, next_free, read_owed, settled_among
from xbus.broker.journal.writes import BUS_WIDE, Keeping, Keepings
from xbus.clock import LONGEST_SPAN, span
from xbus.model.base import UNREADABLE

# -- keeping -----------------------------------------------------------------------------------------------------------
# Reads how long the settled events of each type stay.


def read_keepings(connection: sa.Connection) -> Keepings:
    """Read the limits of types that have some, by id; also of removed types, of which events may be left.

    A time beyond the longest span is for ever. A type keeps everything while an edit by SQL left it a limit that makes
    no sense: health tells of the row.
    """
    found = {event_type_id: _keeping(limits) for event_type_id, *limits in connection.execute(_KEEPINGS).all()}
    return {event_type_id: keeping for event_type_id, keeping in found.items() if keeping != BUS_WIDE}


def _keeping(limits: Sequence[float | None]) -> Keeping:
    makes_sense = all(limit is None or is_limit(limit, least) for limit, least in zip(limits, _LEAST, strict=True))
    if not makes_sense:
        return Keeping(keep=math.inf)
    keep, *others = limits
    is_endless = keep is not None and keep >= LONGEST_SPAN.total_seconds()
    return Keeping(math.inf if is_endless else keep, *others)  # type: ignore[arg-type]


def is_limit(limit: object, least: float) -> bool:
    """Check whether a limit that was read is a number that makes sense: SQLite keeps any value."""
    return isinstance(limit, int | float) and limit >= least


_TYPE = model.event_type.c
_LEAST = (0, 1, 1, 0)
"""The least values of the limits, in the order of the statement."""

_KEEPINGS = sa.select(_TYPE.id, _TYPE.keep, _TYPE.keep_bytes, _TYPE.keep_last_per_key, _TYPE.archive_after)


REMEMBERED_KEYS = 10_000
"""Partition keys whose newest events a round remembers. More spare look-ups, and cost memory."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Says when the events of a type may go: one of the three suffices.

    Args:
        until: those that were sealed before; None where no age lets them go.
        upto: those up to this position.
        last_per_key: those whose partition key has so many newer events.
    """

    until: datetime | None = None
    upto: int = 0
    last_per_key: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one round of removal.

    Args:
        others: of types without a rule of their own, and of envelopes without events.
        of_types: by the id of the type.
    """

    others: Rule
    of_types: Mapping[int, Rule] = field(default_factory=dict)
    newest: "NewestOfKeys" = field(default_factory=lambda: NewestOfKeys())

    @property
    def moments(self) -> list[datetime]:
        """The moments before which an age lets something go, in order: of types with rules, else of all others."""
        rules = self.of_types.values() or (self.others,)
        return sorted(rule.until for rule in rules if rule.until is not None)

    def of(self, event_type_id: int) -> Rule:
        """Give the rule of a type."""
        return self.of_types.get(event_type_id, self.others)


class NewestOfKeys:
    """Remembers from which position on the newest events of a partition key lie, for one round.

    Events that come meanwhile only move that position up: what was older stays older.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[int, str], int] = {}

    def first_kept(self, event_type_id: int, key: str) -> int:
        """Give the position from which on events of a key stay; 0 where it has too few."""
        return self._first.get((event_type_id, key), 0)

    def look_up(self, connection: sa.Connection, event_type_id: int, last: int, keys: Collection[str]) -> None:
        """Read it for those keys that are not known yet."""
        if len(self._first) > REMEMBERED_KEYS:
            self._first.clear()
        unknown = [key for key in keys if (event_type_id, key) not in self._first]
        if unknown:
            of_keys = {"of_type": event_type_id, "last": last, "keys": unknown}
            found = dict(connection.execute(_FIRST_KEPT, of_keys).all())
            self._first.update({(event_type_id, key): found.get(key, 0) for key in unknown})


def kept_long_enough(connection: sa.Connection, rules: Rules, found: Sequence[Candidate]) -> list[Candidate]:
    """Select those of some candidates of which no event has to stay."""
    if not rules.of_types:
        return [candidate for candidate in found if candidate.is_begun or _is_past(rules.others, candidate)]
    events: dict[UUID, list[tuple[int, str | None]]] = {}
    ids = {"ids": [candidate.envelope_id for candidate in found]}
    for envelope_id, event_type_id, key in connection.execute(_EVENTS, ids):
        events.setdefault(envelope_id, []).append((event_type_id, key))
    for (event_type_id, last), keys in _keys(rules, events.values()).items():
        rules.newest.look_up(connection, event_type_id, last, keys)

    def may_go(candidate: Candidate) -> bool:
        if candidate.is_begun:
            return True
        of_envelope = events.get(candidate.envelope_id)
        if not of_envelope:
            return _is_past(rules.others, candidate)
        return all(
            _is_past(rules.of(event_type_id), candidate)
            or (key is not None and candidate.position < rules.newest.first_kept(event_type_id, key))
            for event_type_id, key in of_envelope
        )

    return [candidate for candidate in found if may_go(candidate)]


def _is_past(rule: Rule, candidate: Candidate) -> bool:
    # A moment that can't be read is not old.
    return candidate.position <= rule.upto or (rule.until is not None and UNREADABLE < candidate.closed_at < rule.until)


def _keys(rules: Rules, events: Collection[Sequence[tuple[int, str | None]]]) -> dict[tuple[int, int], set[str]]:
    """Collect the partition keys of those types that keep only the newest of a key, with how many they keep."""
    keys: dict[tuple[int, int], set[str]] = {}
    for event_type_id, key in chain.from_iterable(events):
        last = rules.of(event_type_id).last_per_key
        if key is not None and last is not None:
            keys.setdefault((event_type_id, last), set()).add(key)
    return keys


_EVENT, _ENVELOPE = model.event.c, model.envelope.c
_EVENTS = sa.select(_EVENT.envelope_id, _EVENT.event_type_id, _EVENT.partition_key).where(_EVENT.envelope_id.in_(IDS))
_KEYS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
_RANKED = (
    sa.select(
        _EVENT.partition_key.label("key"),
        _ENVELOPE.position,
        sa.func.row_number().over(partition_by=_EVENT.partition_key, order_by=_ENVELOPE.position.desc()).label("rank"),
    )
    .join(model.envelope, _ENVELOPE.id == _EVENT.envelope_id)
    .where(
        _EVENT.event_type_id == sa.bindparam("of_type"),
        _EVENT.partition_key.in_(_KEYS),
        _ENVELOPE.position.is_not(None),
    )
    .subquery()
)
_FIRST_KEPT = sa.select(_RANKED.c.key, _RANKED.c.position).where(_RANKED.c.rank == sa.bindparam("last"))


# -- search ------------------------------------------------------------------------------------------------------------
# Searches the log for settled envelopes that have been kept for long enough, in bounded steps.

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
        sa.select(envelope.id, envelope.position, envelope.closed_at, envelope.bytes, is_begun)
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


# -- ages --------------------------------------------------------------------------------------------------------------
# Makes the rules and the ways through the log of one round of removal; pure.


@dataclass(frozen=True, slots=True)
class Ages:
    """Knows how long each type is kept.

    Args:
        keepings: those of types that say so themselves.
        otherwise: seconds for which all others are kept; infinite for ever.
    """

    keepings: Keepings
    otherwise: float

    @property
    def limits(self) -> dict[int, int]:
        """The bytes of a type that stay, where it says so."""
        return {each: found.keep_bytes for each, found in self.keepings.items() if found.keep_bytes is not None}

    def rules(self, now: datetime, upto: Mapping[int, int]) -> Rules:
        """Make the rules of this moment.

        Args:
            upto: the positions up to which a type's events are beyond its bytes.
        """
        of_types = {
            each: Rule(_before(now, found.seconds(self.otherwise)), upto.get(each, 0), found.keep_last_per_key)
            for each, found in self.keepings.items()
        }
        return Rules(Rule(_before(now, self.otherwise)), of_types)

    def ways(self, rules: Rules) -> Iterator[tuple[Scan, Rule]]:
        """Iterate over ways with their rules: one for each type with a rule, and one for all others."""
        if rules.others.until is not None:
            yield Scan(rules, without=frozenset(rules.of_types)), rules.others
        for each, rule in rules.of_types.items():
            yield Scan(rules, only=frozenset({each})), rule

    def way_for_space(self, now: datetime) -> Scan | None:
        """Give the way to all envelopes that an age will remove, as if that day were now; or None."""
        mortal = {each for each, found in self.keepings.items() if found.seconds(self.otherwise) < math.inf}
        endless = self.keepings.keys() - mortal
        of_types = {each: Rule(now if each in mortal else None) for each in self.keepings}
        if self.otherwise < math.inf:
            return Scan(Rules(Rule(now), of_types), without=frozenset(endless))
        return Scan(Rules(Rule(), of_types), only=frozenset(mortal)) if mortal else None


def way_to_archive(keepings: Keepings, now: datetime) -> Scan | None:
    """Give the way to all that is to be archived now; None where no type is archived.

    An envelope goes into the archive as a whole. Types that are not archived have no say in that.
    """
    of_types = {
        each: Rule(_before(now, found.archive_after))
        for each, found in keepings.items()
        if found.archive_after is not None
    }
    return Scan(Rules(Rule(now), of_types), only=frozenset(of_types)) if of_types else None


def sealed_before(until: datetime) -> Scan:
    """Give the way to all that was sealed before a moment."""
    return Scan(Rules(Rule(until)))


def _before(now: datetime, seconds: float) -> datetime | None:
    return None if seconds == math.inf else now - span(seconds)


# -- bounds ------------------------------------------------------------------------------------------------------------
# Finds the positions up to which a number of bytes lets events go.

COUNTED_ENVELOPES = 500
"""Envelopes whose bytes one step counts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The bytes of a type's newest events, counted so far.

    Args:
        below: the next step goes on below this position.
        data_bytes: of the events from there on.
        upto: all up to here is beyond the limit; None while that is not known.
    """

    below: int
    data_bytes: int = 0
    upto: int | None = None


def begin_count(connection: sa.Connection) -> Counted:
    """Begin at the head of the log."""
    return Counted(read_head(connection) + 1)


def count_bytes(connection: sa.Connection, event_type_id: int, limit: int, counted: Counted) -> Counted:
    """Count some of the next older events of a type.

    Args:
        limit: so many bytes stay; the event that goes beyond them does not.
        counted: the result of the step before.
    """
    graphs = connection.execute(_GRAPHS, {"of_type": event_type_id}).scalars().all()
    positions = find_newest(connection, graphs, counted.below, COUNTED_ENVELOPES)
    if not positions:
        return Counted(0, counted.data_bytes, upto=0)
    sizes: dict[int, int] = dict(connection.execute(_SIZES, {"of_type": event_type_id, "positions": positions}).all())
    total = counted.data_bytes
    for position in positions:
        total += int(sizes.get(position, 0))
        if total > limit:
            return Counted(position, total, upto=position)
    return Counted(positions[-1], total)


_OF_EVENT = OfEvent()
_GRAPHS = sa.select(model.graph.c.id).where(model.graph.c.event_type_id == sa.bindparam("of_type"))
_SIZES = (
    sa.select(_ENVELOPE.position, sa.func.sum(_OF_EVENT.size))
    .join(_OF_EVENT.joined, _EVENT.envelope_id == _ENVELOPE.id)
    .where(
        _ENVELOPE.position.in_(sa.bindparam("positions", expanding=True)),
        _EVENT.event_type_id == sa.bindparam("of_type"),
    )
    .group_by(_ENVELOPE.position)
)
