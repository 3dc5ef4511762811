"""The facts of a reader, or of the subscription that stands on one."""

from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.readers import read_readers
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.readers.subscribers import read_subscribers
from xbus.broker.journal.writes import PauseEntry, PauseKind

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
