"""Takes a sample: one short read that finds all figures of a moment."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, grouped, value_of
from xbus.broker.journal.log.catalog import read_pauses, read_version
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, read_contents_end, read_listed
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import asks_for, is_for
from xbus.broker.journal.operations.roles import COMING, presence_state
from xbus.broker.journal.operations.stalled import IS_PARKED
from xbus.broker.journal.samples.sample import (
    NOTHING,
    STEP,
    Count,
    RoleLag,
    Sample,
    Traffic,
    begin,
    goes_on,
    most_of,
    read_newest,
)
from xbus.broker.journal.writes import Pauses, pause_of_role
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import ItemState, PresenceState

# -- lags --------------------------------------------------------------------------------------------------------------
# Finds how many envelopes ahead of its cursor each consumer role is owed, and the oldest of them.
#
# The table of contents says as bits where such envelopes may lie, so that counting costs a row for each block and
# graph. It may name too much: an envelope that is for other roles, or was removed. So the first of them are looked at.

MOST_LISTED = 128 * BLOCK_POSITIONS
"""Positions of the table of contents that are read for a role. The rest is estimated by their events."""

MOST_UNLISTED = 4096
"""Positions behind the table of contents that are read, once for all roles."""

PAGE = 16
"""Envelopes of one look at what the table of contents names."""

MOST_PAGES = 8
"""Looks for a role in one sample. The next sample goes on behind them."""


class AheadOfRole(NamedTuple):
    """The envelopes whose turn at a role is still to come.

    Args:
        envelopes: how many; an estimate where there are many.
        oldest_at: when the oldest was sealed; None without any, and while it is still searched.
    """

    envelopes: int
    oldest_at: datetime | None


class _CursorPlace(NamedTuple):
    """The place of a role in the log; while it is the same, no position is read again."""

    version: int
    position: int
    above: int
    from_position: int
    until_position: int | None


@dataclass(frozen=True, slots=True)
class _Tail:
    """The graphs of the envelopes behind the table of contents, up to a position."""

    graphs: Mapping[int, Collection[int]]
    after: int
    upto: int

    def bits(self, graphs: Collection[int], after: int) -> int:
        """The envelopes that lead to some graphs, as bits from ``after + 1`` on."""
        wanted = set(graphs)
        places = (at - after - 1 for at, found in self.graphs.items() if at > after and not wanted.isdisjoint(found))
        bits = 0
        for place in places:
            bits |= 1 << place
        return bits


class LagReader:
    """Reads the arrears of roles again and again. It remembers a position up to which an absent role is owed nothing.

    Args:
        most_listed: positions of the table of contents for a role.
        most_unlisted: positions behind it.
    """

    def __init__(self, most_listed: int = MOST_LISTED, most_unlisted: int = MOST_UNLISTED) -> None:
        self._most_listed = most_listed
        self._most_unlisted = most_unlisted
        self._nothing_owed_to: dict[int, tuple[_CursorPlace, int]] = {}

    def read(self, connection: sa.Connection, version: int, services: Mapping[int, int]) -> dict[int, AheadOfRole]:
        """Read what is ahead of consumer roles, by role id; roles that lack nothing are left out.

        Args:
            version: of the configuration: another graph may lead envelopes to a role that it has passed.
            services: the ids of the services of roles, by role id.
        """
        head = read_head(connection)
        behind = {
            role_id: (cursor, self._looked_to(version, cursor))
            for role_id, cursor in read_cursors(connection).items()
            if role_id in services and self._looked_to(version, cursor) < _until(cursor, head)
        }
        if not behind:
            return {}
        graphs = grouped(connection.execute(_LEADING))
        end = min(read_contents_end(connection), head)
        tail = self._read_tail(connection, max(end, min(after for _, after in behind.values())), head)
        found = {}
        for role_id, (cursor, after) in behind.items():
            leading = graphs.get(services[role_id], ())
            until = _until(cursor, head)
            if until - after > self._most_listed and after < end:
                seen_to = min(end, after + self._most_listed)
            else:
                seen_to = min(until, tail.upto)
            if seen_to <= after:
                # The broker lists blocks late just now, and this role is near the head: few can be ahead of it.
                found[role_id] = AheadOfRole(until - after, None)
                continue
            bits = read_listed(connection, leading, after, min(end, seen_to)) | tail.bits(leading, after)
            bits &= ~(cursor.above >> (after - cursor.position)) & ((1 << (seen_to - after)) - 1)
            ahead, passed = _look(connection, cursor, services[role_id], bits, after, seen_to)
            if ahead.envelopes:
                whole = round(ahead.envelopes * (until - after) / (seen_to - after))
                found[role_id] = ahead._replace(envelopes=whole)
            self._nothing_owed_to[role_id] = _place(version, cursor), passed
        return found

    def _looked_to(self, version: int, cursor: Cursor) -> int:
        place, looked_to = self._nothing_owed_to.get(cursor.role_id, (None, 0))
        after = max(cursor.position, cursor.from_position - 1)
        return max(after, looked_to) if place == _place(version, cursor) else after

    def _read_tail(self, connection: sa.Connection, after: int, head: int) -> _Tail:
        upto = min(head, after + self._most_unlisted)
        return _Tail(grouped(connection.execute(_UNLISTED, {"after": after, "upto": upto})), after, upto)


def _place(version: int, cursor: Cursor) -> _CursorPlace:
    return _CursorPlace(version, cursor.position, cursor.above, cursor.from_position, cursor.until_position)


def _until(cursor: Cursor, head: int) -> int:
    """The last position that may be owed to a role."""
    return head if cursor.until_position is None else min(head, cursor.until_position - 1)


def _look(
    connection: sa.Connection, cursor: Cursor, service_id: int, bits: int, after: int, seen_to: int
) -> tuple[AheadOfRole, int]:
    """Look at the first envelopes that bits name, until one of them is owed.

    Returns:
        The envelopes ahead, and a position up to which nothing is owed.
    """
    left = bits.bit_count()
    places = _places(bits)
    passed = after
    for _ in range(MOST_PAGES):
        page = [after + 1 + place for _, place in zip(range(PAGE), places, strict=False)]
        if not page:
            return AheadOfRole(0, None), seen_to
        wanted = sa.select(model.envelope.c.position, model.envelope.c.closed_at).where(
            model.envelope.c.position.in_(page), asks_for(service_id), is_for(cursor.role_id)
        )
        owed = sorted((at, sealed_at) for at, sealed_at in connection.execute(wanted))
        left -= len(page) - len(owed)
        if owed:
            return AheadOfRole(left, owed[0][1]), owed[0][0] - 1
        passed = page[-1]
    return AheadOfRole(left, None), passed


def _places(bits: int) -> Iterator[int]:
    """The places of the set bits, the lowest first."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    for number, byte in enumerate(data):
        if byte:
            yield from (8 * number + bit for bit in range(8) if byte >> bit & 1)


