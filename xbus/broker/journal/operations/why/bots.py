"""The facts of a bot: its state, the runs that are due or under way, its runners, and its reader."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus.broker.journal.log.bots.entries import read_bots, read_runners
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.operations.bots import BotRunStatus, BotStatus, list_bots, list_runs
from xbus.broker.journal.readers.people import OF_BOTS
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.writes import PauseEntry
from xbus.states import BotRunState

MOST_RUNS = 100
"""So many runs of a state are looked at for the oldest. More would read longer, and say hardly more."""


@dataclass(frozen=True, slots=True)
class BotFacts:
    """The facts of a bot.

    Args:
        status: as ``xbus bot list`` shows it.
        running: the newest of its runs that are under way, the newest first.
        due: the newest of its runs that wait, the newest first.
        runners: the logins of the roles whose programs run it.
        paused: the pause of the runners, where all of them are paused.
        reader: the reader that gives it batches; None for a bot that reads nothing.
    """

    status: BotStatus
    running: Sequence[BotRunStatus]
    due: Sequence[BotRunStatus]
    runners: Sequence[str]
    paused: PauseEntry | None
    reader: ReaderStatus | None


def read_bot_facts(connection: sa.Connection, name: str, now: datetime) -> BotFacts | None:
    """Read the facts of a bot; None if none in use is called so."""
    pauses = read_pauses(connection)
    entry = next((each for each in read_bots(connection, pauses) if each.name == name), None)
    if entry is None:
        return None
    (status,) = list_bots(connection, now, name)
    runners = [each for each in read_runners(connection, pauses) if each.service_id == entry.service_id]
    is_paused = runners and all(each.pause is not None for each in runners)
    readers = list_readers(connection, f"{OF_BOTS}{name}") if entry.reader is not None else []
    return BotFacts(
        status,
        list_runs(connection, name, MOST_RUNS, BotRunState.RUNNING),
        list_runs(connection, name, MOST_RUNS, BotRunState.DUE),
        [each.login for each in runners],
        runners[0].pause if is_paused else None,
        readers[0] if readers else None,
    )


def list_bots_of(connection: sa.Connection, login: str) -> list[str] | None:
    """List the bots that the programs of a role run, by name; None for a role that runs none."""
    pauses = read_pauses(connection)
    runner = next((each for each in read_runners(connection, pauses) if each.login == login), None)
    if runner is None or runner.is_gateway:
        return None
    return [each.name for each in read_bots(connection, pauses) if each.service_id == runner.service_id]
