"""``xbus database`` gives a database role the rights that one kind of program needs."""

from pathlib import Path

import click

from xbus.admin.program import CommandGroup, config_option, database_url
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.grants import GrantPurpose, grant_statements
from xbus.broker.journal.database.grants import grant as give_rights
from xbus.clock import SystemClock


@click.group(cls=CommandGroup)
def database() -> None:
    """Give programs beside the broker no more of the journal's database than they need."""


@database.command()
@config_option
@click.argument("role", metavar="ROLE")
@click.option(
    "--for",
    "purpose",
    type=click.Choice([purpose.value for purpose in GrantPurpose]),
    required=True,
    help="log-reader: Spark's source reads the log. bulk-worker: a worker and its executors read events, and write "
    "outputs.",
)
@click.option("--print", "only_print", is_flag=True, help="Show the SQL, and change nothing.")
def grant(config_path: Path | None, role: str, purpose: str, only_print: bool) -> None:
    """Give the database role ROLE of PostgreSQL the rights for one kind of work, and take all others from it.

    The role sees no password, no session, and nothing of the configuration but names. Make it before: CREATE ROLE.
    """
    url = database_url(config_path)
    if only_print:
        with reading(url) as connection:
            click.echo("\n".join(f"{each};" for each in grant_statements(connection, role, GrantPurpose(purpose))))
        return
    with writing(url) as connection:
        give_rights(connection, role, GrantPurpose(purpose))
        note_acts(connection, [act_here(SystemClock().now(), "granted", f'database role "{role}"', after=purpose)])
    click.echo(f"The database role {role} may do the work of a {purpose}, and nothing else in the journal.")
