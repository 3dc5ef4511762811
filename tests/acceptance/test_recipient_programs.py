"""Programs that run a recipient, as whoever starts one meets them: how they end, and what they say while they wait."""

import sys
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.ports import free_port
from tests.support.processes import Process, run, script
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"

WRONG = "the login or the password is wrong: check both, or set the password anew [login_refused]"


@pytest.mark.parametrize("example", ["consumer", "worker", "totals"])
def test_a_role_that_the_bus_does_not_know_ends_a_program_with_one_line(shared: Daemon, example: str) -> None:
    ended = run(sys.executable, EXAMPLES / f"{example}.py", shared.back)

    assert ended.returncode == 1
    assert WRONG in ended.stderr
    assert ended.stderr.count("the login or the password is wrong") == 1
    assert "Traceback" not in ended.stderr


def test_a_wrong_password_ends_the_command_that_runs_a_recipient_in_the_same_way(shared: Daemon) -> None:
    ended = run(
        *(script("xbus"), "recipient", "run", "consumer:Clients", "--back", shared.back, "--login", "c_1"),
        cwd=EXAMPLES,
        env={"XBUS_PASSWORD": "wrong"},
    )

    assert ended.returncode == 1
    assert f"recipient c_1: {WRONG}" in ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr


def test_an_address_that_is_none_ends_a_program_with_one_line() -> None:
    ended = run(sys.executable, EXAMPLES / "consumer.py", "tcp:/127.0.0.1")

    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert "write tcp://host:port or ipc://path [bad_address]" in ended.stderr


def test_a_broker_that_is_not_there_yet_is_waited_for_and_the_program_says_so(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    program = Process(sys.executable, EXAMPLES / "consumer.py", address, output=tmp_path / "output")
    try:
        wait_until(lambda: "not registered" in program.text, "it says that it waits")

        assert program.runs
        assert f"{address}: no connection" in program.text
        assert "trying again" in program.text
        assert program.stop() == 0
    finally:
        program.kill()
