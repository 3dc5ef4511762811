"""``xbus person token``: makes tokens by which programs act for a person."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from xbus.admin.commands.person.objects import of_person_token
from xbus.admin.moments import Until
from xbus.admin.names import PERSON, RIGHT
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal import people
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.people import Right, write_rights
from xbus.clock import SystemClock

HEADS = (name_column("PERSON"), name_column("TOKEN"), "RIGHTS", "ADDED", "USED", "END IN")

person_argument = click.argument("name", type=PERSON)
token_argument = click.argument("token")


@click.group(cls=CommandGroup)
def token() -> None:
    """Make tokens by which programs act for a person."""


@token.command()
@config_option
@person_argument
@token_argument
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=RIGHT,
    help="Let it do this, as far as the person may; may be repeated. Without any it may view.",
)
@click.option("--until", type=Until(), metavar="WHEN", help="Let it end then: 90d from now, or a moment.")
def add(config_path: Path | None, name: str, token: str, rights: Sequence[Right], until: datetime | None) -> None:
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
def list_(config_path: Path | None, name: str | None, output: Output) -> None:
    """Show the tokens of a person, or of all people."""
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        whose = people.list_persons(connection) if name is None else [people.known_person(connection, name)]
        found = [(each, token) for each in whose for token in people.list_tokens(connection, each.id)]
    rows = [
        (
            *(each.name, token.name, write_rights(token.rights)),
            *(output.when(at, now) for at in (token.created_at, token.used_at)),
            output.ahead(token.expires_at, now),
        )
        for each, token in found
    ]
    output.listing((of_person_token(each, token) for each, token in found), HEADS, rows, "There is no token.")


@token.command()
@config_option
@person_argument
@token_argument
def remove(config_path: Path | None, name: str, token: str) -> None:
    """Remove a token: programs that have it are refused at once."""
    with writing(database_url(config_path)) as connection:
        whose = people.known_person(connection, name)
        people.remove_token(connection, whose.id, token, SystemClock().now())
    click.echo(f"Token {token} of person {name} is removed.")
