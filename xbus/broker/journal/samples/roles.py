"""Reads how all roles are, for a sample: what is parked for them, what comes by itself, and who serves them."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, value_of
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.roles import COMING, presence_state
from xbus.broker.journal.operations.stalled import IS_PARKED
from xbus.broker.journal.samples.lags import AheadOfRole, LagReader
from xbus.broker.journal.samples.sample import RoleLag
from xbus.broker.journal.writes import Pauses, pause_of_role
from xbus.states import ItemState, PresenceState

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
