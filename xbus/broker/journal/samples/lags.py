"""Finds how many envelopes ahead of its cursor each consumer role is owed, and the oldest of them.

The table of contents says as bits where such envelopes may lie, so that counting costs a row for each block and graph.
It may name too much: an envelope that is for other roles, or was removed. So the first of them are looked at.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, read_contents_end, read_listed
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import asks_for, is_for
from xbus.broker.journal.writes.cursor import Cursor

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
        graphs = _read_graphs(connection)
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
        graphs: defaultdict[int, set[int]] = defaultdict(set)
        for position, graph_id in connection.execute(_UNLISTED, {"after": after, "upto": upto}):
            graphs[position].add(graph_id)
        return _Tail(graphs, after, upto)


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


def _read_graphs(connection: sa.Connection) -> dict[int, set[int]]:
    """Read the graphs that lead to each service."""
    graphs: defaultdict[int, set[int]] = defaultdict(set)
    for service_id, graph_id in connection.execute(_LEADING):
        graphs[service_id].add(graph_id)
    return graphs


_LEADING = sa.select(model.node.c.service_id, model.node.c.graph_id).distinct()
_UNLISTED = (
    sa.select(model.envelope.c.position, model.event.c.graph_id)
    .join(model.event, model.event.c.envelope_id == model.envelope.c.id)
    .where(model.envelope.c.position > sa.bindparam("after"), model.envelope.c.position <= sa.bindparam("upto"))
)
