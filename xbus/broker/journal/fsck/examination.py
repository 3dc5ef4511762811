"""Carries out all checks, one after the other, and goes on where one of them can't."""

from collections.abc import Iterator

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import verify
from xbus.broker.journal.configuration.checked import read_checked
from xbus.broker.journal.database.table_rows import count_rows
from xbus.broker.journal.fsck.content import check_content, check_outputs, check_spent_keys, check_stored_bytes
from xbus.broker.journal.fsck.faults import Check, Fault, FaultCode, Tell
from xbus.broker.journal.fsck.progress import check_log, check_progress, check_readers
from xbus.broker.journal.fsck.values import check_checksums, check_pages, check_references, check_values

ROUNDS = 2
"""The number of times that most rows are read: value by value, and together with their owners."""


def check_audit(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Verify the audit's chain."""
    with connection.begin():
        found = verify(connection)
    for told in found.faults:
        yield Fault(FaultCode.AUDIT_CHANGED, "audit", "", told)
    tell(found.rows)


def check_configuration(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the configuration, as the broker does."""
    with connection.begin():
        found = read_checked(connection)
        # Triggers leave the version alone while it is true, so the broker would notice no edit.
        is_changing = connection.execute(sa.select(model.configuration.c.changing)).scalar_one()
    for problem in found.problems:
        yield Fault(FaultCode.CONFIGURATION_WRONG, problem.table, problem.row, problem.cause)
    if is_changing:
        cause = "changing is true, which no transaction leaves behind"
        yield Fault(FaultCode.CONFIGURATION_WRONG, "configuration", "1", cause)
    tell(0)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("the pages", check_pages),
    ("the values", check_values),
    ("the references", check_references),
    ("the configuration", check_configuration),
    ("the envelopes", check_content),
    ("the spent keys", check_spent_keys),
    ("the end of the log", check_log),
    ("the progress", check_progress),
    ("the readers", check_readers),
    ("the outputs", check_outputs),
    ("the audit", check_audit),
    ("the stored bytes", check_stored_bytes),
    ("the checksums of pages", check_checksums),
)
"""From what all others stand on to what is computed from it."""


def examine(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Examine a journal, and yield its faults as they are found.

    Args:
        connection: without a transaction; each check begins its own. On PostgreSQL a transaction sees one state of the
            database, which the connection has to be set to (``REPEATABLE READ``).
        tell: gets the numbers of examined rows, ``steps`` in all.

    Raises:
        sqlalchemy.exc.DBAPIError: the connection was lost.
    """
    for name, check in CHECKS:
        try:
            yield from check(connection, tell)
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise
            yield Fault(FaultCode.DATABASE_DAMAGED, "", "", f"{name} can't be read on: {_first_line(error.orig)}")
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            # A value that is none, which was reported before, ends whatever has to compute with it.
            yield Fault(FaultCode.NOT_CHECKED, "", "", f"{name} can't be checked on: {_first_line(error)}")


def steps(connection: sa.Connection) -> int:
    """Estimate the rows that an examination reads, each time that it does."""
    return ROUNDS * count_rows(connection)


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
