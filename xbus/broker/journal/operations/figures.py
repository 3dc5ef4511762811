"""The figures of the journal that metrics show: how far roles and readers are, and how much is stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.operations.bots import count_runs
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.states import BotRunState


@dataclass(frozen=True, slots=True)
class BotFigures:
    """The figures of a bot that change while it works; see :class:`~xbus.broker.journal.operations.bots.BotStatus`."""

    name: str
    due: int
    running: int
    failures: int
    is_slowed: bool


@dataclass(frozen=True, slots=True)
class JournalFigures:
    """The figures of one moment.

    Args:
        roles: as ``xbus recipient list`` shows them.
        item_bytes: the bytes of all items.
        database_bytes: the size of the database; None for a file, whose size the file system tells.
        readers: as ``xbus reader list`` shows them.
        bots: those in use.
    """

    roles: Sequence[RoleStatus]
    item_bytes: int
    database_bytes: int | None
    readers: Sequence[ReaderStatus] = ()
    bots: Sequence[BotFigures] = ()


def read_figures(connection: sa.Connection) -> JournalFigures:
    """Read the figures."""
    size = None
    if connection.dialect.name == "postgresql":
        size = int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
    return JournalFigures(
        list_roles(connection),
        read_stored_bytes(connection),
        size,
        list_readers(connection),
        read_bot_figures(connection),
    )


def read_bot_figures(connection: sa.Connection) -> list[BotFigures]:
    """Read the figures of the bots in use, by name; runs that have ended cost nothing."""
    bot, state = model.bot.c, model.bot_state.c
    counts = count_runs(connection)
    statement = (
        sa.select(bot.id, bot.name, state.failures, state.slowed_until)
        .join(model.bot_state, state.bot_id == bot.id)
        .where(bot.removed_at.is_(None))
        .order_by(bot.name)
    )
    return [
        BotFigures(
            name,
            counts.get((bot_id, BotRunState.DUE), 0),
            counts.get((bot_id, BotRunState.RUNNING), 0),
            failures,
            slowed_until is not None,
        )
        for bot_id, name, failures, slowed_until in connection.execute(statement).all()
    ]
