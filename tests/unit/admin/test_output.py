"""JSON for programs is safe on a terminal, too."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.cli import main
from xbus.admin.output import one_json
from xbus.ending import printable_lines

HOSTILE = "\x1b[2J\u202e\x9b"


@given(st.dictionaries(st.text(), st.text()))
def test_json_has_nothing_that_a_terminal_obeys(value: dict[str, str]) -> None:
    written = one_json(value)
    assert written.isprintable()
    assert json.loads(written) == value


def test_letters_stay_as_they_are() -> None:
    assert one_json({"name": "Ærøskøbing 東京"}) == '{"name": "Ærøskøbing 東京"}'
    assert one_json({"name": "a\u202eb\x9b31m"}) == '{"name": "a\\u202eb\\u009b31m"}'


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "--type", "t", "--role", "r", "--from", f"{HOSTILE}"],
        ["plan", "-c", "config.ini", HOSTILE],
        ["envelope", "show", HOSTILE],
        [f"--{HOSTILE}"],
        [HOSTILE],
    ],
    ids=["option", "file", "argument", "unknown option", "unknown command"],
)
def test_a_wrong_command_line_is_shown_without_what_a_terminal_obeys(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments, color=True)

    assert result.exit_code == 2
    assert r"\x1b[2J\u202e\x9b" in result.output
    assert all(map(str.isprintable, result.output.splitlines()))


def test_a_text_of_several_lines_keeps_its_lines_and_nothing_that_a_terminal_obeys() -> None:
    assert printable_lines(f"one\n\ttwo {HOSTILE}\n") == "one\n\ttwo \\x1b[2J\\u202e\\x9b\n"
