"""The deliveries and runs of bots that are still to come, for programs that wait until a bus is quiet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.bots import read_bots
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.operations.roles import COMING
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.states import BotRunState, DeliveryState, EnvelopeState, PresenceState

BEGIN_SECONDS = 2.0
"""Seconds of virtual time after which a batch that is there has a run: a new bot is looked for once a second."""


@dataclass(frozen=True, slots=True)
class ComingDelivery:
    """An envelope that comes to a consumer role without a decision of a person.

    Args:
        role: the role's login.
        position: the envelope's.
        cause: why it has not come yet; empty where it is only its turn that is to come.
        waits_for: the worker service without which it waits; None in other states.
    """

    role: str
    position: int
    cause: str = ""
    waits_for: str | None = None

    @property
    def told(self) -> str:
        """It as a part of a sentence."""
        return f"{self.role} lacks envelope {self.position}{': ' * bool(self.cause)}{self.cause}"


def list_coming(connection: sa.Connection) -> list[ComingDelivery]:
    """List what is to come for each role on the bus: all its rows, and the first envelope ahead of its cursor.

    An envelope of an ordered role is left out where it waits behind a parked one.
    """
    role = model.role.c
    cursors = read_cursors(connection)
    roles = connection.execute(
        sa.select(role.id, role.login, role.service_id).where(role.removed_at.is_(None), role.detached_at.is_(None))
    ).all()
    found = [ComingDelivery(*row) for row in connection.execute(_IN_ROWS)]
    for role_id, login, service_id in roles:
        if role_id in cursors:
            ahead = read_owed_ahead(connection, cursors[role_id], service_id, 1)
            found += [ComingDelivery(login, position) for position, _ in ahead]
    return found


def _in_rows() -> "sa.Select[str, int, str, str]":
    delivery, parked = model.delivery.c, model.delivery.alias("parked")
    is_behind_parked = sa.exists().where(
        parked.c.role_id == delivery.role_id,
        parked.c.ordering_key == delivery.ordering_key,
        parked.c.state == DeliveryState.PARKED.value,
        delivery.state == DeliveryState.HELD.value,
    )
    return (
        sa.select(model.role.c.login, delivery.position, delivery.cause, model.service.c.name)
        .join(model.role, model.role.c.id == delivery.role_id)
        .outerjoin(model.service, model.service.c.id == delivery.service_id)
        .where(
            delivery.state.in_([state.value for state in COMING]),
            model.role.c.removed_at.is_(None),
            model.role.c.detached_at.is_(None),
            ~is_behind_parked,
        )
        .select_from(model.delivery)
        .order_by(model.role.c.login, delivery.position)
    )


_IN_ROWS = _in_rows()
"""Built once: a bus for tests asks after each step."""


@dataclass(frozen=True, slots=True)
class ComingRun:
    """A run of a bot that is due or under way.

    Args:
        bot: its name.
        cause: of its last failure; empty where it has not failed.
        waits_for: no service.
    """

    bot: str
    cause: str = ""
    waits_for: str | None = None

    @property
    def told(self) -> str:
        """It as a part of a sentence."""
        return f"the bot {self.bot} is to run{': ' * bool(self.cause)}{self.cause}"


def list_coming_runs(connection: sa.Connection) -> list[ComingRun]:
    """List the runs that are due or under way, but for those of bots that are paused."""
    run = model.bot_run.c
    rows = connection.execute(
        sa.select(run.bot_id, run.error)
        .where(run.state.in_((BotRunState.DUE.value, BotRunState.RUNNING.value)))
        .order_by(run.id)
    ).all()
    bots = {bot.id: bot for bot in read_bots(connection, read_pauses(connection))} if rows else {}
    return [
        ComingRun(bots[row.bot_id].name, row.error or "")
        for row in rows
        if row.bot_id in bots and bots[row.bot_id].pause is None
    ]


def newest_run(connection: sa.Connection) -> int | None:
    """Give the number of the newest run of all bots."""
    found: int | None = connection.execute(sa.select(sa.func.max(model.bot_run.c.id))).scalar_one()
    return found


def quiet_seconds(connection: sa.Connection) -> float | None:
    """Give the seconds after which each batch that is there has a run; None where no bot reads."""
    keys = {bot.reader for bot in read_bots(connection, {}) if bot.reader is not None}
    waits = [reader.batch_wait for reader in read_readers(connection) if reader.key in keys] if keys else []
    return BEGIN_SECONDS + max(waits) if waits else None


# -- under way ---------------------------------------------------------------------------------------------------------
# The work that goes on with what is paused, for programs that wait until it has ended.

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
