"""Finds the consumer roles beyond their limit of lag, and has them skip the envelopes that are too old.

Lag counts the envelopes that a role lacks and will get in their turn. Parked envelopes are a matter of a person.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import count_listed, read_contents_end
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.event_states import DROPPED
from xbus.broker.journal.log.planning import position_before
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.writes.cursor import Cursor
from xbus.clock import span
from xbus.model import lag_limit
from xbus.model.base import UNREADABLE

# -- limits ------------------------------------------------------------------------------------------------------------
# Limits of lags: how far a consumer role or a reader may be behind, as the bus file says it.

WhenBehind: TypeAlias = Literal["alarm", "detach", "skip"]
LimitOf: TypeAlias = Literal["role", "reader"]


def write_limit(
    connection: sa.Connection, kind: LimitOf, subject_id: int, max_lag: int | timedelta | None, when_behind: WhenBehind
) -> None:
    """Set the limit of a role, or of the service of a reader; None means no limit."""
    of_subject = (lag_limit.c.kind == kind, lag_limit.c.subject_id == subject_id)
    connection.execute(sa.delete(lag_limit).where(*of_subject))
    if max_lag is not None:
        limit = {"seconds": max_lag.total_seconds()} if isinstance(max_lag, timedelta) else {"envelopes": max_lag}
        row = {"kind": kind, "subject_id": subject_id, "when_behind": when_behind, **limit}
        connection.execute(sa.insert(lag_limit).values(row))


def limit_of(envelopes: int | None, seconds: float | None) -> int | timedelta | None:
    """Give the limit that a row says; None where it says none."""
    return envelopes if seconds is None else span(seconds)


MOST_SKIPPED = 10_000
"""Envelopes that one look has a role do without. More catch up in fewer looks, and cost memory."""

SUBJECT = "role"
"""The name of moves of a role in the history."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """A role that is further behind than it may be.

    Args:
        upto: what the role is owed up to this position is beyond its limit, at the most :data:`MOST_SKIPPED` envelopes.
        told: the limit and how far it is exceeded, as the end of a sentence.
        is_decided: whether it is about to do without some of it already.
    """

    role_id: int
    login: str
    when_behind: WhenBehind
    upto: int
    told: str
    is_decided: bool


def find_lagging(connection: sa.Connection, now: datetime, most_skipped: int = MOST_SKIPPED) -> list[Lagging]:
    """Find the roles that are beyond their limit. If no role has one, this costs one look at an empty table.

    Args:
        most_skipped: envelopes that a role has to do without at once, as each of them has a row in the history.
    """
    limited = connection.execute(_LIMITED).all()
    if not limited:
        return []
    cursors = read_cursors(connection)
    decided = set(connection.execute(sa.select(model.decision.c.role_id)).scalars())
    found = []
    for row in limited:
        cursor = cursors.get(row.id)
        if cursor is None:
            continue
        beyond = (
            _beyond_age(connection, cursor, row.service_id, (now, span(row.seconds)), most_skipped)
            if row.seconds is not None
            else _beyond_number(connection, cursor, row.service_id, row.envelopes, most_skipped)
        )
        if beyond is not None:
            found.append(Lagging(row.id, row.login, row.when_behind, *beyond, is_decided=row.id in decided))
    return found


def _beyond_age(
    connection: sa.Connection, cursor: Cursor, service_id: int, limit: tuple[datetime, timedelta], most_skipped: int
) -> tuple[int, str] | None:
    now, allowed = limit
    before = now - allowed
    oldest = read_owed_ahead(connection, cursor, service_id, 1)
    # A moment that can't be read is not old.
    if not oldest or not UNREADABLE < oldest[0][1] < before:
        return None
    some = read_owed_ahead(connection, cursor, service_id, most_skipped)
    upto = position_before(connection, before)
    if len(some) == most_skipped:
        upto = min(upto, some[-1][0])
    told = f"the oldest envelope that it lacks was received {oldest[0][1]:%Y-%m-%d %H:%M} UTC"
    return upto, f"{told}, and max_lag allows {allowed}"


def _beyond_number(
    connection: sa.Connection, cursor: Cursor, service_id: int, most: int, most_skipped: int
) -> tuple[int, str] | None:
    graphs = connection.execute(_LEADING, {"of_service": service_id}).scalars().all()
    lacks = _count(connection, cursor, graphs)
    beyond = min(lacks - most, most_skipped)
    if beyond <= 0:
        return None
    oldest = read_owed_ahead(connection, cursor, service_id, beyond)
    if not oldest:
        return None
    return oldest[-1][0], f"it lacks some {lacks:,} envelopes, and max_lag allows {most:,}"


def _count(connection: sa.Connection, cursor: Cursor, graphs: Collection[int]) -> int:
    """Count what lies ahead of a role, by the table of contents and by what is not in it yet."""
    head, listed = read_head(connection), max(read_contents_end(connection), cursor.position)
    of_listed = count_listed(connection, graphs, cursor.position, listed)
    of_rest = connection.execute(_REST, {"graphs": list(graphs), "above": listed, "upto": head}).scalar_one()
    return max(0, of_listed + int(of_rest) - cursor.above.bit_count())


def skip(connection: sa.Connection, lagging: Lagging, at: datetime) -> None:
    """Decide that a role skips all up to a position. The back carries that out, as it knows the work under way.

    The history says so of the role, and of each envelope that it does without.
    """
    position = read_cursors(connection)[lagging.role_id].position
    reason = f'role "{lagging.login}" skips up to position {lagging.upto}: {lagging.told}'
    values = {"move": DROPPED, "at": at, "reason": reason, "role_id": lagging.role_id}
    positions = {"position": position, "until_position": lagging.upto}
    connection.execute(sa.insert(model.decision).values(**values, **positions))
    noted = {"at": at, "subject": SUBJECT, "subject_id": lagging.login, "move": "skipped", "reason": reason}
    connection.execute(sa.insert(model.history).values(**noted))


_ROLE, _LIMIT = model.role.c, model.lag_limit.c
_LIMITED = (
    sa.select(_ROLE.id, _ROLE.login, _ROLE.service_id, _LIMIT.envelopes, _LIMIT.seconds, _LIMIT.when_behind)
    .join(model.lag_limit, sa.and_(_LIMIT.kind == "role", _LIMIT.subject_id == _ROLE.id))
    .where(_ROLE.removed_at.is_(None), _ROLE.detached_at.is_(None))
    .order_by(_ROLE.login)
)
_LEADING = sa.select(model.node.c.graph_id).where(model.node.c.service_id == sa.bindparam("of_service")).distinct()
_REST = (
    sa.select(sa.func.count(model.envelope.c.id.distinct()))
    .join(model.event, model.event.c.envelope_id == model.envelope.c.id)
    .where(
        model.envelope.c.position > sa.bindparam("above"),
        model.envelope.c.position <= sa.bindparam("upto"),
        model.event.c.graph_id.in_(sa.bindparam("graphs", expanding=True)),
    )
)
