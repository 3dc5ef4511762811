"""Recipients of small envelopes, registered before anything is measured."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.bus import CONSUMER
from benchmarks.programs.running import running
from tests.support.daemon import Daemon
from tests.support.processes import Process
from tests.support.waiting import wait_until

REGISTERED = "recipient registered"


@contextmanager
def registered(daemon: Daemon, program: str, login: str, *arguments: object) -> Iterator[Process]:
    """A recipient that runs in a process of its own, and is registered."""
    before = daemon.log.count(REGISTERED)
    with running(program, daemon.back, login, *arguments) as recipient:
        wait_until(lambda: daemon.log.count(REGISTERED) > before, f"{login} is registered")
        yield recipient


@contextmanager
def taking(
    daemon: Daemon, every: int, logins: Sequence[str] = (CONSUMER,), envelopes: int = 1
) -> Iterator[list[Process]]:
    """Consumers that do nothing, and report after so many envelopes, again and again.

    Args:
        envelopes: how many each may have open at once.
    """
    with ExitStack() as exit_stack:
        yield [exit_stack.enter_context(registered(daemon, "takes", login, every, envelopes)) for login in logins]
