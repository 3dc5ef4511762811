"""Writes whose data lies in objects: what must not refer to its object any more goes into the database."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import sqlalchemy as sa

from xbus.broker.journal.objects.removal import find_doomed
from xbus.broker.journal.writes import Append, PutEnvelope, PutEvent, StoredObject


def lasting_appends(connection: sa.Connection, group: Sequence[Append]) -> Sequence[Append]:
    """Give appends that refer to lasting objects only, in the transaction that carries them out."""
    doomed = _doomed(connection, [append.stored for append in group if append.stored is not None])
    return [replace(each, stored=_lasting(each.stored, doomed)) for each in group] if doomed else group


def lasting_puts(connection: sa.Connection, group: Sequence[PutEnvelope]) -> Sequence[PutEnvelope]:
    """Give whole envelopes that refer to lasting objects only, in the transaction that carries them out."""
    stored = [event.stored for write in group for event in write.events if event.stored is not None]
    doomed = _doomed(connection, stored)
    return [replace(each, events=_lasting_events(each.events, doomed)) for each in group] if doomed else group


def _doomed(connection: sa.Connection, stored: Collection[StoredObject]) -> set[bytes]:
    return find_doomed(connection, stored) if stored else set()


def _lasting_events(events: Sequence[PutEvent], doomed: set[bytes]) -> list[PutEvent]:
    return [event._replace(stored=_lasting(event.stored, doomed)) for event in events]


def _lasting(stored: StoredObject | None, doomed: set[bytes]) -> StoredObject | None:
    return None if stored is None or stored.hash in doomed else stored
