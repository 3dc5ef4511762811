"""Commands of ``xbus`` on a terminal: the width, the colours, and bars that log lines don't tear."""

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.admin.conftest import Xbus
from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus
from tests.support.daemon import write_config
from tests.support.processes import run, script
from tests.support.terminals import run_in_terminal

COLOUR = re.compile(r"\x1b\[\d+m")


@pytest.fixture
def bus(sqlite_url: str) -> ParkedBus:
    return make_parked_bus(sqlite_url)


@pytest.fixture
def config(sqlite_url: str, tmp_path: Path) -> str:
    return str(write_config(tmp_path / "config.ini", sqlite_url))


@pytest.mark.parametrize("columns", [pytest.param(72, marks=pytest.mark.slow), 80, 140])
def test_a_list_takes_the_width_of_the_terminal(bus: ParkedBus, config: str, columns: int) -> None:
    written = COLOUR.sub("", run_in_terminal(script("xbus"), "parked", "list", "-c", config, columns=columns))
    lines = written.split("\n")
    assert max(map(len, lines)) <= columns
    assert ("item 1 is bad" in written, "…" in written) == (True, False) if columns == 140 else (True, True)


def test_states_have_colours_on_a_terminal_only(bus: ParkedBus, config: str) -> None:
    command = (script("xbus"), "envelope", "list", "-c", config)
    assert "\x1b[31mparked\x1b[0m" in run_in_terminal(*command, columns=200)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert not COLOUR.search(run_in_terminal(*command, columns=200, env=environment))


LOGGING = """\
import logging, sys
from xbus import logs
from xbus.admin.progress import progress
from xbus.config import LoggingSettings
if sys.argv[1] == "set up":
    logs.set_up(LoggingSettings())
with progress(3, "Sending") as bar:
    for number in range(3):
        logging.getLogger("xbus.emitter").warning("the front is away", extra={"try": number})
        bar.update(1)
logging.getLogger("xbus.emitter").warning("the front is back")
"""


@pytest.mark.parametrize("logging", ["set up", "as it is"])
def test_log_lines_stand_above_the_bar(logging: str) -> None:
    lines = run_in_terminal(sys.executable, "-c", LOGGING, logging, columns=80).split("\n")
    # A terminal shows what stands behind the last clearing of a line.
    shown = [re.split(r"\r(?:\x1b\[K)?", line)[-1] for line in lines]
    assert [line.count("the front is away") for line in shown[:3]] == [1, 1, 1]
    assert not any("Sending" in line for line in shown[:3])
    assert "100%" in shown[3]
    assert shown[4].endswith("the front is back")


OTHER = """\
import logging, subprocess, sys
from xbus import logs
from xbus.config import LoggingSettings
if sys.argv[1:]:
    logs.set_up(LoggingSettings())
    logging.getLogger("xbus").info("ready")
else:
    sys.stderr.write("Sending  [###---]")
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "other"], check=True)
"""


def test_a_log_line_of_another_program_takes_the_place_of_the_bar() -> None:
    """Programs that were started with ``&`` share the terminal."""
    line, _ = run_in_terminal(sys.executable, "-c", OTHER, columns=80).split("\n")
    before, cleared, behind = line.partition("\r\x1b[K")
    assert (before, bool(cleared), behind.endswith(" INFO xbus: ready")) == ("Sending  [###---]", True, True)
    assert "\x1b" not in run(sys.executable, "-c", OTHER, "other").stderr


def test_a_search_shows_its_progress(bus: ParkedBus, config: str) -> None:
    written = run_in_terminal(script("xbus"), "find", "clients", "number=4", "-c", config, columns=100)
    assert "Searching clients" in written
    assert "100%" in written
    assert [line.count('{"number": 4}') for line in written.split("\n")].count(1) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("command", "label"), [(["fsck"], "Examining"), (["audit", "verify"], "Verifying")])
def test_an_examination_shows_its_progress(config: str, command: list[str], label: str) -> None:
    written = run_in_terminal(script("xbus"), *command, "-c", config, columns=100)
    assert label in written
    assert "100%" in written


def test_what_takes_long_shows_its_progress(bus: ParkedBus, config: str, tmp_path: Path) -> None:
    file = tmp_path / "bus.toml"
    file.write_text('[[event_type]]\nname = "later"\n')
    new = f"sqlite:///{tmp_path / 'new.db'}"
    archive = ["archive", "--before", "0d", "--to", str(tmp_path / "archive")]
    commands = (
        ["plan", str(file), "--last", "5"],
        archive,
        ["journal", "move", "--to", new],
    )
    for command, label in zip(commands, ("Comparing", "Archiving", "Copying"), strict=True):
        written = run_in_terminal(script("xbus"), *command, "-c", config, columns=100)
        assert label in written
        assert "100%" in written


def test_without_a_terminal_the_log_is_as_always(xbus: Xbus) -> None:
    """And so is the list: 80 characters wide, without colours."""
    assert xbus("envelope", "list").stdout == "No envelopes.\n"


def test_output_without_room_ends_in_one_line(bus: ParkedBus, config: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [script("xbus"), "export", "-c", config], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert re.fullmatch(r"xbus: the output can't be written \(.*\): .* \[unwritable_output\]\n", ended.stderr)


def test_a_list_that_is_watched_ends_with_its_terminal(bus: ParkedBus, config: str) -> None:
    ours, its = pty.openpty()
    # As under nohup: nobody tells it that the terminal is closed.
    command = f"trap '' HUP; exec {shlex.join([script('xbus'), 'parked', 'list', '--watch', '-c', config])}"
    with subprocess.Popen(["sh", "-c", command], stdin=its, stdout=its, stderr=subprocess.PIPE, text=True) as watching:
        os.close(its)
        assert os.read(ours, 1)
        os.close(ours)
        _, told = watching.communicate(timeout=60)
    assert watching.returncode == 1
    assert re.fullmatch(r"xbus: the output can't be written .* \[unwritable_output\]\n", told)
