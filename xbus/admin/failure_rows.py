"""Failures as rows of a table, as several commands show them."""

from collections.abc import Sequence

from xbus.admin.output import CAUSE, Output, name_column, some
from xbus.admin.table import Column
from xbus.broker.journal.operations.failures import FailureSummary
from xbus.clock import SystemClock

FAILURE_HEADS = (
    "AT",
    name_column("ROLE"),
    Column("NODE", wide_only=True),
    Column("VERB", wide_only=True),
    name_column("CODE"),
    CAUSE,
    Column("ITEMS", narrows=5),
    Column("TRACKING", painted=True),
    Column("ID", to_right=True),
)


def failure_rows(found: Sequence[FailureSummary], output: Output) -> list[tuple[object, ...]]:
    """Make the rows of failures, for :data:`FAILURE_HEADS`."""
    now = SystemClock().now()
    return [
        (
            output.when(failure.at, now),
            failure.role,
            failure.node,
            failure.verb,
            failure.code,
            failure.message,
            some(failure.indices),
            failure.tracking,
            str(failure.id),
        )
        for failure in found
    ]
