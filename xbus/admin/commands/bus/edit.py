"""``xbus edit``: the bus file in an editor, and what was changed there in the bus."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from xbus.admin import bus_file
from xbus.admin.applying import (
    Problems,
    apply_change,
    decide_about_owed,
    plan_change,
    tell_change,
)
from xbus.admin.bus_file.change import Decisions, PlannedChange
from xbus.admin.program import config_option, confirm, database_url
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.database.connection import reading
from xbus.errors import ConfigurationError, XbusError


@click.command()
@config_option
def edit(config_path: Path | None) -> None:
    """Open the bus in your editor, show what you changed, and apply it after a yes.

    The variable VISUAL or EDITOR names the editor. An entry that you delete is removed from the bus. If your text
    is not applied, a file keeps it.
    """
    url = database_url(config_path)
    with reading(url) as connection:
        stored = read_stored(connection)
    # A deleted entry is meant to go: the editor showed all of them.
    decisions = Decisions(prune=True)
    with _draft(bus_file.write(stored.in_use)) as draft:
        change = _edited(url, draft, decisions)
        if change.plan.version != stored.version:
            raise ConfigurationError(
                "somebody else has changed the bus meanwhile, nothing was changed",
                "run xbus edit again, and take over what you wrote",
                code="changed_meanwhile",
            )
        if not change.plan.changes:
            click.echo("Nothing was changed.")
            return
        tell_change(change)
        decisions = decide_about_owed(change, decisions)
        confirm("Apply this?")
        apply_change(url, change, decisions)


@contextmanager
def _draft(before: str) -> Iterator[Path]:
    """Give a file to edit; it stays, and is named, where the edited text is not applied."""
    descriptor, name = tempfile.mkstemp(prefix="xbus-edit-", suffix=".toml")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(before)
        yield draft
    except BaseException:
        if draft.exists() and draft.read_text(encoding="utf-8", errors="replace") != before:
            click.echo(f"Your text is in {draft}", err=True)
        else:
            draft.unlink(missing_ok=True)
        raise
    draft.unlink()


def _edited(url: str, draft: Path, decisions: Decisions) -> PlannedChange:
    """Let a person edit the file until it can be applied.

    Raises:
        Problems: it can't, and the person gives up.
        XbusError: the file is gone.
    """
    while True:
        click.edit(filename=str(draft))
        try:
            return plan_change(url, str(draft), _content(draft), decisions)
        except Problems as problems:
            click.echo("\n".join(problems.told), err=True)
            if not click.confirm("Edit it again?", default=True):
                raise


def _content(draft: Path) -> bytes:
    try:
        return draft.read_bytes()
    except OSError as error:
        cause = f"the editor left no text in {draft} ({error.strerror})"
        raise XbusError(cause, "run xbus edit again, and save the file at its place", code="unreadable_file") from error
