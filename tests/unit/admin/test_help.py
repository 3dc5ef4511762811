"""Help texts of ``xbus``: whole sentences, and words that people know."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from xbus.admin.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"
OLD_WORDS = re.compile(r"\b(exec|canc)\b")
"""States in the words of xbus.broker 0.2.0, which only its calls have."""


def commands(group: click.Group = main, *path: str) -> Iterator[tuple[str, ...]]:
    """Each command and group."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield *path, name


@pytest.mark.parametrize("path", [*commands()], ids=lambda path: " ".join(path) or "xbus")
def test_help_is_in_whole_sentences(path: tuple[str, ...]) -> None:
    told = CliRunner().invoke(main, [*path, "--help"], prog_name="xbus", terminal_width=80).output
    _, _, body = told.partition("\n\n")
    assert body
    assert [line for line in body.splitlines() if line.endswith("...")] == []
    assert not OLD_WORDS.search(body)


def test_the_page_of_commands_lists_each() -> None:
    paths = {*commands()}
    groups = {path[:-1] for path in paths if path}
    listed: set[tuple[str, ...]] = set()
    for cell in re.findall(r"^\| (`xbus .*?`) \|", PAGE.read_text(), re.MULTILINE):
        group: tuple[str, ...] = ()
        for words in re.findall(r"`([^`]+)`", cell):
            path = tuple(words.split()[1:]) if words.startswith("xbus ") else (*group, words) if group else (words,)
            group = path[:-1]
            listed.add(path)
    assert listed == paths - groups - {("completion",)}
