"""``xbus pause`` and ``resume`` with names and reasons that a shell or a terminal would obey."""

import shlex
from pathlib import Path

import pytest

from tests.integration.admin.conftest import Xbus

ODD_NAMES = ["two words", 'it\'s "odd"', "$(touch gone); `id` & *", "back\\slash", "Größe"]

HOSTILE = "moving \x1b[2J\u202e\nhouse"
WRITTEN_OUT = r"moving \x1b[2J\u202e"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_command_that_resumes_works_as_it_is_shown(xbus: Xbus, bus: Path, name: str) -> None:
    toml_name = name.replace("\\", "\\\\").replace('"', '\\"')
    bus.write_text(bus.read_text().replace('"flight_store_1"', f'"{toml_name}"'))
    assert xbus("apply", bus).exit_code == 0
    paused = xbus("pause", "role", name, "--reason", "moving house")
    shown = paused.stdout.partition("To resume it: ")[2].strip()
    drained = xbus("drain", "role", name, "--reason", "moving house", "--timeout", "1min")
    assert drained.stdout.endswith(f"To resume it: {shown}\n")
    program, *words = shlex.split(shown)
    assert (program, words) == ("xbus", ["resume", "role", name])
    assert xbus(*words).stdout == f"The role {name} is resumed.\n"


def test_the_reason_of_an_operator_moves_nothing_on_a_terminal(xbus: Xbus, bus: Path) -> None:
    xbus("apply", bus)
    told = [
        *(xbus("pause", "role", "flight_store_1", "--reason", HOSTILE), xbus("recipient", "list", "-o", "wide")),
        *(xbus("drain", "role", "flight_store_1", "--reason", HOSTILE, "--timeout", "1min"),),
        xbus("audit", "list", "-o", "wide"),
    ]
    for each in told:
        assert each.exit_code == 0
        assert WRITTEN_OUT in each.output
        assert "\x1b" not in each.output
        assert "\u202e" not in each.output
