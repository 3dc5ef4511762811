"""A pooler that gives each transaction another session is told from one that doesn't, whichever way it chooses."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from xbus.broker.journal.database.promises import are_shared

Session = Callable[[], AbstractContextManager[int]]


class Pooler:
    """Gives each transaction a process of the server that is idle, or a new one."""

    def __init__(self, processes: int, newest_first: bool) -> None:
        self._idle = deque(range(processes))
        self._made = processes
        self._newest_first = newest_first

    def session(self) -> Session:
        @contextmanager
        def transaction() -> Iterator[int]:
            if not self._idle:
                self._idle.append(self._made)
                self._made += 1
            process = self._idle.pop() if self._newest_first else self._idle.popleft()
            try:
                yield process
            finally:
                self._idle.append(process)

        return transaction


def own_session(process: int) -> Session:
    @contextmanager
    def transaction() -> Iterator[int]:
        yield process

    return transaction


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("processes", range(6))
def test_sessions_behind_a_pooler_of_transactions_are_shared(processes: int, newest_first: bool) -> None:
    pooler = Pooler(processes, newest_first)
    assert are_shared(pooler.session(), pooler.session())


def test_sessions_that_have_a_process_each_are_not() -> None:
    assert not are_shared(own_session(1), own_session(2))
