"""Asks the database for damage that it can find by itself, and follows all references between rows."""

from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.promises import NO_CHECKSUMS, lacks_checksums
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell

MOST_OF_A_TABLE = 100
"""Faults of a table that SQLite reports, and references that are named for each foreign key."""


def check_pages(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Have SQLite compare its pages, and its indexes with their tables.

    PostgreSQL compares the checksum of a page whenever it reads it, so the other checks find what is wrong there.
    """
    if connection.dialect.name == "sqlite":
        yield from _check_pages_of_sqlite(connection, tell)


def check_checksums(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """See whether PostgreSQL keeps checksums of its pages."""
    tell(0)
    with connection.begin():
        if lacks_checksums(connection):
            yield Fault(FaultCode.NO_CHECKSUMS, "", "", ": ".join(NO_CHECKSUMS))


def _check_pages_of_sqlite(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    with connection.begin():
        # Also those of SQLite itself and of the migrations.
        tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars().all()
    for table in tables:
        with connection.begin():
            rows = connection.exec_driver_sql(f'PRAGMA integrity_check("{table}")').scalars().all()
        for told in rows[:MOST_OF_A_TABLE]:
            if told != "ok":
                yield Fault(FaultCode.DATABASE_DAMAGED, table, "", f"SQLite says: {told}")
        tell(0)


def check_references(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Find rows whose foreign keys lead nowhere: constraints hold for statements, and not for damage."""
    for table in model.metadata.sorted_tables:
        for key in table.foreign_keys:
            with connection.begin():
                yield from _check_reference(connection, table, key)
        tell(0)


def _check_reference(connection: sa.Connection, table: sa.Table, key: sa.ForeignKey) -> Iterator[Fault]:
    child, parent = key.parent, key.column.table.alias("parent")
    own = [sa.cast(column, sa.Text) for column in table.primary_key.columns]
    lost = (
        sa.select(sa.cast(child, sa.Text), *own)
        .select_from(table.outerjoin(parent, parent.c[key.column.name] == child))
        .where(child.is_not(None), parent.c[key.column.name].is_(None))
        .limit(MOST_OF_A_TABLE)
    )
    for found in connection.execute(lost):
        value, *row = found
        cause = f"{child.name} is {value}, and {key.column.table.name} has no such row"
        yield Fault(FaultCode.REFERENCE_BROKEN, table.name, ", ".join(map(str, row)), cause)
