"""``xbus database`` gives a database role the rights that one kind of program needs."""

import click

from xbus.admin.program import CommandGroup
from xbus.admin.signatures import CommandBus, argument, command, option
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.database.grants import GrantPurpose, grant_statements
from xbus.broker.journal.database.grants import grant as give_rights


@click.group(cls=CommandGroup)
def database() -> None:
    """Give programs beside the broker no more of the journal's database than they need."""


@command(database)
def grant(
    bus: CommandBus,
    role: str = argument(metavar="ROLE"),
    purpose: GrantPurpose = option(
        "log-reader: Spark's source reads the log. bulk-worker: a worker and its executors read events, and write "
        "outputs.",
        None,
        "--for",
        required=True,
    ),
    only_print: bool = option("Show the SQL, and change nothing.", None, "--print"),
) -> None:
    """Give the database role ROLE of PostgreSQL the rights for one kind of work, and take all others from it.

    The role sees no password, no session, and nothing of the configuration but names. Make it before: CREATE ROLE.
    """
    if only_print:
        with bus.reading() as connection:
            click.echo("\n".join(f"{each};" for each in grant_statements(connection, role, purpose)))
        return
    with bus.writing() as connection:
        give_rights(connection, role, purpose)
        note_acts(connection, [act_here(bus.now(), "granted", f'database role "{role}"', after=purpose)])
    click.echo(f"The database role {role} may do the work of a {purpose}, and nothing else in the journal.")
