"""Moves a whole journal into a database of its own, of either kind: all of it, or nothing."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import alone, check_lasting, connected, is_missing_file, writing
from xbus.broker.journal.database.engine import create_engine, parse_url
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.database.table_rows import (
    TableContents,
    Tell,
    count_rows,
    counted,
    last_id,
    read_contents,
    read_rows,
    set_last_id,
    write_rows,
)
from xbus.broker.journal.operations.copies import SUBJECT
from xbus.errors import JournalError

SEEDED = (model.audit_head, model.configuration, model.contents_end, model.head)
"""The tables that have a row from the beginning."""

Told = Callable[[str, int], None]
"""Gets the name of a table, and how many rows it has: once it is copied, and compared."""

ROUNDS = 2
"""The number of times that each row is read: to be copied, and to be compared."""


def move(source_url: str, target_url: str, at: datetime, told: Told, tell: Tell) -> list[int]:
    """Copy every row of a journal into an empty database, compare both, and make the copy the live journal.

    The original stays as it was. Recipients that registered there count as registered at the new place.

    Args:
        source_url: the original. Nobody else may have it open.
        target_url: a database without tables, or one that was set up and never used.
        at: the present moment, for the history.
        tell: gets the numbers of rows that were read; each row is read :data:`ROUNDS` times.

    Returns:
        The number of rows of each table.

    Raises:
        JournalError: the original is in use (``journal_in_use``), the target is the original (``same_database``) or
            not empty (``not_empty``), or the copy differs (``copy_differs``); then the target is left as it was.
        SchemaError: one of them has the tables of another program or version.
        JournalUnavailable: one of them can't be reached, or is full.
        ConfigurationError: an address can't be used.
    """
    check_lasting(create_engine(target_url))
    _check_two_files(source_url, target_url)
    with alone(source_url) as source:
        schema.check_connection(source)
        with writing(target_url) as target:
            if read_place(target) == read_place(source):
                raise _one_database()
            schema.upgrade_connection(target)
            _check_empty(target)
            for table in SEEDED:
                target.execute(sa.delete(table))
            # Triggers count up the version of the configuration, which therefore comes last.
            tables = sorted(model.metadata.sorted_tables, key=lambda table: table is model.configuration)
            rows = [_copy(source, target, table, told, tell) for table in tables]
            _settle_down(source, target, at)
    return rows


def steps(url: str) -> int:
    """Estimate the rows that a move reads, each time that it does."""
    with connected(url) as connection:
        return ROUNDS * count_rows(connection)


def _copy(source: sa.Connection, target: sa.Connection, table: sa.Table, told: Told, tell: Tell) -> int:
    contents = TableContents()
    write_rows(target, table, contents.counting(counted(read_rows(source, table), tell)))
    set_last_id(target, table, last_id(source, table))
    if read_contents(target, table, tell) != contents:
        raise JournalError(
            f"the copy of the table {table.name} differs from the original", "repeat the move", code="copy_differs"
        )
    told(table.name, contents.rows)
    return contents.rows


def _settle_down(source: sa.Connection, target: sa.Connection, at: datetime) -> None:
    """Make the copy the live journal: its broker calls the recipients that the original's has called."""
    before, now = read_place(source), read_place(target)
    row = model.registration.c
    target.execute(sa.update(model.registration).where(row.place == before).values(place=now))
    remember(target, at, SUBJECT, "all", "moved", f"from {before} to {now}")
    note_acts(target, [act_here(at, "moved", SUBJECT, before=before, after=now)])


def _check_empty(target: sa.Connection) -> None:
    """Make sure that nothing is in a database but what setting it up leaves.

    Raises:
        JournalError: something is (``not_empty``).
    """
    used = [
        table.name
        for table in model.metadata.sorted_tables
        if table not in SEEDED and target.execute(sa.select(sa.exists().select_from(table))).scalar_one()
    ]
    if used:
        raise JournalError(
            f"the new database is not empty ({', '.join(used[:5])} has rows)",
            "name an empty database; nothing was changed",
            code="not_empty",
        )


def _check_two_files(source_url: str, target_url: str) -> None:
    """Make sure that two addresses are not one file, before the one is locked for the other."""
    files = [parse_url(url) for url in (source_url, target_url) if not is_missing_file(url)]
    paths = [Path(url.database or "").resolve() for url in files if url.get_backend_name() == "sqlite"]
    if len(paths) == 2 and paths[0] == paths[1]:
        raise _one_database()


def _one_database() -> JournalError:
    return JournalError("both addresses lead to one database", "name another one", code="same_database")
