"""``xbus password``."""

from pathlib import Path
from typing import Literal

import click

from xbus.admin.names import OF_KIND
from xbus.admin.program import config_option, database_url
from xbus.admin.secret import new_password, new_password_options
from xbus.broker.journal.configuration import set_password
from xbus.broker.journal.database.connection import writing
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
