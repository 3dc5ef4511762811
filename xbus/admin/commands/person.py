"""``xbus person`` adds people, says what they may do, and makes tokens for their programs."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from xbus.admin.address import new_password, new_password_options
from xbus.admin.arguments import PERSON, RIGHT, Until
from xbus.admin.objects import of_person, of_person_token
from xbus.admin.output import Output, counted, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal import people
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.people import Right, write_rights
from xbus.clock import SystemClock
from xbus.passwords import Passwords, check_new

name_argument = click.argument("name", type=PERSON)
rights_argument = click.argument("rights", nargs=-1, type=RIGHT, metavar="[RIGHT]...")


@click.group(cls=CommandGroup)
def person() -> None:
    """Add people, say what they may do, and keep them out.

    \b
    Rights:
      manager     everything but what bots run: the configuration, people, the work of all others
      programmer  say which function or command a bot runs; no other right includes it
      operator    repairs: resume, drop, correct, cancel, pause, track
      uploader    upload files
      clearer     answer the questions of data clearing
      viewer      see everything, and change nothing; everybody has this right
    """


@person.command()
@config_option
@name_argument
@rights_argument
@new_password_options
@click.option("--no-password", is_flag=True, help="Add somebody who can't log in until a password is set.")
def add(
    config_path: Path | None,
    name: str,
    rights: Sequence[Right],
    from_stdin: bool,
    file: Path | None,
    no_password: bool,
) -> None:
    """Add a person with the given rights; without any the person may view.

    The command asks for the password, unless an option names its source.
    """
    url = database_url(config_path)
    if no_password and (from_stdin or file is not None):
        raise click.UsageError("--no-password excludes --stdin and --file")
    password_hash = None if no_password else _hashed(name, from_stdin, file)
    with writing(url) as connection:
        added = people.add_person(connection, name, rights, password_hash, SystemClock().now())
    click.echo(f"Person {name} is added: {write_rights(added.rights)}.")


@person.command("list")
@config_option
@output_option("person")
def list_(config_path: Path | None, output: Output) -> None:
    """Show all people, their rights, and when they were last seen."""
    with reading(database_url(config_path)) as connection:
        found = people.list_persons(connection)
        sessions = people.count_sessions_of(connection, output.now)
    rows = [
        {
            name_column("NAME"): each.name,
            "RIGHTS": write_rights(each.rights),
            "SESSIONS": sessions.get(each.id, 0),
            "SEEN": output.when(each.last_seen_at),
            "ADDED": output.when(each.created_at),
            "DISABLED": output.when(each.disabled_at),
        }
        for each in found
    ]
    objects = (of_person(each, sessions.get(each.id, 0)) for each in found)
    output.listing(objects, rows, "Nobody is there: xbus person add NAME manager")


@person.command("rights")
@config_option
@name_argument
@click.argument("rights", nargs=-1, required=True, type=RIGHT, metavar="RIGHT...")
def set_rights(config_path: Path | None, name: str, rights: Sequence[Right]) -> None:
    """Give a person these rights, and take all others, at once."""
    with writing(database_url(config_path)) as connection:
        people.set_rights(connection, name, rights, SystemClock().now())
    click.echo(f"Person {name} has the rights: {write_rights(rights)}.")


@person.command("password")
@config_option
@name_argument
@new_password_options
def set_password(config_path: Path | None, name: str, from_stdin: bool, file: Path | None) -> None:
    """Set the password of a person, and end all sessions.

    The command asks for it, unless an option names its source. Tokens stay.
    """
    url = database_url(config_path)
    password_hash = _hashed(name, from_stdin, file)
    with writing(url) as connection:
        people.set_password(connection, name, password_hash, SystemClock().now())
    click.echo(f"The password of person {name} is set.")


@person.command()
@config_option
@name_argument
def disable(config_path: Path | None, name: str) -> None:
    """Let a person do nothing any more, at once: all sessions end, and all tokens are removed.

    The person stays, as the audit names it.
    """
    with writing(database_url(config_path)) as connection:
        people.disable_person(connection, name, SystemClock().now())
    click.echo(f"Person {name} is disabled.")


@person.command()
@config_option
@name_argument
def enable(config_path: Path | None, name: str) -> None:
    """Let a disabled person work again, with the password and the rights of before."""
    with writing(database_url(config_path)) as connection:
        people.enable_person(connection, name, SystemClock().now())
    click.echo(f"Person {name} is enabled.")


@person.command()
@config_option
@name_argument
def logout(config_path: Path | None, name: str) -> None:
    """End all sessions of a person, who may log in again. Tokens stay."""
    with writing(database_url(config_path)) as connection:
        found = people.known_person(connection, name)
        ended = people.end_sessions(connection, found.id, SystemClock().now())
    click.echo(f"{counted(ended, 'session')} of person {name} ended.")


def _hashed(name: str, from_stdin: bool, file: Path | None) -> str:
    password = new_password(name, from_stdin, file)
    check_new(password)
    return Passwords().hash_password(password)


token_argument = click.argument("token")


@person.group(cls=CommandGroup)
def token() -> None:
    """Make tokens by which programs act for a person."""


@token.command("add")
@config_option
@name_argument
@token_argument
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=RIGHT,
    help="Let it do this, as far as the person may; may be repeated. Without any it may view.",
)
@click.option("--until", type=Until(), metavar="WHEN", help="Let it end then: 90d from now, or a moment.")
def add_token(config_path: Path | None, name: str, token: str, rights: Sequence[Right], until: datetime | None) -> None:
    """Make a token for a person, and print it. Nobody can read it again.

    TOKEN is its name, by which you tell it from the person's others.
    """
    with writing(database_url(config_path)) as connection:
        whose = people.known_person(connection, name)
        made = people.add_token(connection, whose.id, token, rights, until, SystemClock().now())
    click.echo(made)


@token.command("list")
@config_option
@click.argument("name", required=False, type=PERSON)
@output_option("token")
def list_tokens(config_path: Path | None, name: str | None, output: Output) -> None:
    """Show the tokens of a person, or of all people."""
    with reading(database_url(config_path)) as connection:
        whose = people.list_persons(connection) if name is None else [people.known_person(connection, name)]
        found = [(each, token) for each in whose for token in people.list_tokens(connection, each.id)]
    rows = [
        {
            name_column("PERSON"): each.name,
            name_column("TOKEN"): token.name,
            "RIGHTS": write_rights(token.rights),
            "ADDED": output.when(token.created_at),
            "USED": output.when(token.used_at),
            "END IN": output.ahead(token.expires_at),
        }
        for each, token in found
    ]
    output.listing((of_person_token(each, token) for each, token in found), rows, "There is no token.")


@token.command("remove")
@config_option
@name_argument
@token_argument
def remove_token(config_path: Path | None, name: str, token: str) -> None:
    """Remove a token: programs that have it are refused at once."""
    with writing(database_url(config_path)) as connection:
        whose = people.known_person(connection, name)
        people.remove_token(connection, whose.id, token, SystemClock().now())
    click.echo(f"Token {token} of person {name} is removed.")
