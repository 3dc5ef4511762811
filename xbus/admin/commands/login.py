"""``xbus password``, ``xbus session`` and ``xbus token``: the ways in which programs log in."""

from typing import TextIO

import click

from xbus.admin.address import NEW_PASSWORD, NewPassword
from xbus.admin.arguments import EMITTER, OF_KIND, ROLE
from xbus.admin.objects import of_api_token, of_sessions
from xbus.admin.output import Output, name_column, rows_of
from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.broker.journal.api_tokens import add_api_token, list_api_tokens, revoke_api_token
from xbus.broker.journal.configuration import end_login, set_password
from xbus.broker.journal.log.sessions import LoginKind, count_sessions
from xbus.passwords import Passwords


@command()
def password(
    bus: CommandBus,
    kind: LoginKind = argument(),
    login: str = argument(OF_KIND),
    password: NewPassword = NEW_PASSWORD,
    keep_sessions: bool = option("Let those who are logged in go on."),
) -> None:
    """Set the password of an emitter or a role.

    The command asks for it, unless an option names its source. Within 2 seconds the broker ends all sessions of the
    login: its programs must log in with the new password.
    """
    bus.check()
    password_hash = Passwords().hash_password(password.of(login))
    with bus.writing() as connection:
        set_password(connection, kind, login, password_hash, bus.now(), keep_sessions=keep_sessions)
    click.echo(f"The password of {kind} {login} is set.")


@click.group(cls=CommandGroup)
def session() -> None:
    """Show who is logged in, and end sessions."""


@command(session, "list")
def list_sessions(bus: CommandBus, output: Output = shown("login")) -> None:
    """Show each login that has sessions, how many, and when the last of them ends.

    The end of a session moves on while it is used.
    """
    found = bus.read(lambda connection: count_sessions(connection, output.now))
    heads = ("KIND", name_column("LOGIN"), "SESSIONS", "END IN")
    rows = rows_of(heads, ((each.kind, each.login, each.sessions, output.ahead(each.expires_at)) for each in found))
    output.listing(found, of_sessions, rows, "Nobody is logged in.")


@command(session)
def end(bus: CommandBus, kind: LoginKind = argument(), login: str = argument(OF_KIND)) -> None:
    """End all sessions of an emitter or a role.

    Within 2 seconds the broker takes no call by them. A program that knows the password may log in again: to keep it
    out, set another password.
    """
    with bus.writing() as connection:
        ended = end_login(connection, kind, login, bus.now())
    click.echo(f"{ended} {'session' if ended == 1 else 'sessions'} of {kind} {login} ended.")


@click.group(cls=CommandGroup)
def token() -> None:
    """Make API tokens for programs that call by HTTP."""


@command(token)
def new(
    bus: CommandBus,
    name: str = argument(),
    emitter: str | None = option("Let programs send as this emitter.", EMITTER),
    role: str | None = option("Let programs receive as this role.", ROLE),
    existing: TextIO | None = option("Take the token in this file; - is standard input.", metavar="FILE"),
) -> None:
    """Make an API token, and print it. Nobody can read it again.

    NAME is what you call it. The broker takes calls by it within 2 seconds. It has no end: revoke it when it leaks.
    """
    chosen = None if existing is None else existing.read().strip()
    with bus.writing() as connection:
        made = add_api_token(connection, name, emitter=emitter, role=role, chosen=chosen, at=bus.now())
    click.echo(made)


@command(token, "list")
def list_tokens(bus: CommandBus, output: Output = shown("token")) -> None:
    """Show the API tokens, and when each was last used."""
    found = bus.read(list_api_tokens)
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
    output.listing(found, of_api_token, rows, "There is no API token.")


@command(token)
def revoke(bus: CommandBus, name: str = argument()) -> None:
    """Revoke an API token: within 2 seconds the broker takes no call by it."""
    with bus.writing() as connection:
        revoke_api_token(connection, name, bus.now())
    click.echo(f"API token {name} is revoked.")
