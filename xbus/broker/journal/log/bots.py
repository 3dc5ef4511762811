"""Bots as the back knows them, and their runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import grouped, insert_new, value_of
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.writes import PauseEntry, PauseKind, Pauses, pause_of_role
from xbus.json_text import parse_json
from xbus.model.base import UNREADABLE
from xbus.slots import Missed
from xbus.states import BotRunState

# -- bots --------------------------------------------------------------------------------------------------------------
# The bots and their runners in the catalog.


@dataclass(frozen=True)
class RunnerEntry:
    """A role whose programs run bots, or call subscribers.

    Args:
        service_id: the service that bots name as their runners.
        pause: why its programs get no run: it is paused, or its service is.
        keys: the public keys by which they may log in over encrypted connections.
        is_gateway: whether its programs call subscribers, and run no bots.
    """

    id: int
    login: str
    service_id: int
    pause: PauseEntry | None = None
    keys: frozenset[str] = frozenset()
    is_gateway: bool = False


@dataclass(frozen=True)
class BotEntry:
    """A bot as the back needs it.

    Args:
        service_id: its runners.
        emitter_id: the emitter as which it writes.
        call: ``module:function``; empty for a command.
        command: a program and its arguments; empty for a call.
        cron: when it runs; empty for never by itself.
        timezone: the zone of ``cron``.
        missed: what becomes of slots at which nobody could look.
        instances: so many of its runs may be under way at once.
        max_seconds: after which a run is ended.
        attempts: how often a run is tried.
        settings: what each run gets.
        reader: the key of the reader that gives it batches; None for a bot that reads nothing.
        reads: the names of the event types of these.
        pause: why none of its runs begins.
    """

    id: int
    name: str
    service_id: int
    emitter_id: int
    call: str
    command: Sequence[str]
    cron: str
    timezone: str
    missed: Missed
    instances: int
    max_seconds: float
    attempts: int
    settings: Mapping[str, object]
    reader: str | None = None
    reads: Sequence[str] = ()
    pause: PauseEntry | None = None


BOT_COLUMNS: Sequence[sa.ColumnElement[Any]] = [
    sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON) else column
    for column in model.bot.columns
    if column is not model.bot.c.removed_at
]
"""The columns of a bot, with JSON as its text: an administrator may have written anything there by SQL."""


def read_command(written: str) -> tuple[str, ...] | None:
    """Read the command of a bot from its text; None if the text is no list of texts."""
    found = _read_json(written)
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def read_settings(written: str) -> dict[str, object] | None:
    """Read the settings of a bot from their text; None if the text is no map."""
    found = _read_json(written)
    return found if isinstance(found, dict) else None


def _read_json(written: str) -> object:
    try:
        return parse_json(written)
    except ValueError:
        return None


def read_runners(connection: sa.Connection, pauses: Pauses) -> list[RunnerEntry]:
    """Read the roles in use whose programs run bots, or call subscribers."""
    rows = connection.execute(
        sa.select(*(model.role.c[name] for name in ("id", "login", "service_id", "public_keys")), model.service.c.kind)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(
            model.role.c.removed_at.is_(None),
            model.service.c.removed_at.is_(None),
            model.service.c.kind.in_(("runner", "gateway")),
        )
        .order_by(model.role.c.login)
    )
    return [
        value_of(
            RunnerEntry,
            row,
            pause=pause_of_role(pauses, row.id, row.service_id),
            keys=frozenset(read_keys(row.public_keys)),
            is_gateway=row.kind == "gateway",
        )
        for row in rows
    ]


def read_bots(connection: sa.Connection, pauses: Pauses) -> list[BotEntry]:
    """Read the bots in use. A bot that names no runners has the only service of runners."""
    only = sa.select(sa.func.min(model.service.c.id)).where(
        model.service.c.kind == "runner", model.service.c.removed_at.is_(None)
    )
    readers, types = _read_readers(connection)
    rows = connection.execute(
        sa.select(*BOT_COLUMNS, sa.func.coalesce(model.bot.c.service_id, only.scalar_subquery()).label("runners"))
        .where(model.bot.c.removed_at.is_(None))
        .order_by(model.bot.c.name)
    )
    return [
        value_of(
            BotEntry,
            row,
            service_id=row.runners,
            command=read_command(row.command) or (),
            missed=Missed(row.missed),
            settings=read_settings(row.settings) or {},
            reader=readers.get(row.emitter_id),
            reads=types.get(row.emitter_id, ()),
            pause=pauses.get((PauseKind.BOT, row.id)),
        )
        for row in rows
    ]


def _read_readers(connection: sa.Connection) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Read the readers of bots, which have the names of the bots' emitters: keys and event types, by emitter."""
    service, emitter, read = model.service.c, model.emitter.c, model.reader_event_type.c
    rows = connection.execute(
        sa.select(emitter.id, service.key, model.event_type.c.name)
        .select_from(model.emitter)
        .join(model.service, service.name == emitter.login)
        .join(model.reader_event_type, read.service_id == service.id)
        .join(model.event_type, model.event_type.c.id == read.event_type_id)
        .where(emitter.kind == "bot", service.kind == "reader", service.removed_at.is_(None))
        .order_by(model.event_type.c.name)
    )
    keys: dict[int, str] = {}
    types: dict[int, list[str]] = {}
    for emitter_id, key, name in rows:
        keys[emitter_id] = key
        types.setdefault(emitter_id, []).append(name)
    return keys, types


def read_emitted(connection: sa.Connection) -> Mapping[int, list[str]]:
    """Read the names of the event types that each bot may put, in order, by its id."""
    bot, allowed = model.bot.c, model.profile_event_type.c
    statement = (
        sa.select(bot.id, model.event_type.c.name)
        .join(model.emitter, model.emitter.c.id == bot.emitter_id)
        .join(model.profile_event_type, allowed.profile_id == model.emitter.c.profile_id)
        .join(model.event_type, model.event_type.c.id == allowed.event_type_id)
        .order_by(model.event_type.c.name)
    )
    return grouped(connection.execute(statement))


# -- runs --------------------------------------------------------------------------------------------------------------
# The runs of bots as the broker asks about them.

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
    row = {"bot_id": bot_id, "batch": batch, "state": BotRunState.DUE, "due_at": now, "attempts": 0}
    connection.execute(insert_new(connection, model.bot_run), row)
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
