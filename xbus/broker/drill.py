"""A restored journal is looked at: both ports answer, and nothing is delivered, taken or written.

It runs neither front nor back, and opens no writer, so that it does no harm either where it is started on the live
database by mistake.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from xbus.broker.health_verbs import HealthVerbs
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.copies import read_foreign
from xbus.broker.parts import PARTS
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.ending import STOPPED
from xbus.errors import Failed
from xbus.rpc.codec import Key, Value
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import ServerLimits
from xbus.rpc.server import Server
from xbus.supervision.health import Health
from xbus.system.service_manager import stop_signals, tell_ready

log = logging.getLogger(__name__)

PROBLEM = "drill"
"""The code of the problem in health, and of the answer to every other call."""

CAUSE = "this broker was started with --drill: it delivers nothing and takes nothing"
NEXT_STEP = "look at its journal with the xbus commands; start it without --drill to have it serve"

MAX_MESSAGE_BYTES = 1024 * 1024


class HealthAlone(Dispatch):
    """Serves the verbs of health, and fails every other call.

    Args:
        health: what they tell.
        failure: makes the error of another call.
    """

    def __init__(self, health: Health, failure: Callable[[], Failed]) -> None:
        super().__init__(HealthVerbs(health))
        self._failure = failure

    def call(self, name: str, args: list[Value], kwargs: dict[Key, Value]) -> object:
        if name not in self.verbs:
            raise self._failure()
        return super().call(name, args, kwargs)


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


@contextmanager
def answering(config: Config, names: Sequence[str], dispatch: Dispatch) -> Iterator[dict[str, str]]:
    """Answer calls at the plain addresses of a broker, without one; gives the addresses that were taken, by part.

    Raises:
        XbusError: a port is taken.
    """
    context = new_context()
    addresses = {"front": config.zmq.frontsocket, "back": config.zmq.backsocket}
    limits = ServerLimits(max_message_bytes=MAX_MESSAGE_BYTES)
    servers = {name: Server(context, dispatch, name=name, limits=limits, clock=SystemClock()) for name in names}
    try:
        taken = {name: server.bind(addresses[name]) for name, server in servers.items()}
        for server in servers.values():
            server.start()
        yield taken
    finally:
        for server in servers.values():
            server.close()
        context.destroy(linger=0)
