"""The facts of a reader, or of the subscription that stands on one."""

from dataclasses import dataclass

import sqlalchemy as sa

from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.readers import read_readers
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.readers.subscribers import read_subscribers
from xbus.broker.journal.writes import PauseEntry, PauseKind


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """The facts of a reader.

    Args:
        status: as ``xbus reader list`` shows it.
        pause: why its programs get nothing new; None while it is not paused.
    """

    status: ReaderStatus
    pause: PauseEntry | None


def read_reader_facts(connection: sa.Connection, name: str) -> ReaderFacts | None:
    """Read the facts of the reader, or the subscription, of a name; None if none in use is called so."""
    subscribers = read_subscribers(connection)
    of_subscriptions = {service_id for service_id, each in subscribers.items() if each.name == name}
    chosen = [each for each in read_readers(connection) if each.name == name or each.id in of_subscriptions]
    if not chosen:
        return None
    entry = chosen[0]
    (status,) = list_readers(connection, entry.name)
    return ReaderFacts(status, read_pauses(connection).get((PauseKind.SERVICE, entry.id)))
