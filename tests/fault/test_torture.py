"""The torture of ``make torture``, in brief."""

import json
from functools import partial
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from tests.support.journal import looking
from tests.support.processes import Process, module
from tests.support.waiting import wait_until
from tests.torture import bus
from tests.torture.database import Sqlite
from tests.torture.examining import Examiner
from tests.torture.run import torture
from tests.torture.settings import Settings
from xbus import model

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


async def test_what_fsck_finds_is_told_with_its_cycle(tmp_path: Path) -> None:
    journal = Sqlite(tmp_path / "xbus.db")
    bus.set_up(journal.own_url)
    examiner = Examiner(journal.own_url, tmp_path)
    examiner.begin(1)
    assert await examiner.examine("at rest")
    assert examiner.problems == []
    with looking(journal.own_url) as connection:
        connection.execute(sa.update(model.configuration).values(changing=True))
    examiner.begin(2)
    assert await examiner.examine("while the broker was down")
    (problem,) = examiner.problems
    assert problem.startswith("fsck in cycle 2, while the broker was down: configuration_wrong")
    unreachable = Examiner("postgresql://nobody@127.0.0.1:1/xbus", tmp_path)
    assert not await unreachable.examine("while the database is away")
    assert unreachable.problems == []


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
