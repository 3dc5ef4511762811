"""Compares rows with the checksums that the bus has written with them."""

from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.model.checksums import covered_columns, row_checksum

PAGE_ROWS = 1_000


def check_rows(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the rows of all tables that have checksums."""
    for table in model.metadata.sorted_tables:
        covered = covered_columns(table)
        if covered is not None:
            with connection.begin():
                yield from _check_table(connection, table, [table.c[name] for name in covered], tell)


def _check_table(
    connection: sa.Connection, table: sa.Table, covered: list["sa.Column[object]"], tell: Tell
) -> Iterator[Fault]:
    columns = dict.fromkeys((*table.primary_key, table.c.checksum, *covered))
    known = sa.select(*columns).where(table.c.checksum.is_not(None))
    for page in connection.execute(known, execution_options={"yield_per": PAGE_ROWS}).mappings().partitions():
        for row in page:
            if row["checksum"] != row_checksum(table, row):
                key = ", ".join(str(row[column.name]) for column in table.primary_key)
                cause = f"one of {', '.join(column.name for column in covered)} is not as it was written"
                yield Fault(FaultCode.ROW_CHANGED, table.name, key, cause)
        tell(len(page))
