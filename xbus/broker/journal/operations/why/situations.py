"""Roles as an explanation needs them: on the bus or off it, paused, and last seen when."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow
from xbus.broker.journal.operations.row_values import value_of
from xbus.broker.journal.writes import PauseEntry, Pauses, pause_of_role
from xbus.states import PresenceState


@dataclass(frozen=True, slots=True)
class RoleSituation:
    """A role, whatever it is owed.

    Args:
        id: of its row.
        login: its name.
        service: the present name of its service.
        service_id: of that row.
        is_worker: whether it is a worker; otherwise it is a consumer.
        ordered: whether it wants the envelopes of an ordering key in their order.
        removed_at: when it was taken out of use; None while it is in use.
        detached_at: when an operator took it off the bus; None while it is on it.
        pause: why it gets nothing new; None while it is not paused.
        state: its state as the broker wrote it down last; None where it was never seen.
        since: when it came into that state.
        seen_at: when its recipient gave its last sign of life; None where it never did.
    """

    id: int
    login: str
    service: str
    service_id: int
    is_worker: bool
    ordered: bool
    removed_at: datetime | None
    detached_at: datetime | None
    pause: PauseEntry | None
    state: PresenceState | None
    since: datetime | None
    seen_at: datetime | None

    @property
    def absent_since(self) -> datetime | None:
        """When its recipient went; None if it is there, or was never seen."""
        return self.since if self.state is PresenceState.ABSENT else None


def read_situation(connection: sa.Connection, login: str, pauses: Pauses) -> RoleSituation | None:
    """Read the situation of one role, also of a removed one; None if no role has this login."""
    return next(iter(_read(connection, model.role.c.login == login, pauses)), None)


def read_situations_of(connection: sa.Connection, service_id: int, pauses: Pauses) -> list[RoleSituation]:
    """Read the situations of the roles of a service that are in use, by login."""
    role = model.role.c
    return _read(connection, sa.and_(role.service_id == service_id, role.removed_at.is_(None)), pauses)


def read_logins(connection: sa.Connection, role_ids: Collection[int]) -> dict[int, str]:
    """Read the logins of roles by their ids."""
    role = model.role.c
    return dict(connection.execute(sa.select(role.id, role.login).where(role.id.in_(role_ids))).all())


def _read(connection: sa.Connection, which: sa.ColumnElement[bool], pauses: Pauses) -> list[RoleSituation]:
    role, service, presence = model.role.c, model.service.c, model.presence.c
    statement = (
        sa.select(
            *(role.id, role.login, role.service_id, role.ordered, role.removed_at, role.detached_at),
            *(service.name.label("service"), service.kind),
            *(presence.state, presence.since, presence.seen_at),
        )
        .join(model.service, service.id == role.service_id)
        .outerjoin(model.presence, presence.role_id == role.id)
        .where(which)
        .order_by(role.login)
    )
    rows: Sequence[NamedRow] = connection.execute(statement).all()
    return [_situation(row, pauses) for row in rows]


def _situation(row: NamedRow, pauses: Pauses) -> RoleSituation:
    return value_of(
        RoleSituation,
        row,
        is_worker=row.kind == "worker",
        pause=pause_of_role(pauses, row.id, row.service_id),
        state=None if row.state is None else PresenceState(row.state),
    )
