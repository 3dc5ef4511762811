"""The bots and their runs as operators see them, and what operators do: fire a run, and release a bot."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.rows import NamedRow, value_of
from xbus.broker.journal.log.bots import BOT_COLUMNS, read_bots, read_command, read_emitted
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import ConfigurationError, Refused
from xbus.slots import Schedule
from xbus.states import BOT_RUN_MOVES, BotRunState, BotState, check_move

_BOT, _RUN, _STATE = model.bot.c, model.bot_run.c, model.bot_state.c


@dataclass(frozen=True, slots=True)
class BotRunStatus:
    """A run.

    Args:
        bot: the name of its bot.
        slot: the moment of its cron; None for a batch, and where a person fired it.
        batch: its range and its bounds; None for others.
        due_at: from when on a runner may take it.
        attempts: how often it was begun and counted.
        runner: the login of the runner that has it, or had it last.
        code: of the last failure.
        error: the last failure in words.
        log: the end of what its last attempt printed; None unless it was asked for.
    """

    id: int
    bot: str
    slot: datetime | None
    batch: str | None
    state: BotRunState
    due_at: datetime
    attempts: int
    runner: str | None
    started_at: datetime | None
    ended_at: datetime | None
    code: str | None
    error: str | None
    log: str | None = None


@dataclass(frozen=True, slots=True)
class BotStatus:
    """A bot.

    Args:
        work: what it calls or runs, in one line.
        runners: the service whose programs run it; None for the only one.
        next_slot: the slot that comes next, wherever it stands; None for a bot that never runs by itself.
        due: how many of its runs wait for a runner.
        running: how many are under way.
        failures: how many attempts have failed one after another.
        slowed_until: until when nothing of it begins, as too many have failed.
        last: the run that ended last.
        reads: the event types of which it gets batches.
    """

    name: str
    work: str
    description: str
    runners: str | None
    cron: str
    timezone: str
    missed: str
    emits: Sequence[str]
    instances: int
    max_seconds: float
    attempts: int
    next_slot: datetime | None
    due: int
    running: int
    failures: int
    slowed_until: datetime | None
    pause: PauseEntry | None
    last: BotRunStatus | None
    reads: Sequence[str] = ()

    @property
    def state(self) -> BotState:
        """Its state."""
        if self.pause is not None:
            return BotState.PAUSED
        if self.slowed_until is not None:
            return BotState.SLOWED
        if self.running:
            return BotState.RUNNING
        return BotState.WAITING if self.cron or self.reads or self.due else BotState.MANUAL


def list_bots(connection: sa.Connection, now: datetime, name: str | None = None) -> list[BotStatus]:
    """List the bots in use, by name.

    Args:
        now: the next slots come after this.
        name: only this one; None for all.

    Raises:
        Refused: no bot is called so (``unknown_name``).
    """
    if name is not None:
        find_bot(connection, name)
    statement = (
        sa.select(*BOT_COLUMNS, model.bot_state, model.service.c.name.label("runners"))
        .join(model.bot_state, _STATE.bot_id == _BOT.id)
        .outerjoin(model.service, model.service.c.id == _BOT.service_id)
        .where(_BOT.removed_at.is_(None), sa.true() if name is None else _BOT.name == name)
        .order_by(_BOT.name)
    )
    pauses, emits = read_pauses(connection), read_emitted(connection)
    counts = count_runs(connection)
    last = _last_runs(connection)
    reads = {bot.id: bot.reads for bot in read_bots(connection, pauses)}
    return [
        value_of(
            BotStatus,
            row,
            work=row.call or " ".join(read_command(row.command) or (row.command,)),
            emits=emits.get(row.id, []),
            next_slot=_next_slot(row, now),
            due=counts.get((row.id, BotRunState.DUE), 0),
            running=counts.get((row.id, BotRunState.RUNNING), 0),
            pause=pauses.get((PauseKind.BOT, row.id)),
            last=last.get(row.id),
            reads=reads.get(row.id, ()),
        )
        for row in connection.execute(statement).all()
    ]


def count_runs(connection: sa.Connection) -> dict[tuple[int, str], int]:
    """Count the runs that wait or are under way, by bot and state."""
    counted = (
        sa.select(_RUN.bot_id, _RUN.state, sa.func.count())
        .where(_RUN.state.in_((BotRunState.DUE, BotRunState.RUNNING)))
        .group_by(_RUN.bot_id, _RUN.state)
    )
    return {(bot_id, state): number for bot_id, state, number in connection.execute(counted)}


def _last_runs(connection: sa.Connection) -> dict[int, BotRunStatus]:
    newest = sa.select(sa.func.max(_RUN.id)).where(_RUN.ended_at.is_not(None)).group_by(_RUN.bot_id)
    rows = connection.execute(_runs(with_log=False).add_columns(_RUN.bot_id).where(_RUN.id.in_(newest)))
    return {row.bot_id: _status(row) for row in rows}


def list_runs(
    connection: sa.Connection,
    name: str | None,
    limit: int,
    state: BotRunState | None = None,
    before: int | None = None,
) -> list[BotRunStatus]:
    """List runs, the newest first.

    Args:
        name: of a bot; None for all.
        limit: how many at the most.
        state: only those in this state.
        before: only those below this id.

    Raises:
        Refused: no bot is called so (``unknown_name``).
    """
    wanted = [] if name is None else [_RUN.bot_id == find_bot(connection, name)]
    if state is not None:
        wanted.append(_RUN.state == state)
    if before is not None:
        wanted.append(_RUN.id < before)
    statement = _runs(with_log=False).where(*wanted).order_by(_RUN.id.desc()).limit(limit)
    return [_status(row) for row in connection.execute(statement)]


def show_run(connection: sa.Connection, name: str, run_id: int | None) -> BotRunStatus:
    """Show a run of a bot with its log.

    Args:
        run_id: None for the one that ended last.

    Raises:
        Refused: the bot or the run does not exist (``unknown_name``, ``unknown_run``).
    """
    of_bot = _runs(with_log=True).where(_RUN.bot_id == find_bot(connection, name))
    if run_id is None:
        chosen = of_bot.where(_RUN.ended_at.is_not(None)).order_by(_RUN.ended_at.desc()).limit(1)
    else:
        chosen = of_bot.where(_RUN.id == run_id)
    row = connection.execute(chosen).one_or_none()
    if row is None:
        raise _unknown_run(name, run_id)
    return _status(row)


def read_run(connection: sa.Connection, run_id: int) -> BotRunStatus:
    """Read a run of any bot with its log.

    Raises:
        Refused: it does not exist (``unknown_run``).
    """
    row = connection.execute(_runs(with_log=True).where(_RUN.id == run_id)).one_or_none()
    if row is None:
        raise Refused(f"there is no run {run_id}", "xbus bot runs shows them", code="unknown_run")
    return _status(row)


def _next_slot(bot: NamedRow, now: datetime) -> datetime | None:
    """Give the next slot of a bot; None for a bot without a valid cron."""
    try:
        return Schedule(bot.cron, bot.timezone).after(now) if bot.cron else None
    except ConfigurationError:
        return None


def _runs(*, with_log: bool) -> sa.Select[*tuple[object, ...]]:
    columns = [column for column in model.bot_run.columns if with_log or column.name != "log"]
    return (
        sa.select(*columns, _BOT.name.label("bot"), model.role.c.login.label("runner"))
        .join(model.bot, _BOT.id == _RUN.bot_id)
        .outerjoin(model.role, model.role.c.id == _RUN.role_id)
    )


def _status(row: NamedRow) -> BotRunStatus:
    return value_of(BotRunStatus, row, state=BotRunState(row.state))


def fire_bot(connection: sa.Connection, name: str, run_id: int | None, decision: RepairDecision) -> int:
    """Have a bot run now, whatever its cron says; gives the id of the run.

    Args:
        run_id: a run that has failed, which is tried anew; None for a new one.

    Raises:
        Refused: the bot or the run does not exist (``unknown_name``, ``unknown_run``), or the run has not failed
            (``not_failed``), or a bot that reads would get no batch (``bot_reads``).
    """
    bot_id = check_fire(connection, name, run_id)
    if run_id is None:
        row = {"bot_id": bot_id, "state": BotRunState.DUE, "due_at": decision.at, "attempts": 0}
        run_id = connection.execute(sa.insert(model.bot_run).values(row).returning(_RUN.id)).scalar_one()
    else:
        _try_anew(connection, bot_id, name, run_id, decision.at)
    _note(connection, name, "fired", f"run {run_id}", decision)
    return run_id


def check_fire(connection: sa.Connection, name: str, run_id: int | None) -> int:
    """Find the id of a bot that :func:`fire_bot` may fire now; it raises the same."""
    bot_id = find_bot(connection, name)
    if run_id is not None:
        _check_failed(connection, bot_id, name, run_id)
    elif _reads(connection, bot_id):
        raise Refused(
            f'the bot "{name}" reads: it runs when something comes',
            "name a run of it that has failed, by --run",
            code="bot_reads",
        )
    return bot_id


def _reads(connection: sa.Connection, bot_id: int) -> bool:
    return any(bot.id == bot_id and bot.reader is not None for bot in read_bots(connection, {}))


def _check_failed(
    connection: sa.Connection, bot_id: int, name: str, run_id: int, *, locks: bool = False
) -> BotRunState:
    wanted = sa.select(_RUN.state).where(_RUN.bot_id == bot_id, _RUN.id == run_id)
    state = connection.execute(wanted.with_for_update() if locks else wanted).scalar_one_or_none()
    if state is None:
        raise _unknown_run(name, run_id)
    if state != BotRunState.FAILED:
        raise Refused(f"run {run_id} is {state}", "only one that has failed is fired again", code="not_failed")
    return BotRunState(state)


def _try_anew(connection: sa.Connection, bot_id: int, name: str, run_id: int, now: datetime) -> None:
    state = _check_failed(connection, bot_id, name, run_id, locks=True)
    check_move(BOT_RUN_MOVES, state, BotRunState.DUE)
    of_bot = (_RUN.bot_id == bot_id, _RUN.id == run_id)
    connection.execute(sa.update(model.bot_run).where(*of_bot).values(state=BotRunState.DUE, due_at=now, attempts=0))


def release_bot(connection: sa.Connection, name: str, decision: RepairDecision) -> int:
    """Let a bot go on that is slowed down; gives how many attempts had failed.

    Raises:
        Refused: no bot is called so (``unknown_name``), or it is not slowed down (``not_slowed``).
    """
    bot_id, failures = check_release(connection, name)
    connection.execute(
        sa.update(model.bot_state).where(_STATE.bot_id == bot_id).values(failures=0, failed_at=None, slowed_until=None)
    )
    # The broker looks at slots anew when the configuration is another.
    connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1))
    _note(connection, name, "released", f"after {failures} failures", decision)
    return failures


def check_release(connection: sa.Connection, name: str) -> tuple[int, int]:
    """Find the id of a bot that :func:`release_bot` may release now, and how many attempts had failed."""
    bot_id = find_bot(connection, name)
    state = connection.execute(sa.select(model.bot_state).where(_STATE.bot_id == bot_id)).one()
    if state.slowed_until is None:
        raise Refused(f'the bot "{name}" is not slowed down', "xbus bot list shows which are", code="not_slowed")
    return bot_id, state.failures


def find_bot(connection: sa.Connection, name: str) -> int:
    """Find the id of the bot in use that is called so.

    Raises:
        Refused: there is none (``unknown_name``).
    """
    found: int | None = connection.execute(
        sa.select(_BOT.id).where(_BOT.name == name, _BOT.removed_at.is_(None))
    ).scalar_one_or_none()
    if found is None:
        raise Refused(f'there is no bot "{name}"', "xbus bot list shows the bots", code="unknown_name")
    return found


def _unknown_run(name: str, run_id: int | None) -> Refused:
    which = "no run of it has ended" if run_id is None else f"it has no run {run_id}"
    return Refused(f'of the bot "{name}" {which}', f"xbus bot runs {quote(name)} shows them", code="unknown_run")


def _note(connection: sa.Connection, name: str, move: str, what: str, decision: RepairDecision) -> None:
    note_acts(connection, [act_here(decision.at, move, f'bot "{name}"', after=what, reason=decision.reason)])
    remember(connection, decision.at, "bot", name, move, f"{what}: {decision.told}")
