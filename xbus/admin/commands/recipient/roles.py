"""``xbus recipient list``, ``detach`` and ``attach``: how the roles are, and which of them are on the bus."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from shlex import quote

import click

from xbus.admin.names import ROLE
from xbus.admin.objects import of_role, progress_of
from xbus.admin.output import STATE, Output, age, counted, name_column
from xbus.admin.program import config_option, confirm, database_url, output_option, reason_option
from xbus.admin.repair.outlook import told
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.configuration import detaching
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.writes import PresenceWork
from xbus.clock import SystemClock
from xbus.config import load

HEADS = (
    name_column("ROLE"),
    name_column("SERVICE"),
    "KIND",
    STATE,
    "SEEN",
    "LAG",
    "OLDEST",
    "PARKED",
    Column("WORKS ON", narrows=12, optional=True),
    Column("ALARM", optional=True),
    Column("PAUSE", optional=True, wide_only=True),
)


@click.command("list")
@config_option
@watch_option
@output_option("role")
def list_(config_path: Path | None, output: Output) -> None:
    """Show each role: its state, its current work, and how far it lags behind.

    A role that several programs may serve has a line for each of them below its own, with the address of the program.

    LAG counts the envelopes that the role lacks and that arrive by themselves: their turn is to come, or they wait, are
    held or retried. OLDEST is the age of the oldest of them. PARKED counts those that wait for a person. SEEN is the
    age of the last sign of life. The broker writes changes down every two seconds, and signs of life every ten.
    """
    with reading(database_url(config_path)) as connection:
        found = list_roles(connection)
    owed_days = load(config_path).journal.owed_days
    now = SystemClock().now()
    rows = [row for role in found for row in _rows(role, owed_days, now, output)]
    output.listing((of_role(role, _alarm(role, owed_days, now), now) for role in found), HEADS, rows, "No roles.")


@click.command()
@config_option
@click.argument("login", type=ROLE)
@reason_option
@click.option("--yes", is_flag=True, help="Detach without asking.")
def detach(config_path: Path | None, login: str, reason: str, yes: bool) -> None:
    """Take the absent consumer role LOGIN off the bus, which keeps nothing for it any more.

    It never gets the envelopes that it lacks, unless somebody sends them again. You can only detach a role that no
    recipient serves.
    """
    url = database_url(config_path)
    with reading(url) as connection:
        outlook = detaching.outlook(connection, login)
    click.echo("\n".join(told(outlook)))
    if not yes:
        confirm(f"Detach {login}?")
    with writing(url) as connection:
        detaching.detach(connection, login, reason, SystemClock().now())
    click.echo(f"{login} is detached. It can't register until: xbus recipient attach {quote(login)}")


@click.command()
@config_option
@click.argument("login", type=ROLE)
def attach(config_path: Path | None, login: str) -> None:
    """Put the detached consumer role LOGIN on the bus again: it gets envelopes received from now on."""
    with writing(database_url(config_path)) as connection:
        position = detaching.attach(connection, login, SystemClock().now())
    click.echo(f"{login} is attached: it gets all from position {position} on.")


def _rows(role: RoleStatus, owed_days: float, now: datetime, output: Output) -> Iterator[tuple[object, ...]]:
    """Give the line of a role, and those of its programs where it may have several."""
    yield _row(role, owed_days, now, output)
    for each in role.instances:
        work = ", ".join(_work(work, output) for work in each["work"] or ()) or None
        seen = output.when(datetime.fromisoformat(each["seen_at"]), now)
        yield (f"- {each['uri']}", None, None, each["state"], seen, None, None, None, work, None, None)


def _row(role: RoleStatus, owed_days: float, now: datetime, output: Output) -> tuple[object, ...]:
    return (
        role.role,
        role.service,
        role.kind,
        role.state,
        output.when(role.seen_at, now),
        role.lag,
        age(role.owed_since, now),
        _parked(role) if role.kind == "consumer" else None,
        ", ".join(_work(work, output) for work in role.work) or None,
        "owed too long" if _alarm(role, owed_days, now) else None,
        None if role.pause is None else role.pause.told,
    )


def _alarm(role: RoleStatus, owed_days: float, now: datetime) -> str | None:
    return "owed_too_long" if role.owes_too_long(owed_days, now) else None


def _parked(role: RoleStatus) -> int | str:
    """Word the counts: ``1``, or ``1, 2 items`` if some are parked alone."""
    return f"{role.parked:,}, {counted(role.parked_items)}" if role.parked_items else role.parked


def _work(work: PresenceWork, output: Output) -> str:
    """Word the work: ``12: 40 %``, with the position and the progress; the call where that is unknown, or room is."""
    part, done = progress_of(work), work.get("done")
    progress = f"{int(100 * part)} %" if part is not None else f"{done:,} done" if done else ""
    words = [work["verb"]] if output.is_wide or not progress else []
    return f"{work.get('position') or work['envelope_id']}: {' '.join([*words, progress])}".rstrip()
