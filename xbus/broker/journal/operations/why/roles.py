"""The facts of a role: its situation, and how much it lacks, each counted up to a bound."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, find_id, value_of
from xbus.broker.journal.log.bots import read_bots, read_runners
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.operations.bots import BotRunStatus, BotStatus, list_bots, list_runs
from xbus.broker.journal.operations.roles import COMING
from xbus.broker.journal.operations.stalled import (
    MOST_COUNTED,
    MOST_ROWS,
    Stalled,
    add_up,
    count_owed_rows,
    count_parked,
    count_parked_items,
    count_waiting,
)
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import ReaderStatus, list_readers, read_subscribers
from xbus.broker.journal.writes import PauseEntry, PauseKind, Pauses, pause_of_role
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import BotRunState, EnvelopeState, PresenceState

# -- situations --------------------------------------------------------------------------------------------------------
# Roles, readers and bots as an explanation needs them: on the bus or off it, paused, and last seen when.


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


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """The facts of a role.

    Args:
        role: its situation.
        lacking: the envelopes that it lacks and that arrive by themselves; None without any, and for a worker.
        oldest: the oldest of them.
        parked: the envelopes that are parked for it.
        parked_items: the items that are parked alone for it.
        waiting: the envelopes that wait for its service, if it is a worker.
    """

    role: RoleSituation
    lacking: Stalled | None
    oldest: UUID | None
    parked: Stalled | None
    parked_items: Stalled | None
    waiting: Stalled | None


def read_role_facts(connection: sa.Connection, login: str) -> RoleFacts | None:
    """Read the facts of a role, also of a removed one; None if no role has or had this login."""
    role = read_situation(connection, login, read_pauses(connection))
    if role is None:
        return None
    cursor = read_cursors(connection).get(role.id)
    ahead, oldest = (None, None) if cursor is None else _ahead(connection, cursor, role.service_id)
    return RoleFacts(
        role,
        add_up([count_owed_rows(connection, role.id), ahead]),
        _oldest(connection, role.id, oldest),
        count_parked(connection, role.id),
        count_parked_items(connection, role.id),
        _waiting(connection, role),
    )


def _ahead(connection: sa.Connection, cursor: Cursor, service_id: int) -> tuple[Stalled | None, int | None]:
    """Count the envelopes whose turn is to come, and give the position of the first."""
    owed = read_owed_ahead(connection, cursor, service_id, MOST_COUNTED + 1)
    if not owed:
        return None, None
    (position, since), is_cut = owed[0], len(owed) > MOST_COUNTED
    return Stalled(min(len(owed), MOST_COUNTED), since, is_cut), position


def _oldest(connection: sa.Connection, role_id: int, ahead: int | None) -> UUID | None:
    """Find the envelope with the lowest position that a role lacks and that arrives by itself.

    Of its rows the first are looked at, as others of them may be parked.
    """
    delivery, envelope = model.delivery.c, model.envelope.c
    first = (
        sa.select(delivery.position, delivery.state)
        .where(delivery.role_id == role_id)
        .order_by(delivery.position)
        .limit(MOST_ROWS)
        .subquery()
    )
    in_rows = sa.select(first.c.position).where(first.c.state.in_(COMING)).order_by(first.c.position).limit(1)
    positions = [*connection.execute(in_rows).scalars(), *([] if ahead is None else [ahead])]
    if not positions:
        return None
    found = sa.select(envelope.id).where(envelope.position == min(positions))
    envelope_id: UUID = connection.execute(found).scalar_one()
    return envelope_id


def _waiting(connection: sa.Connection, role: RoleSituation) -> Stalled | None:
    if not role.is_worker:
        return None
    key = sa.select(model.service.c.key).where(model.service.c.id == role.service_id)
    return count_waiting(connection, connection.execute(key).scalar_one())


# -- emitters ----------------------------------------------------------------------------------------------------------
# The facts of an emitter: its pauses, its sessions, and its open and newest envelopes, each read up to a bound.

MOST_LOOKED_AT = 2_000
"""Open envelopes, and newest envelopes of all emitters, that are looked through for those of one emitter. More finds an
idle emitter's last envelope further back, and costs a look at each."""


