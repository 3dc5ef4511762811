"""The processes of runs, as the runner sees them."""

import os
import sys
from pathlib import Path

import pytest

from xbus.bots.process import Child

OPEN = Path("/proc/self/fd")


def opened() -> int:
    return len(os.listdir(OPEN))


@pytest.mark.skipif(not OPEN.exists(), reason="no folder lists the open files of a process")
async def test_a_process_that_does_not_start_keeps_no_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    before = opened()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            await Child.start({})
    assert opened() == before
