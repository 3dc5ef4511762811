"""Roles, readers and bots as an explanation needs them: on the bus or off it, paused, and last seen when."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, value_of
from xbus.broker.journal.log.bots.entries import read_bots, read_runners
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.bots import BotRunStatus, BotStatus, list_bots, list_runs
from xbus.broker.journal.readers import read_readers
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.readers.subscribers import read_subscribers
from xbus.broker.journal.writes import PauseEntry, PauseKind, Pauses, pause_of_role
from xbus.states import BotRunState, PresenceState


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


MOST_POSITIONS = 1_000
"""So many positions are looked at for the next envelope of a reader. More would read longer."""


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """The facts of a reader.

    Args:
        status: as ``xbus reader list`` shows it.
        pause: why its programs get nothing new; None while it is not paused.
        archived: the envelope that it is to read next, where only an archive has that; else None.
    """

    status: ReaderStatus
    pause: PauseEntry | None
    archived: UUID | None = None


def read_reader_facts(connection: sa.Connection, name: str) -> ReaderFacts | None:
    """Read the facts of the reader, or the subscription, of a name; None if none in use is called so."""
    subscribers = read_subscribers(connection)
    of_subscriptions = {service_id for service_id, each in subscribers.items() if each.name == name}
    chosen = [each for each in read_readers(connection) if each.name == name or each.id in of_subscriptions]
    if not chosen:
        return None
    entry = chosen[0]
    (status,) = list_readers(connection, entry.name)
    pause = read_pauses(connection).get((PauseKind.SERVICE, entry.id))
    return ReaderFacts(status, pause, _find_archived(connection, status))


def _find_archived(connection: sa.Connection, status: ReaderStatus) -> UUID | None:
    """Look whether the next envelope of a reader's types is one that only an archive has."""
    envelope, event, place = model.envelope.c, model.event.c, status.place.position
    is_archived = sa.exists().where(model.archived_envelope.c.envelope_id == envelope.id)
    following = (
        sa.select(envelope.id, envelope.pruned_at)
        .where(envelope.position >= place, envelope.position < place + MOST_POSITIONS)
        .where(envelope.pruned_at.is_(None) | is_archived)
        .where(sa.exists().where(event.envelope_id == envelope.id, event.event_type_id.in_(status.entry.event_types)))
        .order_by(envelope.position)
        .limit(1)
    )
    row = connection.execute(following).one_or_none()
    return None if row is None or row.pruned_at is None else row.id


MOST_RUNS = 100
"""So many runs of a state are looked at for the oldest. More would read longer, and say hardly more."""


@dataclass(frozen=True, slots=True)
class BotFacts:
    """The facts of a bot.

    Args:
        status: as ``xbus bot list`` shows it.
        running: the newest of its runs that are under way, the newest first.
        due: the newest of its runs that wait, the newest first.
        runners: the logins of the roles whose programs run it.
        paused: the pause of the runners, where all of them are paused.
        reader: the reader that gives it batches; None for a bot that reads nothing.
    """

    status: BotStatus
    running: Sequence[BotRunStatus]
    due: Sequence[BotRunStatus]
    runners: Sequence[str]
    paused: PauseEntry | None
    reader: ReaderStatus | None


def read_bot_facts(connection: sa.Connection, name: str, now: datetime) -> BotFacts | None:
    """Read the facts of a bot; None if none in use is called so."""
    pauses = read_pauses(connection)
    entry = next((each for each in read_bots(connection, pauses) if each.name == name), None)
    if entry is None:
        return None
    (status,) = list_bots(connection, now, name)
    runners = [each for each in read_runners(connection, pauses) if each.service_id == entry.service_id]
    is_paused = runners and all(each.pause is not None for each in runners)
    readers = list_readers(connection, f"{OF_BOTS}{name}") if entry.reader is not None else []
    return BotFacts(
        status,
        list_runs(connection, name, MOST_RUNS, BotRunState.RUNNING),
        list_runs(connection, name, MOST_RUNS, BotRunState.DUE),
        [each.login for each in runners],
        runners[0].pause if is_paused else None,
        readers[0] if readers else None,
    )


def list_bots_of(connection: sa.Connection, login: str) -> list[str] | None:
    """List the bots that the programs of a role run, by name; None for a role that runs none."""
    pauses = read_pauses(connection)
    runner = next((each for each in read_runners(connection, pauses) if each.login == login), None)
    if runner is None or runner.is_gateway:
        return None
    return [each.name for each in read_bots(connection, pauses) if each.service_id == runner.service_id]
