"""``xbus import-legacy``."""

from shlex import quote

import click

from xbus.admin.output import on_one_line
from xbus.admin.signatures import CommandBus, argument, command, option
from xbus.broker.journal.configuration import logins_without_password
from xbus.broker.journal.legacy_import import ImportPlan, carry_out, plan_import, read_legacy, read_present, translate
from xbus.broker.journal.log.catalog import read_version
from xbus.ending import REFUSED


@command()
def import_legacy(
    bus: CommandBus,
    dry_run: bool = option("Only show the changes."),
    address: tuple[str, ...] = argument(metavar="DSN", required=True),
) -> None:
    """Import the configuration of an xbus.broker 0.2.0 from its PostgreSQL database.

    DSN is postgresql://user:password@host/name or host=... dbname=... user=... If it has no password, the
    command takes the one of PGPASSWORD or ~/.pgpass.

    The command only reads the old database. You may repeat the import: it removes nothing here, and logins that
    were used here already keep their password. The exit code is 1 if the import lacks something that matters.
    """
    # Several words are one address, and no surplus of the command line, which would be shown with the password in it.
    wished = translate(read_legacy(" ".join(address)))
    plan = bus.read(lambda connection: plan_import(read_present(connection), wished))
    _tell(plan)
    if dry_run:
        click.echo("Nothing was changed: this was a dry run.")
    elif plan.changes:
        _carry_out(bus, plan)
    if any(remark.is_loss for remark in plan.remarks):
        click.echo("xbus: not all could be taken over: correct the problems above, then import again", err=True)
        click.get_current_context().exit(REFUSED)


def _tell(plan: ImportPlan) -> None:
    for change in plan.changes:
        click.echo(on_one_line(change))
    for remark in plan.remarks:
        click.echo(on_one_line(f"{'NOT TAKEN' if remark.is_loss else 'note'}: {remark}"), err=remark.is_loss)
    if not plan.changes:
        click.echo("Nothing to change: all that can be taken over is there.")


def _carry_out(bus: CommandBus, plan: ImportPlan) -> None:
    with bus.writing() as connection:
        carry_out(connection, plan, bus.now())
        version = read_version(connection)
        missing = [*logins_without_password(connection)]
    click.echo(f"Imported: the configuration is at version {version}.")
    for kind, login in missing:
        click.echo(f"{kind} {login} can't log in yet: xbus password {kind} {quote(login)}")
