"""Failures, and groups of them, as rows of a table, as several commands show them."""

from collections.abc import Sequence

from xbus.admin.output import CAUSE, Output, name_column, some
from xbus.admin.table import Column
from xbus.broker.journal.operations.failures import FailureGroup, FailureSummary
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
    Column("OWNER", optional=True),
    Column("ID", to_right=True),
)

GROUP_HEADS = (
    "NEWEST",
    Column("OLDEST", wide_only=True),
    name_column("ROLE"),
    Column("VERB", wide_only=True),
    name_column("CODE"),
    CAUSE,
    Column("FAILURES", to_right=True),
    Column("TRACKING", narrows=20),
    Column("OWNERS", optional=True),
    "GROUP",
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
            failure.owner,
            str(failure.id),
        )
        for failure in found
    ]


def group_rows(found: Sequence[FailureGroup], output: Output) -> list[tuple[object, ...]]:
    """Make the rows of groups, for :data:`GROUP_HEADS`."""
    now = SystemClock().now()
    return [
        (
            output.when(group.newest.at, now),
            output.when(group.first_at, now),
            group.newest.role,
            group.newest.verb,
            group.newest.code,
            group.newest.message,
            f"{group.count}{'+' * group.at_least}",
            ", ".join(f"{count} {state}" for state, count in group.tracking.items()),
            ", ".join(group.owners) or None,
            group.fingerprint,
        )
        for group in found
    ]