_LEADING = sa.select(model.node.c.service_id, model.node.c.graph_id).distinct()
_UNLISTED = (
    sa.select(model.envelope.c.position, model.event.c.graph_id)
    .join(model.event, model.event.c.envelope_id == model.envelope.c.id)
    .where(model.envelope.c.position > sa.bindparam("after"), model.envelope.c.position <= sa.bindparam("upto"))
)


# -- roles -------------------------------------------------------------------------------------------------------------
# Reads how all roles are, for a sample: what is parked for them, what comes by itself, and who serves them.

MOST_COUNTED = 10_000
"""So many rows of a kind are counted for a role. More would cost more, and tell nobody more."""


@dataclass(frozen=True, slots=True)
class RoleFigures:
    """A role in use, as it is just now.

    Args:
        login: the name by which people call it.
        state: of its recipient, as the broker wrote it down last.
        since: when it came into that state; None where it was never seen.
        lag: the envelopes that it lacks and that arrive by themselves; an estimate where there are many.
        owed_since: when the oldest of these was sealed; None without any, and while it is still searched.
        parked: the envelopes that are parked for it, :data:`MOST_COUNTED` at the most.
        parked_items: the items that are parked alone for it, as many at the most.
    """

    role_id: int
    login: str
    service_id: int
    state: PresenceState
    since: datetime | None
    lag: int
    owed_since: datetime | None
    parked: int
    parked_items: int

    def arrears(self, now: datetime) -> RoleLag:
        """Give its figures as a sample keeps them."""
        seconds = 0.0 if self.owed_since is None else max(0.0, (now - self.owed_since).total_seconds())
        return RoleLag(self.lag, seconds, self.parked + self.parked_items)


