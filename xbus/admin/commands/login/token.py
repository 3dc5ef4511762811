"""``xbus token``: makes API tokens, by which programs call as an emitter or a role without a login."""

from pathlib import Path
from typing import TextIO

import click

from xbus.admin.names import EMITTER, ROLE
from xbus.admin.objects import of_api_token
from xbus.admin.output import Output, name_column
from xbus.admin.program import CommandGroup, config_option, database_url, output_option
from xbus.broker.journal.api_tokens import add_api_token, list_api_tokens, revoke_api_token
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock

HEADS = (name_column("TOKEN"), name_column("EMITTER"), name_column("ROLE"), "ADDED", "USED")


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
def list_(config_path: Path | None, output: Output) -> None:
    """Show the API tokens, and when each was last used."""
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        found = list_api_tokens(connection)
    rows = [
        (
            each.name,
            each.emitter or "",
            each.role or "",
            output.when(each.created_at, now),
            output.when(each.used_at, now),
        )
        for each in found
    ]
    output.listing(map(of_api_token, found), HEADS, rows, "There is no API token.")


@token.command()
@config_option
@click.argument("name")
def revoke(config_path: Path | None, name: str) -> None:
    """Revoke an API token: within 2 seconds the broker takes no call by it."""
    with writing(database_url(config_path)) as connection:
        revoke_api_token(connection, name, SystemClock().now())
    click.echo(f"API token {name} is revoked.")
