"""Statements for the runs of bots."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.rows import NamedRow, insert_new
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.writes import bots as writes
from xbus.ids import keyed_envelope_id
from xbus.slots import LATE
from xbus.states import BOT_RUN_MOVES, BotRunState, EnvelopeState, check_move

SLOWED_AFTER = 10
"""So many attempts that fail one after another slow a bot down."""

FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
"""A slowed bot pauses for the first time span, then for twice as long each time, up to the longest one."""

FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(minutes=5)
"""The same for a run between its attempts."""

KEPT_RUNS = 1_000
"""The ended runs of each bot that are kept. A slot of before is decided all the same, by ``bot_state.slots_until``."""

LOST = writes.RunFailure("runner_lost", "its runner gave no sign of life in time")

_RUN, _STATE = model.bot_run.c, model.bot_state.c


def fire(connection: sa.Connection, group: Sequence[writes.FireSlots]) -> list[bool]:
    return [_fire(connection, write) for write in group]


def _fire(connection: sa.Connection, write: writes.FireSlots) -> bool:
    # The row is locked first: of two brokers that look at the same moment the second one sees what the first has done.
    moved = connection.execute(
        sa.update(model.bot_state)
        .where(
            _STATE.bot_id == write.bot_id,
            # A clock that was ahead has noted what is still to come. No slot gets a second run by that.
            (_STATE.slots_until < write.until) | (_STATE.slots_until > write.now + LATE),
            _STATE.slowed_until.is_(None) | (_STATE.slowed_until <= write.now),
        )
        .values(slots_until=write.until)
        .returning(_STATE.slowed_until)
    ).one_or_none()
    if moved is None:
        return False
    slots = write.slots
    if moved.slowed_until is not None and not write.is_each:
        # One run shows whether the trouble is over. Others would pile up behind it, as attempts are not counted.
        is_open = sa.exists().where(_RUN.bot_id == write.bot_id, _RUN.state.in_((BotRunState.DUE, BotRunState.RUNNING)))
        slots = [] if connection.execute(sa.select(is_open)).scalar_one() else slots[-1:]
    for slot in slots:
        row = {"bot_id": write.bot_id, "slot": slot, "state": BotRunState.DUE, "due_at": write.now, "attempts": 0}
        connection.execute(insert_new(connection, model.bot_run), row)
    return True


def claim(connection: sa.Connection, group: Sequence[writes.ClaimRun]) -> list[writes.ClaimedRun | None]:
    return [_claim(connection, write) for write in group]


def _claim(connection: sa.Connection, write: writes.ClaimRun) -> writes.ClaimedRun | None:
    running = (
        sa.select(_RUN.bot_id, sa.func.count().label("number"))
        .where(_RUN.state == BotRunState.RUNNING)
        .group_by(_RUN.bot_id)
    )
    under_way: dict[int, int] = dict(connection.execute(running).all())
    slowed = {
        row.bot_id: row.slowed_until
        for row in connection.execute(sa.select(model.bot_state).where(_STATE.slowed_until.is_not(None)))
    }
    free = [
        bot_id
        for bot_id, instances in write.instances.items()
        # A bot that is slowed down is probed by one run at a time.
        if under_way.get(bot_id, 0) < (1 if bot_id in slowed else instances)
        and slowed.get(bot_id, write.now) <= write.now
    ]
    is_at_hand = _RUN.batch.is_(None) | _RUN.id.in_(write.batches)
    due = (
        sa.select(model.bot_run)
        .where(_RUN.state == BotRunState.DUE, _RUN.due_at <= write.now, _RUN.bot_id.in_(free), is_at_hand)
        .order_by(_RUN.due_at, _RUN.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    while (found := connection.execute(due).one_or_none()) is not None and _has_put(connection, found):
        _move(connection, found.id, BotRunState.DUE, BotRunState.RUNNING)
        _succeed(connection, found, write.now)
    if found is None:
        return None
    attempt = found.attempts + 1
    _move(
        connection,
        found.id,
        BotRunState.DUE,
        BotRunState.RUNNING,
        attempts=attempt,
        role_id=write.role_id,
        program=write.program,
        ticket_hash=write.ticket_hash,
        lease_until=write.lease_until,
        started_at=write.now,
        ended_at=None,
        log=None,
    )
    is_repeated = found.started_at is not None
    return writes.ClaimedRun(found.id, found.bot_id, attempt, is_repeated, found.slot, found.due_at, found.batch)


def renew(connection: sa.Connection, group: Sequence[writes.RenewRuns]) -> list[Sequence[int]]:
    return [
        connection.execute(
            sa.update(model.bot_run)
            .where(_RUN.state == BotRunState.RUNNING, _RUN.role_id == write.role_id, _RUN.program == write.program)
            .where(_RUN.id.in_(write.runs))
            .values(lease_until=write.lease_until)
            .returning(_RUN.id)
        )
        .scalars()
        .all()
        for write in group
    ]


def end(connection: sa.Connection, group: Sequence[writes.EndRun]) -> list[bool]:
    return [_end(connection, write) for write in group]


def _end(connection: sa.Connection, write: writes.EndRun) -> bool:
    of_program = (
        _RUN.id == write.run_id,
        _RUN.role_id == write.role_id,
        _RUN.program == write.program,
        _RUN.ticket_hash == write.ticket_hash,
        _RUN.state == BotRunState.RUNNING,
    )
    found = connection.execute(sa.select(model.bot_run).where(*of_program).with_for_update()).one_or_none()
    if found is None:
        return False
    if write.failure is None:
        _succeed(connection, found, write.now, write.log)
    else:
        _fail(connection, found, write.failure, write.now, write.log)
    _forget_old(connection, found.bot_id)
    return True


def lose(connection: sa.Connection, group: Sequence[writes.LoseRuns]) -> list[int]:
    return [_lose(connection, write) for write in group]


def _lose(connection: sa.Connection, write: writes.LoseRuns) -> int:
    over = sa.select(model.bot_run).where(_RUN.state == BotRunState.RUNNING, _RUN.lease_until <= write.now)
    found = connection.execute(over.with_for_update(skip_locked=True)).all()
    for row in found:
        _fail(connection, row, LOST, write.now, None)
    return len(found)


_ENDED = {"ticket_hash": None, "lease_until": None}
"""Who had the run may log in for it no more."""


def _end_sessions(connection: sa.Connection, row: NamedRow) -> None:
    """End the sessions of an attempt: a program that outlives it writes nothing more."""
    if row.ticket_hash is not None:
        connection.execute(sa.delete(model.session).where(model.session.c.ticket_hash == row.ticket_hash))


def _succeed(connection: sa.Connection, row: NamedRow, now: datetime, log: str | None = None) -> None:
    _end_sessions(connection, row)
    _move(
        connection,
        row.id,
        BotRunState.RUNNING,
        BotRunState.DONE,
        **_ENDED,
        ended_at=now,
        log=log,
        code=None,
        error=None,
    )
    _note_success(connection, row.bot_id, now)


def _has_put(connection: sa.Connection, row: NamedRow) -> bool:
    """Check whether what a run put is in the log, though nobody said that it had ended well."""
    if row.started_at is None:
        return False
    emitter_id = connection.execute(sa.select(model.bot.c.emitter_id).where(model.bot.c.id == row.bot_id)).scalar_one()
    key = writes.run_key(row.id, row.slot, row.batch)
    for generation in count():
        # One that retention has removed is known by its key.
        envelope = read_envelope(connection, keyed_envelope_id(emitter_id, key, generation))
        # The next generation begins when one was cancelled.
        if envelope is None or envelope.state is not EnvelopeState.CANCELLED:
            return envelope is not None and envelope.state is EnvelopeState.RECEIVED
    raise AssertionError("no envelope is cancelled for ever")


def _fail(
    connection: sa.Connection,
    row: NamedRow,
    failure: writes.RunFailure,
    now: datetime,
    log: str | None,
) -> None:
    if _has_put(connection, row):
        _succeed(connection, row, now, log)
        return
    _end_sessions(connection, row)
    # A lost runner is not the trouble of the bot, but a run that kills runners must not go on for ever.
    is_slowed = failure is not LOST and _note_failure(connection, row.bot_id, now)
    # While a bot is slowed down its trouble is not that of the run, and no attempts are counted.
    counted = row.attempts - 1 if is_slowed else row.attempts
    attempts = sa.select(model.bot.c.attempts).where(model.bot.c.id == row.bot_id)
    is_last = counted >= connection.execute(attempts).scalar_one()
    retry = min(FIRST_RETRY * 2 ** min(counted, 20), LONGEST_RETRY)
    _move(
        connection,
        row.id,
        BotRunState.RUNNING,
        BotRunState.FAILED if is_last else BotRunState.DUE,
        **_ENDED,
        attempts=counted,
        due_at=row.due_at if is_last else now + retry,
        ended_at=now,
        code=failure.code,
        error=failure.error,
        log=log,
    )


def _move(connection: sa.Connection, run_id: int, old: BotRunState, new: BotRunState, **values: object) -> None:
    check_move(BOT_RUN_MOVES, old, new)
    connection.execute(sa.update(model.bot_run).where(_RUN.id == run_id).values(state=new, **values))


def _note_failure(connection: sa.Connection, bot_id: int, now: datetime) -> bool:
    """Count a failure; whether the bot was slowed down already."""
    state = connection.execute(sa.select(model.bot_state).where(_STATE.bot_id == bot_id).with_for_update()).one()
    failures = state.failures + 1
    slowed_until = None
    if failures >= SLOWED_AFTER:
        slowed_until = now + min(FIRST_PAUSE * 2 ** min(failures - SLOWED_AFTER, 20), LONGEST_PAUSE)
        if state.slowed_until is None:
            remember(
                connection, now, "bot", _name(connection, bot_id), "slowed", f"{failures} attempts failed in a row"
            )
    connection.execute(
        sa.update(model.bot_state)
        .where(_STATE.bot_id == bot_id)
        .values(failures=failures, failed_at=now, slowed_until=slowed_until)
    )
    return state.slowed_until is not None


def _note_success(connection: sa.Connection, bot_id: int, now: datetime) -> None:
    was_slowed = connection.execute(sa.select(_STATE.slowed_until).where(_STATE.bot_id == bot_id)).scalar_one()
    connection.execute(
        sa.update(model.bot_state)
        .where(_STATE.bot_id == bot_id, _STATE.failures > 0)
        .values(failures=0, failed_at=None, slowed_until=None)
    )
    if was_slowed is not None:
        remember(connection, now, "bot", _name(connection, bot_id), "recovered", "a run went well")


def _name(connection: sa.Connection, bot_id: int) -> str:
    name: str = connection.execute(sa.select(model.bot.c.name).where(model.bot.c.id == bot_id)).scalar_one()
    return name


def _forget_old(connection: sa.Connection, bot_id: int) -> None:
    of_bot = (_RUN.bot_id == bot_id, _RUN.state.in_((BotRunState.DONE, BotRunState.FAILED)))
    newest = sa.select(_RUN.id).where(*of_bot).order_by(_RUN.id.desc()).offset(KEPT_RUNS).limit(1).scalar_subquery()
    # The range of a batch whose run has failed waits for that run.
    is_waited_for = sa.and_(_RUN.batch.is_not(None), _RUN.state == BotRunState.FAILED)
    connection.execute(sa.delete(model.bot_run).where(*of_bot, _RUN.id <= newest, ~is_waited_for))