@dataclass(frozen=True, slots=True)
class NewestEnvelope:
    """The envelope that an emitter opened last."""

    id: UUID
    state: EnvelopeState
    opened_at: datetime
    closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class EmitterFacts:
    """The facts of an emitter.

    Args:
        removed_at: when it was taken out of use; None while it is in use.
        has_password: whether it can log in at all.
        sessions: how many of its logins have not ended.
        pauses: its own pause, and those of the event types that it may send.
        types: the event types that it may send.
        open: how many of its envelopes are open.
        oldest_open: the one of them that was opened first; None without any.
        newest: the envelope that it opened last, if it is among the :data:`MOST_LOOKED_AT` newest of all emitters.
    """

    id: int
    login: str
    removed_at: datetime | None
    has_password: bool
    sessions: int
    pauses: Sequence[PauseEntry]
    types: Sequence[str]
    open: int
    oldest_open: UUID | None
    oldest_open_at: datetime | None
    newest: NewestEnvelope | None


def find_emitter(connection: sa.Connection, login: str) -> int | None:
    """Find the id of an emitter, also of a removed one; None if no emitter has or had this login."""
    return find_id(connection, model.emitter.c.login, login)


def read_emitter_facts(connection: sa.Connection, login: str, now: datetime) -> EmitterFacts | None:
    """Read the facts of an emitter, also of a removed one; None if no emitter has or had this login."""
    emitter = model.emitter.c
    row = connection.execute(
        sa.select(emitter.id, emitter.profile_id, emitter.removed_at, emitter.password_hash.is_not(None)).where(
            emitter.login == login
        )
    ).one_or_none()
    if row is None:
        return None
    emitter_id, profile_id, removed_at, has_password = row
    types = _read_types(connection, profile_id)
    pauses = read_pauses(connection)
    subjects = [(PauseKind.EMITTER, emitter_id), *((PauseKind.TYPE, type_id) for type_id in types)]
    opened = _read_open(connection, emitter_id)
    return EmitterFacts(
        *(emitter_id, login, removed_at, bool(has_password), _count_sessions(connection, emitter_id, now)),
        pauses=[pauses[subject] for subject in subjects if subject in pauses],
        types=sorted(types.values()),
        open=len(opened),
        oldest_open=opened[0][0] if opened else None,
        oldest_open_at=opened[0][1] if opened else None,
        newest=_read_newest(connection, emitter_id),
    )


def _read_types(connection: sa.Connection, profile_id: int) -> dict[int, str]:
    event_type, allowed = model.event_type.c, model.profile_event_type.c
    statement = (
        sa.select(event_type.id, event_type.name)
        .join(model.profile_event_type, allowed.event_type_id == event_type.id)
        .where(allowed.profile_id == profile_id, event_type.removed_at.is_(None))
    )
    return dict(connection.execute(statement).all())


def _count_sessions(connection: sa.Connection, emitter_id: int, now: datetime) -> int:
    session = model.session.c
    statement = sa.select(sa.func.count()).where(session.emitter_id == emitter_id, session.expires_at > now)
    found: int = connection.execute(statement).scalar_one()
    return found


def _read_open(connection: sa.Connection, emitter_id: int) -> Sequence[tuple[UUID, datetime]]:
    """Read the envelopes that an emitter has open, the oldest first."""
    envelope = model.envelope.c
    oldest = (
        sa.select(envelope.id, envelope.emitter_id, envelope.opened_at)
        .where(is_in(EnvelopeState.OPEN))
        .order_by(envelope.opened_at)
        .limit(MOST_LOOKED_AT)
        .subquery()
    )
    statement = (
        sa.select(oldest.c.id, oldest.c.opened_at).where(oldest.c.emitter_id == emitter_id).order_by(oldest.c.opened_at)
    )
    return [(envelope_id, opened_at) for envelope_id, opened_at in connection.execute(statement)]


def _read_newest(connection: sa.Connection, emitter_id: int) -> NewestEnvelope | None:
    envelope = model.envelope.c
    newest = (
        sa.select(envelope.id, envelope.emitter_id, envelope.state, envelope.opened_at, envelope.closed_at)
        .order_by(envelope.opened_at.desc(), envelope.id.desc())
        .limit(MOST_LOOKED_AT)
        .subquery()
    )
    statement = (
        sa.select(newest.c.id, newest.c.state, newest.c.opened_at, newest.c.closed_at)
        .where(newest.c.emitter_id == emitter_id)
        .order_by(newest.c.opened_at.desc(), newest.c.id.desc())
        .limit(1)
    )
    found = connection.execute(statement).one_or_none()
    if found is None:
        return None
    envelope_id, state, opened_at, closed_at = found
    return NewestEnvelope(envelope_id, EnvelopeState(state), opened_at, closed_at)
