"""What a forked process does with what its parent has opened."""

import os

import pytest

from xbus.emitter.forks import begun_before, tell_of_forks


class Notes:
    """Notes in which process it was told of a fork."""

    def __init__(self) -> None:
        self.told_in: list[int] = []
        tell_of_forks(self)

    def forked(self) -> None:
        self.told_in.append(os.getpid())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_only_the_child_is_told() -> None:
    notes = Notes()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if notes.told_in == [os.getpid()] else 1)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert notes.told_in == []


def test_the_refusal_says_what_to_do() -> None:
    refusal = begun_before()
    assert (refusal.code, refusal.next_step) == ("begun_before_fork", "begin an envelope of its own in this process")
