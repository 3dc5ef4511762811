"""The processes of runs, as the runner sees them."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import cast

import pytest

from xbus.bots.job import Allowed, RunJob
from xbus.bots.process import Child
from xbus.rpc.messages import BotRun

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


LEAVES_A_CHILD = """
import os, time
if not os.fork():
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not OPEN.exists(), reason="no folder lists the open files of a process")
async def test_a_process_that_ended_keeps_no_pipe_open_though_its_child_has_one(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVES_A_CHILD)
    before = opened()
    child = await Child.start({"PYTHONPATH": str(tmp_path)}, "leaving")
    left = ""
    while not left.strip():
        await asyncio.sleep(0.01)
        left += child.take_printed()
    await child.kill()
    child.close()
    try:
        await asyncio.sleep(0)
        assert opened() == before
    finally:
        os.kill(int(left), signal.SIGKILL)


@pytest.mark.parametrize("outcome", [b"x" * 100_000, b"x" * 100_000 + b"\n", b"no outcome\n", b"[]\n"], ids=len)
async def test_an_outcome_that_can_not_be_read_ends_the_run(tmp_path: Path, outcome: bytes) -> None:
    """An author's code may write to any file."""
    says = f"import os, sys, time\nsys.stdin.readline()\nos.write(int(sys.argv[1]), {outcome!r})\ntime.sleep(600)\n"
    (tmp_path / "babbling.py").write_text(says)
    child = await Child.start({"PYTHONPATH": str(tmp_path)}, "babbling")
    try:
        async with asyncio.timeout(60):
            ended = await child.carry_out(RunJob(cast(BotRun, {}), "", Allowed()))
    finally:
        await child.kill()
        child.close()
    assert ended.code == "run_crashed"
    assert not child.is_alive
