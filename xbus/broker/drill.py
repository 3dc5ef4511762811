"""A restored journal is looked at: both ports answer, and nothing is delivered, taken or written.

It runs neither front nor back, and opens no writer, so that it does no harm either where it is started on the live
database by mistake.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xbus.broker.health_verbs import HealthAlone, answering
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.copies import read_foreign
from xbus.broker.parts import PARTS
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.ending import STOPPED
from xbus.errors import Failed
from xbus.supervision.health import Health
from xbus.system.service_manager import stop_signals, tell_ready

log = logging.getLogger(__name__)

PROBLEM = "drill"
"""The code of the problem in health, and of the answer to every other call."""

CAUSE = "this broker was started with --drill: it delivers nothing and takes nothing"
NEXT_STEP = "look at its journal with the xbus commands; start it without --drill to have it serve"


def run(config: Config, *, only: str | None, ready_file: Path | None) -> int:
    """Answer on both ports until SIGTERM or SIGINT, and deliver nothing.

    Args:
        config: all of it.
        only: one side; None for both.
        ready_file: as of ``daemon.run``.

    Returns:
        The exit code.

    Raises:
        XbusError: the journal can't be read, or a port is taken.
    """
    _tell_journal(config.database.url)
    asyncio.run(_serve(config, list(PARTS) if only is None else [only], ready_file))
    return STOPPED


def _tell_journal(url: str) -> None:
    with reading(url) as connection:
        head, place, foreign = read_head(connection), read_place(connection), len(read_foreign(connection))
    log.info(
        "the journal ends at position %d; %d recipients registered elsewhere; it is at %s",
        *(head, foreign, place),
        extra={"action": "drill"},
    )


async def _serve(config: Config, names: Sequence[str], ready_file: Path | None) -> None:
    health = Health(PROBLEM, SystemClock())
    health.trouble(PROBLEM, CAUSE, NEXT_STEP)
    failure = partial(Failed, CAUSE, "call the live broker", code=PROBLEM)
    with stop_signals() as stop, answering(config, names, HealthAlone(health, failure)) as taken:
        tell_ready(taken, ready_file)
        await stop.wait()