def read_roles(connection: sa.Connection, version: int, lags: LagReader, most: int = MOST_COUNTED) -> list[RoleFigures]:
    """Read all roles in use, by login.

    Args:
        version: of the configuration.
        lags: remembers what it has read before.
        most: so many rows of a kind are counted for a role.
    """
    pauses = read_pauses(connection)
    rows = connection.execute(_ROLES, {"most": most}).all()
    ahead = lags.read(connection, version, {row.id: row.service_id for row in rows})
    # Looking at the rows themselves costs more than counting them in an index: only where some are not parked.
    coming = {row.id: _read_coming(connection, row.id, most) for row in rows if row.rows not in (0, row.parked)}
    coming |= {row.id: _read_coming(connection, row.id, most) for row in rows if row.rows == row.parked == most}
    return [_figures(row, ahead.get(row.id, NOTHING_AHEAD), coming.get(row.id, NOTHING_AHEAD), pauses) for row in rows]


def _figures(row: NamedRow, ahead: AheadOfRole, coming: AheadOfRole, pauses: Pauses) -> RoleFigures:
    return value_of(
        RoleFigures,
        row,
        role_id=row.id,
        state=presence_state(row, pause_of_role(pauses, row.id, row.service_id)),
        lag=ahead.envelopes + coming.envelopes,
        owed_since=min(filter(None, (ahead.oldest_at, coming.oldest_at)), default=None),
    )


def _read_coming(connection: sa.Connection, role_id: int, most: int) -> AheadOfRole:
    """Read the envelopes in rows of a role that come by themselves, among the first ``most`` of its rows."""
    number, position = connection.execute(_COMING, {"role": role_id, "most": most}).one()
    if not number:
        return NOTHING_AHEAD
    sealed_at = sa.select(model.envelope.c.closed_at).where(model.envelope.c.position == position)
    return AheadOfRole(number, connection.execute(sealed_at).scalar_one_or_none())


NOTHING_AHEAD = AheadOfRole(0, None)

_MOST: "sa.BindParameter[int]" = sa.bindparam("most", type_=sa.Integer)
_ROLE, _DELIVERY, _ITEM = model.role.c, model.delivery.c, model.parked_item.c


def _counted(*which: sa.ColumnElement[bool]) -> "sa.ScalarSelect[int]":
    """Count rows that belong to a role, up to a limit."""
    found = sa.select(sa.literal_column("1")).where(*which).limit(_MOST).correlate(model.role).subquery()
    return sa.select(sa.func.count()).select_from(found).scalar_subquery()


def _roles() -> NamedRows:
    presence = model.presence.c
    return (
        sa.select(
            *(_ROLE.id, _ROLE.login, _ROLE.service_id, _ROLE.detached_at, presence.state, presence.since),
            _counted(_DELIVERY.role_id == _ROLE.id).label("rows"),
            _counted(_DELIVERY.role_id == _ROLE.id, IS_PARKED).label("parked"),
            _counted(_ITEM.role_id == _ROLE.id, _ITEM.state == ItemState.PARKED.value).label("parked_items"),
        )
        .outerjoin(model.presence, presence.role_id == _ROLE.id)
        .where(_ROLE.removed_at.is_(None))
        .order_by(_ROLE.login)
    )


_ROLES = _roles()


