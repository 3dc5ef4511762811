"""The torture of ``make torture``, in brief."""

import json
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.processes import Process, module
from tests.support.waiting import wait_until
from tests.torture.run import torture
from tests.torture.settings import Settings

KEYS = {"cycles", "seed", "database", "acknowledged", "delivered", "lost", "invented", "torn", "reordered"}
KEYS |= {"gone_with_database", "duplicated", "duplicates_allowed", "peak_rss_mib"}


@pytest.mark.slow
async def test_two_cycles(tmp_path: Path) -> None:
    settings = Settings(cycles=2, faults="broker-kill,emitter-kill,cut-front")
    outcome = await torture(settings, tmp_path)
    assert outcome.complaints() == []
    told = json.loads(outcome.line(settings))
    assert told.keys() == KEYS
    assert told["delivered"] >= told["acknowledged"] > 0
    assert sum(outcome.struck.values()) >= 2


def test_nothing_is_left_of_a_run_that_is_interrupted(tmp_path: Path) -> None:
    run = Process(*module("tests.torture"), output=tmp_path / "output", env={"FOLDER": str(tmp_path / "run")})
    try:
        wait_until((tmp_path / "run" / "small_1.jsonl").exists, "the emitters begin")
        started = partial(psutil.Process(run.pid).children, recursive=True)
        wait_until(lambda: len(started()) > 5, "all begin")
        programs = started()
        assert run.stop() == 130, run.text
    finally:
        run.kill()
    wait_until(lambda: not any(map(goes_on, programs)), "all have ended")


def goes_on(program: psutil.Process) -> bool:
    try:
        return bool(program.is_running() and program.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
