"""Failures as rows of a table, as several commands show them."""

from xbus.admin.output import moment, some
from xbus.broker.journal.operations.failures import FailureSummary

FAILURE_HEADS = ("ID", "AT", "TRACKING", "ROLE", "NODE", "VERB", "CODE", "ITEMS", "MESSAGE")


def failure_row(summary: FailureSummary) -> tuple[object, ...]:
    """Make the row of a failure, for :data:`FAILURE_HEADS`."""
    return (
        str(summary.id),
        moment(summary.at),
        summary.tracking,
        summary.role,
        summary.node,
        summary.verb,
        summary.code,
        some(summary.indices),
        summary.message,
    )
