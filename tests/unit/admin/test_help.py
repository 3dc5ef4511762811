"""Help texts of ``xbus``: whole sentences, and words that people know."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from xbus.admin.cli import main

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
