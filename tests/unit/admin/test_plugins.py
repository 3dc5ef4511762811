"""Commands that other packages bring."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from xbus.admin import program as frame
from xbus.admin.program import Program

MODULE = """\
import click

@click.command()
@click.option("--name")
def greet(name):
    "Say hello."
    click.echo(f"Hello, {name}.")

no_command = 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """With a command of another package, one whose module lacks another, and one that is none."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "greeting_plugin.py").write_text(MODULE)
    (tmp_path / "lacking_plugin.py").write_text("import nothing_of_that_name")
    entries = [
        EntryPoint("greet", "greeting_plugin:greet", frame.GROUP),
        EntryPoint("lacking", "lacking_plugin:command [extra]", frame.GROUP),
        EntryPoint("odd", "greeting_plugin:no_command", frame.GROUP),
    ]
    monkeypatch.setattr(frame, "entry_points", lambda group: entries)
    return Program()


def test_a_command_of_another_package(program: Program) -> None:
    result = CliRunner().invoke(program, ["greet", "--name", "Ada"])
    assert (result.exit_code, result.output) == (0, "Hello, Ada.\n")


@pytest.mark.parametrize("arguments", [[], ["--before", "90d", "ID"], ["--help"]])
def test_one_that_lacks_something_says_what(program: Program, arguments: list[str]) -> None:
    result = CliRunner().invoke(program, ["lacking", *arguments])
    assert result.exit_code == 1
    assert result.stderr == (
        "xbus: xbus lacking needs nothing_of_that_name, which is not installed: pip install 'xbusd[extra]' "
        "[bad_configuration]\n"
    )


def test_the_help_tells_all(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: entry for name, entry in frame.plugins_found().items() if name != "odd"}
    monkeypatch.setattr(frame, "plugins_found", lambda: known)
    result = CliRunner().invoke(program, ["--help"])
    assert "Say hello." in result.output
    assert "Not installed: pip install 'xbusd[extra]'" in result.output


def test_what_is_no_command_is_told(program: Program) -> None:
    result = CliRunner().invoke(program, ["odd"])
    assert (result.exit_code, "is no command of click" in result.stderr) == (1, True)


def test_nothing_is_imported_before_it_is_asked_for(program: Program) -> None:
    sys.modules.pop("greeting_plugin", None)
    assert "greet" in frame.plugins_found()
    assert "greeting_plugin" not in sys.modules
