"""The figures of the journal that metrics show: how far the roles are, and how much is stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.retention.pruning import read_stored_bytes


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """The figures of one moment.

    Args:
        roles: as ``xbus recipient list`` shows them.
        item_bytes: the bytes of all items.
        database_bytes: the size of the database; None for a file, whose size the file system tells.
    """

    roles: Sequence[RoleStatus]
    item_bytes: int
    database_bytes: int | None


def read_figures(connection: sa.Connection) -> JournalFigures:
    """Read the figures."""
    size = None
    if connection.dialect.name == "postgresql":
        size = int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
    return JournalFigures(list_roles(connection), read_stored_bytes(connection), size)
