"""``xbus password``, ``xbus session`` and ``xbus token``: the ways in which programs log in."""

from pathlib import Path
from typing import Literal, TextIO

import click

from xbus.admin.address import new_password, new_password_options
from xbus.admin.arguments import EMITTER, OF_KIND, ROLE
from xbus.admin.objects import of_api_token, of_sessions
from xbus.admin.output import Output, name_column, rows_of
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal.api_tokens import add_api_token, list_api_tokens, revoke_api_token
from xbus.broker.journal.configuration import end_login, set_password
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.sessions import LoginKind, count_sessions
from xbus.clock import SystemClock
from xbus.passwords import Passwords


@click.command()
@config_option
@click.argument("kind", type=click.Choice(["emitter", "role"]))
@click.argument("login", type=OF_KIND)
@new_password_options
@click.option("--keep-sessions", is_flag=True, help="Let those who are logged in go on.")
def password(
    config_path: Path | None,
    kind: Literal["emitter", "role"],
    login: str,
    from_stdin: bool,
    file: Path | None,
    keep_sessions: bool,
) -> None:
    """Set the password of an emitter or a role.

    The command asks for it, unless an option names its source. Within 2 seconds the broker ends all sessions of the
    login: its programs must log in with the new password.
    """
    url = database_url(config_path)
    password_hash = Passwords().hash_password(new_password(login, from_stdin, file))
    with writing(url) as connection:
        set_password(connection, kind, login, password_hash, SystemClock().now(), keep_sessions=keep_sessions)
    click.echo(f"The password of {kind} {login} is set.")


@click.group(cls=CommandGroup)
def session() -> None:
    """Show who is logged in, and end sessions."""


@session.command("list")
@config_option
@output_option("login")
def list_sessions(config_path: Path | None, output: Output) -> None:
    """Show each login that has sessions, how many, and when the last of them ends.

    The end of a session moves on while it is used.
    """
    with reading(database_url(config_path)) as connection:
        found = count_sessions(connection, output.now)
    heads = ("KIND", name_column("LOGIN"), "SESSIONS", "END IN")
    rows = rows_of(heads, ((each.kind, each.login, each.sessions, output.ahead(each.expires_at)) for each in found))
    output.listing(map(of_sessions, found), rows, "Nobody is logged in.")


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


@click.group(cls=CommandGroup)
def token() -> None:
    """Make API tokens for programs that call by HTTP."""


@token.command()
@config_option
@click.argument("name")
@click.option("--emitter", type=EMITTER, metavar="LOGIN", help="Let programs send as this emitter.")
@click.option("--role", type=ROLE, metavar="LOGIN", help="Let programs receive as this role.")
@click.option("--existing", type=click.File(), metavar="FILE", help="Take the token in this file; - is standard input.")
def new(config_path: Path | None, name: str, emitter: str | None, role: str | None, existing: TextIO | None) -> None:
    """Make an API token, and print it. Nobody can read it again.

    NAME is what you call it. The broker takes calls by it within 2 seconds. It has no end: revoke it when it leaks.
    """
    chosen = None if existing is None else existing.read().strip()
    with writing(database_url(config_path)) as connection:
        made = add_api_token(connection, name, emitter=emitter, role=role, chosen=chosen, at=SystemClock().now())
    click.echo(made)


@token.command("list")
@config_option
@output_option("token")
def list_tokens(config_path: Path | None, output: Output) -> None:
    """Show the API tokens, and when each was last used."""
    with reading(database_url(config_path)) as connection:
        found = list_api_tokens(connection)
    rows = [
        {
            name_column("TOKEN"): each.name,
            name_column("EMITTER"): each.emitter or "",
            name_column("ROLE"): each.role or "",
            "ADDED": output.when(each.created_at),
            "USED": output.when(each.used_at),
        }
        for each in found
    ]
    output.listing(map(of_api_token, found), rows, "There is no API token.")


@token.command()
@config_option
@click.argument("name")
def revoke(config_path: Path | None, name: str) -> None:
    """Revoke an API token: within 2 seconds the broker takes no call by it."""
    with writing(database_url(config_path)) as connection:
        revoke_api_token(connection, name, SystemClock().now())
    click.echo(f"API token {name} is revoked.")
