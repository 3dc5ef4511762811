"""The facts of an emitter: its pauses, its sessions, and its open and newest envelopes, each read up to a bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.envelopes import is_in
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.states import EnvelopeState

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
    emitter = model.emitter.c
    found: int | None = connection.execute(sa.select(emitter.id).where(emitter.login == login)).scalar_one_or_none()
    return found


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
