"""``xbus journal``: moves a journal, tells what it lost, and says where it belongs after it was restored or copied."""

from collections.abc import Callable, Sequence
from datetime import datetime

import click

from xbus.admin.arguments import REASON
from xbus.admin.objects import fields_of
from xbus.admin.output import Column, Form, Output, moment, name_column, one_json, rows_of
from xbus.admin.program import CommandGroup
from xbus.admin.progress import shown_on_terminal
from xbus.admin.signatures import CommandBus, command, confirm, option, shown
from xbus.broker.journal.database.connection import Connection, writing
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.objects import claiming
from xbus.broker.journal.operations import copies, losses, relocation
from xbus.broker.journal.operations.copies import ForeignRegistration

HEADS = (name_column("ROLE"), Column("LISTENS AT", narrows=20), Column("REGISTERED WHERE THE JOURNAL WAS", narrows=32))

NO_LOSS = "This journal never went back, as far as a broker noticed."

NOTHING = "No recipient that listens has registered at another place: there is nothing to decide."

Decide = Callable[[Connection, str, datetime], Sequence[ForeignRegistration]]


@click.group(cls=CommandGroup)
def journal() -> None:
    """Move the journal, or say whether a restored one is the live one or a copy.

    Run these commands on the machine of the broker and with its configuration file: the place of a journal depends on
    both.
    """


@command(journal)
def show(bus: CommandBus, output: Output = shown()) -> None:
    """Show the journal's place, and recipients that registered elsewhere: the broker does not call them."""
    place, found = bus.read(read_place), bus.read(copies.read_foreign)
    if output.as_json:
        foreign = [{"role": it.role, "uri": it.uri, "journal_place": it.place} for it in found]
        click.echo(one_json({"journal_place": place, "foreign_registrations": foreign}))
        return
    click.echo(f"The journal is at: {place}")
    click.echo("\n".join(_told(found, output)))


@command(journal)
def adopt(bus: CommandBus, reason: str = REASON, yes: bool = option("Adopt without asking.")) -> None:
    """Declare this the live journal, as after a restore: its broker calls the recipients that registered elsewhere.

    Its object stores become its own, too, so that its broker writes and removes there. A store that lies elsewhere than
    before is found by [journal] objects.

    The broker that served them before must not run any more. A broker on this journal notices the change by itself.
    """
    question = "Is the broker that served them before gone for good?"
    found = _decide(bus, copies.adopt, reason, "" if yes else question)
    if found:
        click.echo("Adopted. The broker on this journal calls them.")
    _adopt_objects(bus, bus.url)


@command(journal)
def forget(bus: CommandBus, reason: str = REASON, yes: bool = option("Forget without asking.")) -> None:
    """Declare this a copy beside the original: it forgets recipients that registered elsewhere."""
    found = _decide(bus, copies.forget, reason, "" if yes else "Forget them here?")
    if found:
        click.echo("Forgotten. They serve the original as before.")


@command(journal)
def move(
    bus: CommandBus, to: str = option("The new, empty database, as for sqlalchemy.dburi.", required=True, metavar="URI")
) -> None:
    """Copy the whole journal into another database, SQLite or PostgreSQL, and compare it row by row.

    Stop the broker first. The original stays as it was. Leave a password out of URI, as all users of the machine could
    see it: PGPASSWORD or ~/.pgpass gives it then.
    """
    url = bus.url
    told: list[tuple[str, int]] = []
    with shown_on_terminal(lambda: relocation.steps(url), "Copying") as tell:
        rows = relocation.move(url, to, bus.now(), lambda *table: told.append(table), tell)
    click.echo("\n".join(f"{name}: {number:,}" for name, number in told if number))
    click.echo(f"Moved {sum(rows):,} rows of {len(rows)} tables; each table equals the original.")
    _adopt_objects(bus, to)
    click.echo("Now name the new database in sqlalchemy.dburi, and start the broker. Start none on the old one.")


@command(journal, "losses")
def show_losses(bus: CommandBus, output: Output = shown()) -> None:
    """Show each time that the journal went back, so that data is gone that was acknowledged.

    The envelopes behind the second position are gone, up to the first one and perhaps further. Emitters that keep what
    they sent, or have it in a file, send it again: what arrived is refused or taken once, by its idempotency key.
    """
    found = bus.read(losses.read)
    if output.as_json:
        click.echo(one_json({"losses": [_loss_json(loss) for loss in found]}))
        return
    rows = [
        {
            "NOTICED": moment(loss.at),
            name_column("BROKER"): loss.writer,
            "COMMITS LOST": loss.commits,
            "LOG REACHED": loss.known,
            "LOG ENDED": loss.found,
            "ACKNOWLEDGED": moment(loss.acknowledged_at),
        }
        for loss in found
    ]
    click.echo("\n".join(output.table(rows)) or NO_LOSS)


@command(journal)
def acknowledge(bus: CommandBus, reason: str = REASON) -> None:
    """Acknowledge all losses of the journal: health tells of them no more."""
    with bus.writing() as connection:
        found = losses.acknowledge(connection, reason, bus.now())
    click.echo("\n".join(f"Acknowledged: {loss}." for loss in found) or "No loss was left to acknowledge.")


def _loss_json(loss: losses.Loss) -> dict[str, object]:
    found = fields_of(loss, known="known_position", found="found_position")
    return {**found, "at": moment(loss.at), "acknowledged_at": moment(loss.acknowledged_at)}


def _adopt_objects(bus: CommandBus, url: str) -> None:
    with writing(url) as connection:
        adopted = claiming.adopt(connection, bus.config.journal.objects)
    for each in adopted:
        click.echo(f"The objects in {each} belong to this journal now.")


def _decide(bus: CommandBus, decide: Decide, reason: str, question: str) -> Sequence[ForeignRegistration]:
    found = bus.read(copies.read_foreign)
    click.echo("\n".join(_told(found, Output.of(Form.USUAL))))
    if not found:
        return found
    if question:
        confirm(question)
    with bus.writing() as connection:
        return decide(connection, reason, bus.now())


def _told(found: Sequence[ForeignRegistration], output: Output) -> list[str]:
    return [*output.table(rows_of(HEADS, [(it.role, it.uri, it.place) for it in found]))] if found else [NOTHING]
