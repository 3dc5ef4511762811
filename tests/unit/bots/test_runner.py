"""The runner, with a back that is a double: what it tells of runs that never began."""

import asyncio
import sys
from collections.abc import Collection
from typing import cast

import pytest

from xbus.bots import BotRunner, RunnerOptions
from xbus.bots.back import BackCalls
from xbus.rpc.messages import BotRun, ClaimedBotRun


def due(number: int) -> BotRun:
    return BotRun(
        run=number,
        bot="report",
        attempt=1,
        repeated=False,
        slot=None,
        due_at="2026-03-28T12:00:00Z",
        key="k",
        call="reports:nightly",
        command=[],
        settings={},
        max_seconds=60.0,
        emits=[],
        login="",
        ticket="t",
        reads=[],
        events=[],
    )


class RunsBackDouble:
    """A back that has a run for each call."""

    def __init__(self) -> None:
        self.claimed = 0
        self.told: list[dict[str, str]] = []
        self.heard = asyncio.Event()

    async def claim(self, seconds: float) -> ClaimedBotRun:
        self.claimed += 1
        return {"lease": 10.0, "run": due(self.claimed)}

    async def renew(self, runs: Collection[int]) -> list[int]:
        return [*runs]

    async def end(self, run: BotRun, result: dict[str, str]) -> bool:
        self.told.append(result)
        self.heard.set()
        return True

    async def log_out(self) -> None:
        pass


async def test_a_run_whose_process_does_not_start_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")
    back, stop = RunsBackDouble(), asyncio.Event()
    serving = asyncio.create_task(BotRunner(cast(BackCalls, back), "", RunnerOptions(runs=1)).serve(stop))
    async with asyncio.timeout(5):
        await back.heard.wait()
    await asyncio.sleep(0.05)
    stop.set()
    await serving
    (result,) = back.told
    assert result["code"] == "run_not_started"
    assert "/no/python" in result["error"]
    assert back.claimed == 1, "another runner may have the runs that are due"
