"""Programs that are forks behave as those that begin anew."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked import SCRIPTS, can_start
from tests.support.processes import Process, environment, run, script


@pytest.mark.parametrize(("name", "argument"), [*((name, "--nonsense") for name in SCRIPTS), ("xbus", "--help")])
def test_it_writes_and_ends_as_one_that_begins_anew(name: str, argument: str, tmp_path: Path) -> None:
    command = [script(name), argument]
    assert can_start(command, environment())
    forked = run(*command, cwd=tmp_path)
    anew = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment())
    assert (forked.returncode, forked.stdout, forked.stderr) == (anew.returncode, anew.stdout, anew.stderr)


def test_it_has_an_environment_and_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.ini").write_text("[database]\nsqlalchemy.dburi = sqlite:///mine.db\n")
    done = run(script("xbus"), "config", "show", "-o", "json", cwd=tmp_path, env={"XBUS_CONFIG": "mine.ini"})
    assert f"sqlite:///{tmp_path / 'mine.db'}" in done.stdout


def test_signals_reach_it(tmp_path: Path) -> None:
    waiting = Process(script("xbus"), "emit", "t", "-", "--url", "tcp://127.0.0.1:9", output=tmp_path / "other")
    waiting.signal(signal.SIGKILL)
    assert waiting.wait() == -signal.SIGKILL
    waiting.kill()


def test_another_way_to_begin_is_not_forked() -> None:
    assert not can_start([sys.executable, "-m", "xbus"], environment())
    assert not can_start([script("xbus")], environment({"PYTHONPATH": "/x"}))
    assert not can_start([script("xbus")], environment({"LC_ALL": "tr_TR"}))
