"""One command at a time archives or restores; what one that died left behind is found by the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.schema import ONE_AT_A_TIME
from xbus.errors import Failed, JournalError

WRITER = "archive"
"""The row of ``model.writer`` that counts the bytes that runs remove from the journal and restore."""

WRITING, KEPT = "writing", "kept"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that a dead run may have written, wholly or in part, and that does not count."""

    file_id: UUID
    location: str


def begin_run(connection: sa.Connection, run_id: UUID, now: datetime, lease_until: datetime) -> list[Leftover]:
    """Begin a run, in place of a dead one if necessary.

    Args:
        connection: in a transaction of its own.

    Returns:
        The files that earlier runs left: remove them, then ``forget_files``.

    Raises:
        Failed: another run goes on (``archive_busy``), as its lease shows.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    run = model.archive_run.c
    others = connection.execute(sa.select(run.id, run.lease_until).where(run.ended_at.is_(None))).all()
    if any(lease > now for _, lease in others):
        raise Failed(
            "another command archives or restores now, or was killed a moment ago",
            "repeat it in a minute",
            code="archive_busy",
        )
    for other, _ in others:
        end_run(connection, other, now)
    connection.execute(sa.insert(model.archive_run).values(id=run_id, started_at=now, lease_until=lease_until))
    _make_writer(connection)
    file = model.archive_file.c
    return [
        Leftover(*row) for row in connection.execute(sa.select(file.id, file.location).where(file.state == WRITING))
    ]


def _make_writer(connection: sa.Connection) -> None:
    writer = model.writer
    if connection.execute(sa.select(writer.c.name).where(writer.c.name == WRITER)).first() is None:
        connection.execute(sa.insert(writer).values(name=WRITER, epoch=0, group_number=0, stored_bytes=0))


def renew_run(connection: sa.Connection, run_id: UUID, lease_until: datetime) -> None:
    """Give a sign of life; each step does so in its transaction, and thereby checks its right.

    Raises:
        JournalError: another run took its place (``archive_overtaken``).
    """
    run = model.archive_run.c
    renewed = sa.update(model.archive_run).where(run.id == run_id, run.ended_at.is_(None))
    if connection.execute(renewed.values(lease_until=lease_until)).rowcount != 1:
        raise JournalError(
            "another command took this one's place, because it gave no sign of life",
            "repeat it when that one has ended",
            code="archive_overtaken",
        )


def end_run(connection: sa.Connection, run_id: UUID, now: datetime) -> None:
    """Note that a run is over, so that the next need not wait."""
    run = model.archive_run.c
    ended = sa.update(model.archive_run).where(run.id == run_id, run.ended_at.is_(None)).values(ended_at=now)
    connection.execute(ended)


def forget_files(connection: sa.Connection, file_ids: Sequence[UUID]) -> None:
    """Forget files that did not come to count, after they were removed."""
    file = model.archive_file.c
    connection.execute(sa.delete(model.archive_file).where(file.id.in_(file_ids), file.state == WRITING))


def is_wanted(connection: sa.Connection, file_id: UUID) -> bool:
    """Check whether a file is still to be written: the run that noted it goes on."""
    file, run = model.archive_file.c, model.archive_run.c
    wanted = sa.select(file.id).join(model.archive_run, run.id == file.run_id)
    is_open = sa.and_(file.id == file_id, file.state == WRITING, run.ended_at.is_(None))
    return connection.execute(wanted.where(is_open)).first() is not None
