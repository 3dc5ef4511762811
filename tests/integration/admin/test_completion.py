"""A shell completes what is typed behind ``xbus``: commands, options, and names from the bus."""

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.integration.admin.conftest import Xbus
from xbus.admin.cli import main

MORE = """
[[service]]
name = "machines"
kind = "runner"

[[bot]]
name = "report"
call = "reports:make"

[[reader]]
name = "fresh"
event_types = ["flights"]

[[subscription]]
name = "fast"
event_types = ["flights"]
url = "https://shop.example/hook"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""


def completed(typed: str) -> list[str]:
    """What a shell offers for the last word of a line."""
    words = typed.split(" ")
    asked = {"_XBUS_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    told = CliRunner().invoke(main, [], prog_name="xbus", env=asked)
    return [line.partition(",")[2] for line in told.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("xbus sess", ["session"]),
        ("xbus parked list --ro", ["--role"]),
        ("xbus parked list --role ", ["airline_names_1", "flight_store_1"]),
        ("xbus parked list --service f", ["flight_store"]),
        ("xbus envelope list --emitter ", ["airport_1"]),
        ("xbus replay --type ", ["flights"]),
        ("xbus why --emitter ", ["airport_1"]),
        ("xbus why --role f", ["fast", "flight_store_1", "fresh"]),
        ("xbus why --bot ", ["report"]),
        ("xbus bot show ", ["report"]),
        ("xbus pause bot ", ["report"]),
        ("xbus reader show ", ["fresh"]),
        ("xbus subscription show ", ["fast"]),
        ("xbus parked batch list --subscription ", ["fast"]),
        ("xbus recipient detach a", ["airline_names_1"]),
        ("xbus pause type ", ["flights"]),
        ("xbus password role f", ["flight_store_1"]),
        ("xbus session end emitter ", ["airport_1"]),
        ("xbus person disable a", ["ada"]),
        ("xbus person token list ", ["ada"]),
        ("xbus person rights ada u", ["uploader"]),
        ("xbus pause nonsense ", []),
    ],
)
def test_commands_options_and_names_are_completed(xbus: Xbus, bus: Path, typed: str, names: list[str]) -> None:
    bus.write_text(bus.read_text() + MORE)
    xbus("apply", bus)
    xbus("person", "add", "ada", "--no-password")
    assert completed(typed) == names


def test_without_a_bus_no_name_is_offered_and_nothing_disturbs_who_types(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XBUS_CONFIG", raising=False)
    assert completed("xbus parked list --role ") == []
    monkeypatch.setenv("XBUS_CONFIG", str(tmp_path / "missing.ini"))
    assert completed("xbus parked list --role ") == []
    assert completed("xbus person disable ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(xbus: Xbus, shell: str) -> None:
    assert f"_XBUS_COMPLETE={shell}_complete" in xbus("completion", shell).stdout


ODD_NAMES = ["plain", "two words", "it's", 'say "hi"', "$(touch gone)", "a;b & *", "back\\slash", "comma, too", "Größe"]


def test_bash_puts_odd_names_on_the_line_as_one_word(xbus: Xbus, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text("".join(f"plain,{name}\n" for name in ODD_NAMES))
    program = tmp_path / "xbus"
    program.write_text(f"#!/bin/sh\ncat {shlex.quote(str(answers))}\n")
    program.chmod(0o755)
    script = xbus("completion", "bash").stdout
    use = """
COMP_WORDS=(xbus why --role "")
COMP_CWORD=3
_xbus_completion "$1"
eval "printf '%s\\n' ${COMPREPLY[*]}"
COMP_WORDS=(xbus why --role "'two")
COMPREPLY=()
_xbus_completion "$1"
printf '%s\\n' "${COMPREPLY[1]}"
"""
    ran = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{use}", "bash", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert ran.stdout.splitlines() == [*ODD_NAMES, "two words"]
    assert ran.stderr == ""
    assert not (tmp_path / "gone").exists()
