"""Finds archived items for readers of the log and for people. Each function is one short read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model

MOST_FILES = 20
"""The most files of one envelope that a list shows."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file with items of one event type; rows are in the order of position, event number and index.

    Args:
        location: its whole address, a path or a URI.
        positions: the positions, in rising order, of the envelopes that are to be read from it and not from the
            journal. It may have rows of others, as some may have been restored.
        items: how many rows it has at these positions.
    """

    location: str
    positions: tuple[int, ...]
    items: int


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The places of an envelope's items, if it is or was archived.

    Args:
        restored_at: since when they are in the journal again as well; None where they are in the files only.
        files: some of them.
    """

    archived_at: datetime
    restored_at: datetime | None
    files: tuple[str, ...]


def archived_files(connection: sa.Connection, type_id: int, after: int, until: int) -> list[ArchivedFile]:
    """List the files with the items of an event type at some positions that the journal no longer has.

    An envelope counts in exactly one of the two places at any moment: if ``envelope.pruned_at`` is null its segments
    count, otherwise these files. So a reader of both reads them in one transaction.

    Args:
        type_id: the event type.
        after: positions above this one
        until: up to this one, inclusive.

    Returns:
        In the order of their lowest wanted position.
    """
    event, file = model.log_event.c, model.archive_file.c
    rows = connection.execute(
        sa.select(file.id, file.location, event.position, sa.func.sum(event["items"]))
        .join(model.archived_event, model.archived_event.c.file_id == file.id)
        .join(model.log_event, event.event_id == model.archived_event.c.event_id)
        .where(file.event_type_id == type_id, file.last_position > after, file.first_position <= until)
        .where(event.position > after, event.position <= until, event.pruned_at.is_not(None))
        .group_by(file.id, file.location, event.position)
        .order_by(file.id, event.position)
    ).all()
    found = [_file([*of_file]) for _, of_file in groupby(rows, key=itemgetter(0))]
    return sorted(found, key=lambda each: each.positions)


def _file(rows: Sequence[Any]) -> ArchivedFile:
    return ArchivedFile(rows[0][1], tuple(row[2] for row in rows), sum(int(row[3]) for row in rows))


def count_archived(connection: sa.Connection, after: int, until: int) -> int:
    """Count the envelopes above ``after`` and up to ``until`` that only an archive has: they are not lost."""
    envelope = model.envelope.c
    wanted = (
        sa.select(sa.func.count())
        .select_from(model.archived_envelope)
        .join(model.envelope, envelope.id == model.archived_envelope.c.envelope_id)
        .where(envelope.position > after, envelope.position <= until, envelope.pruned_at.is_not(None))
    )
    return int(connection.execute(wanted).scalar_one())


def archived_bytes(connection: sa.Connection, envelope_id: UUID) -> int | None:
    """Sum the bytes of an envelope's items if only an archive has them; None otherwise."""
    return find_archived_bytes(connection, [envelope_id]).get(envelope_id)


def find_archived_bytes(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Find the archived ones of some envelopes, with the bytes of their items, in the order of the log."""
    envelope = model.envelope.c
    wanted = (
        sa.select(envelope.id, envelope.bytes)
        .join(model.archived_envelope, model.archived_envelope.c.envelope_id == envelope.id)
        .where(envelope.id.in_(list(envelope_ids)), envelope.pruned_at.is_not(None))
        .order_by(envelope.position)
    )
    return {row.id: int(row.bytes or 0) for row in connection.execute(wanted)}


def read_whereabouts(connection: sa.Connection, envelope_id: UUID) -> Whereabouts | None:
    """Read the places of an envelope's items; None if it was never archived."""
    archived, file = model.archived_envelope.c, model.archive_file.c
    wanted = sa.select(archived.archived_at, archived.restored_at).where(archived.envelope_id == envelope_id)
    found = connection.execute(wanted).one_or_none()
    if found is None:
        return None
    files = connection.execute(
        sa.select(file.location)
        .join(model.archived_event, model.archived_event.c.file_id == file.id)
        .join(model.event, model.event.c.id == model.archived_event.c.event_id)
        .where(model.event.c.envelope_id == envelope_id)
        .distinct()
        .order_by(file.location)
        .limit(MOST_FILES)
    )
    return Whereabouts(found.archived_at, found.restored_at, tuple(files.scalars()))
