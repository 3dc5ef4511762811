"""Reads how far readers are, as cheaply as a sample must be."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus.broker.journal.readers import read_ranges, read_readers
from xbus.broker.journal.readers.status import find_waiting_since


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    """A reader in use.

    Args:
        service_id: see ``model.reader``.
        types: the ids of the event types that it reads.
        programs: how many programs have ranges of it.
        waits_since: when the first event was sealed that it has not read; None where it has read all.
        skipped: how many envelopes retention removed before it read them.
    """

    service_id: int
    name: str
    types: Collection[int]
    programs: int
    waits_since: datetime | None
    skipped: int


def read_reader_figures(connection: sa.Connection) -> list[ReaderFigures]:
    """Read the readers in use, by name. Each costs one look into the table of contents, at any lag."""
    found = []
    ranges = read_ranges(connection)
    for entry in read_readers(connection):
        own = [each for each in ranges if each.service_id == entry.id]
        since = find_waiting_since(connection, entry, min(each.place for each in own))
        programs = len({each.owner for each in own} - {None})
        skipped = max(each.skipped for each in own)
        found.append(ReaderFigures(entry.id, entry.name, entry.event_types, programs, since, skipped))
    return found
