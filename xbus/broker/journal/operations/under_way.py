"""The work that goes on with what is paused, for programs that wait until it has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.states import BotRunState, EnvelopeState, PresenceState

IN_FORCE_SECONDS = 2.0
"""A running broker knows of a pause so soon. Before that more may begin."""

ABSENT_SECONDS = 5.0
"""A role that is still noted as absent then has no recipient, or no broker: nothing is under way."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The work that goes on.

    Args:
        envelopes: how many are being brought, or are open at the front; for a bot, how many of its runs go on.
        unpaused: the roles of which the broker has not noted yet that they are paused.
    """

    envelopes: int = 0
    unpaused: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.envelopes or self.unpaused)


def read_under_way(connection: sa.Connection, pause: PauseEntry, now: datetime) -> UnderWay | None:
    """Count the work under way of a paused thing; None while the broker may not know of the pause yet."""
    if now - pause.since < timedelta(seconds=IN_FORCE_SECONDS):
        return None
    if pause.kind in (PauseKind.ROLE, PauseKind.SERVICE):
        return _at_roles(connection, pause, now)
    if pause.kind is PauseKind.BOT:
        return UnderWay(_runs(connection, pause.subject_id))
    return UnderWay(_open_envelopes(connection, pause))


def _at_roles(connection: sa.Connection, pause: PauseEntry, now: datetime) -> UnderWay:
    role = model.role.c
    concerned = (role.id if pause.kind is PauseKind.ROLE else role.service_id) == pause.subject_id
    statement = (
        sa.select(role.login, model.presence.c.state, model.presence.c.work)
        .outerjoin(model.presence, model.presence.c.role_id == role.id)
        .where(concerned, role.removed_at.is_(None), role.detached_at.is_(None))
        .order_by(role.login)
    )
    ended = [PresenceState.PAUSED]
    if now - pause.since >= timedelta(seconds=ABSENT_SECONDS):
        ended.append(PresenceState.ABSENT)
    found = connection.execute(statement).all()
    unpaused = [row.login for row in found if row.state not in ended and row.state is not None]
    return UnderWay(sum(len(row.work or ()) for row in found), unpaused)


def _runs(connection: sa.Connection, bot_id: int) -> int:
    run = model.bot_run.c
    running = sa.select(sa.func.count()).where(run.bot_id == bot_id, run.state == BotRunState.RUNNING)
    found: int = connection.execute(running).scalar_one()
    return found


def _open_envelopes(connection: sa.Connection, pause: PauseEntry) -> int:
    envelope, event = model.envelope.c, model.event.c
    if pause.kind is PauseKind.EMITTER:
        concerned = envelope.emitter_id == pause.subject_id
    else:
        of_type = sa.select(event.envelope_id).where(event.event_type_id == pause.subject_id)
        concerned = envelope.id.in_(of_type.where(event.envelope_id == envelope.id))
    count = sa.select(sa.func.count()).select_from(model.envelope).where(is_in(EnvelopeState.OPEN), concerned)
    found: int = connection.execute(count).scalar_one()
    return found
