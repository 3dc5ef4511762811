"""The runs of bots as the broker asks about them."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from xbus import model
from xbus.model.base import UNREADABLE
from xbus.states import BotRunState

TICKETS = "ticket"
"""In the place of the password hash of a bot's emitter: its runs log in by tickets, which are in their rows."""


class BotProgress(NamedTuple):
    """The progress of a bot.

    Args:
        slots_until: about slots up to here is decided.
        slowed_until: nothing of it begins before; None while it is well.
    """

    slots_until: datetime
    slowed_until: datetime | None


class RunsNow(NamedTuple):
    """The need to do something about runs.

    Args:
        due: whether a run is due that nobody has.
        lost: whether the lease of a runner is over.
    """

    due: bool
    lost: bool


def read_progress(connection: sa.Connection, bot_ids: Collection[int] | None = None) -> dict[int, BotProgress]:
    """Read how far bots have come, by id; None for all of them.

    A bot with a moment that can't be read is left out: nobody knows which of its slots are decided.
    """
    state = model.bot_state.c
    wanted = sa.true() if bot_ids is None else state.bot_id.in_(bot_ids)
    rows = sa.select(state.bot_id, state.slots_until, state.slowed_until).where(wanted)
    return {bot_id: BotProgress(*of_bot) for bot_id, *of_bot in connection.execute(rows) if UNREADABLE not in of_bot}


class BotTrouble(NamedTuple):
    """The trouble of a bot that is slowed down.

    Args:
        failures: so many attempts failed one after another.
        failed_at: the moment of the last one.
    """

    bot_id: int
    failures: int
    failed_at: datetime


def read_slowed(connection: sa.Connection) -> list[BotTrouble]:
    """Read the bots that are slowed down, also those that were removed meanwhile."""
    state = model.bot_state.c
    rows = sa.select(state.bot_id, state.failures, state.failed_at).where(state.slowed_until.is_not(None))
    return [BotTrouble(*row) for row in connection.execute(rows)]


def read_runs_now(connection: sa.Connection, now: datetime, batches: Collection[int] = ()) -> RunsNow:
    """Ask whether runs are due, and whether leases are over; cheap, for those who look again and again.

    Args:
        batches: the runs for batches whose items are at hand.
    """
    run = model.bot_run.c
    is_at_hand = run.batch.is_(None) | run.id.in_(batches)
    due = sa.exists().where(run.state == BotRunState.DUE, run.due_at <= now, is_at_hand)
    lost = sa.exists().where(run.state == BotRunState.RUNNING, run.lease_until <= now)
    return RunsNow(*connection.execute(sa.select(due, lost)).one())


class BatchRun(NamedTuple):
    """The run of a batch, and its state."""

    id: int
    state: BotRunState


def open_run(connection: sa.Connection, bot_id: int, batch: str, now: datetime) -> BatchRun:
    """Make the run of a batch, or find it: the same batch may come again.

    Args:
        batch: its range and its bounds.
    """
    run = model.bot_run.c
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = {"bot_id": bot_id, "batch": batch, "state": BotRunState.DUE, "due_at": now, "attempts": 0}
    connection.execute(insert(model.bot_run).values(row).on_conflict_do_nothing())
    found = sa.select(run.id, run.state).where(run.bot_id == bot_id, run.batch == batch)
    run_id, state = connection.execute(found).one()
    return BatchRun(run_id, BotRunState(state))


def is_done(connection: sa.Connection, run_id: int) -> bool:
    """Check whether a run has ended well."""
    done = sa.exists().where(model.bot_run.c.id == run_id, model.bot_run.c.state == BotRunState.DONE)
    return bool(connection.execute(sa.select(done)).scalar_one())


def has_ticket(connection: sa.Connection, emitter_id: int, ticket_hash: bytes) -> bool:
    """Check whether a run that is under way may log in as the emitter of its bot."""
    of_run = sa.exists().where(
        model.bot_run.c.bot_id == model.bot.c.id,
        model.bot.c.emitter_id == emitter_id,
        model.bot_run.c.ticket_hash == ticket_hash,
        model.bot_run.c.state == BotRunState.RUNNING,
    )
    found: bool = connection.execute(sa.select(of_run)).scalar_one()
    return found