def _coming() -> "sa.Select[int, int | None]":
    first = (
        sa.select(_DELIVERY.position, _DELIVERY.state)
        .where(_DELIVERY.role_id == sa.bindparam("role"))
        .order_by(_DELIVERY.position)
        .limit(_MOST)
        .subquery()
    )
    return sa.select(sa.func.count(), sa.func.min(first.c.position)).where(first.c.state.in_(COMING))


_COMING = _coming()


# -- traffic -----------------------------------------------------------------------------------------------------------
# Counts the events that came between two positions of the log, by emitter and event type.

MOST_READ = 4000
"""Envelopes that are read to count their events. More tell more exactly, and read longer."""

WINDOWS = 4
"""If more came, the sampler reads so many windows of them, spread over all."""


def count_traffic(connection: sa.Connection, after: int, upto: int, most: int = MOST_READ) -> Traffic:
    """Count the events of the envelopes above one position and up to another.

    Up to ``most`` envelopes it counts; of more it reads some windows, and makes an estimate of what they hold.
    """
    read = 0
    found: defaultdict[tuple[int, int], Count] = defaultdict(lambda: NOTHING)
    for first, last in _windows(after, upto, most):
        read += last - first
        for emitter_id, type_id, events, items in connection.execute(_TRAFFIC, {"after": first, "upto": last}):
            found[emitter_id, type_id] += Count(events, int(items or 0))
    share = (upto - after) / read if read else 1.0
    return {pair: Count(round(count.events * share), round(count.items * share)) for pair, count in found.items()}


def _windows(after: int, upto: int, most: int) -> Iterator[tuple[int, int]]:
    """Spread windows of positions over a range; a range that is short enough is one window."""
    length = upto - after
    if length <= most:
        yield after, upto
        return
    for number in range(WINDOWS):
        last = upto - number * length // WINDOWS
        yield last - most // WINDOWS, last


_ENVELOPE, _EVENT = model.envelope.c, model.event.c
_TRAFFIC = (
    sa.select(_ENVELOPE.emitter_id, _EVENT.event_type_id, sa.func.count(), sa.func.sum(_EVENT["items"]))
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_ENVELOPE.position > sa.bindparam("after"), _ENVELOPE.position <= sa.bindparam("upto"))
    .group_by(_ENVELOPE.emitter_id, _EVENT.event_type_id)
)


@dataclass(frozen=True, slots=True)
class TakenSample:
    """A sample, and the roles as they were when it was taken.

    Args:
        version: of the configuration.
        roles: all that are in use, by login.
    """

    version: int
    sample: Sample
    roles: Sequence[RoleFigures]


def take(connection: sa.Connection, lags: LagReader, now: datetime) -> TakenSample:
    """Take a sample that begins where the newest one ends.

    Args:
        lags: remembers what it has read before.
    """
    version, head = read_version(connection), read_head(connection)
    newest = read_newest(connection)
    roles = read_roles(connection, version, lags)
    sample = _count(connection, newest, now, head) if newest and goes_on(newest, now, head) else None
    arrears = {role.role_id: lag for role in roles if any(lag := role.arrears(now))}
    return TakenSample(
        version,
        replace(
            sample or begin(now, head),
            lag=sum(lag.lag for lag in arrears.values()),
            lag_seconds=max((lag.lag_seconds for lag in arrears.values()), default=0.0),
            parked=sum(lag.parked for lag in arrears.values()),
            roles=most_of(arrears, lambda lag: lag.lag + lag.parked),
        ),
        roles,
    )


def _count(connection: sa.Connection, newest: Sample, now: datetime, head: int) -> Sample:
    traffic = count_traffic(connection, newest.position, head)
    return Sample(
        step=STEP,
        began_at=newest.ended_at,
        ended_at=now,
        observed=(now - newest.ended_at).total_seconds(),
        position=head,
        envelopes=head - newest.position,
        events=sum(count.events for count in traffic.values()),
        items=sum(count.items for count in traffic.values()),
        traffic=most_of(traffic, lambda count: count.events),
    )
