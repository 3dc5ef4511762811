"""``xbus session``: shows who is logged in, and ends sessions."""

from pathlib import Path

import click

from xbus.admin.names import OF_KIND
from xbus.admin.objects import of_sessions
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal.configuration import end_login
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.sessions import LoginKind, count_sessions
from xbus.clock import SystemClock

HEADS = ("KIND", name_column("LOGIN"), "SESSIONS", "END IN")


@click.group(cls=CommandGroup)
def session() -> None:
    """Show who is logged in, and end sessions."""


@session.command("list")
@config_option
@output_option("login")
def list_(config_path: Path | None, output: Output) -> None:
    """Show each login that has sessions, how many, and when the last of them ends.

    The end of a session moves on while it is used.
    """
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        found = count_sessions(connection, now)
    rows = [(each.kind, each.login, each.sessions, output.ahead(each.expires_at, now)) for each in found]
    output.listing(map(of_sessions, found), HEADS, rows, "Nobody is logged in.")


@session.command()
@config_option
@click.argument("kind", type=click.Choice(["emitter", "role"]))
@click.argument("login", type=OF_KIND)
def end(config_path: Path | None, kind: LoginKind, login: str) -> None:
    """End all sessions of an emitter or a role.

    Within 2 seconds the broker takes no call by them. A program that knows the password may log in again: to keep it
    out, set another password.
    """
    with writing(database_url(config_path)) as connection:
        ended = end_login(connection, kind, login, SystemClock().now())
    click.echo(f"{ended} {'session' if ended == 1 else 'sessions'} of {kind} {login} ended.")
