"""``xbus parked batch``: batches that a subscriber did not take, or whose items are damaged."""

from pathlib import Path

import click

from xbus.admin.names import READER, SUBSCRIPTION
from xbus.admin.objects import of_parked_batch
from xbus.admin.output import CAUSE, Output, facts, name_column, one_json
from xbus.admin.program import (
    CommandGroup,
    config_option,
    confirm,
    database_url,
    json_option,
    limit_option,
    output_option,
    reason_option,
)
from xbus.admin.repair.moves import decision_of
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.readers.parked import (
    drop_batch,
    find_parked_batch,
    list_parked_batches,
    read_parked_events,
    resume_batch,
)
from xbus.clock import SystemClock

HEADS = ("SINCE", name_column("READER"), Column("ATTEMPTS", wide_only=True), name_column("CODE"), CAUSE, "BATCH")

SHORT_ID = 12
"""Characters of an id in a list, its prefix with them: enough digits that two of them rarely begin alike."""

batches_argument = click.argument("batches", nargs=-1, required=True, metavar="BATCH...")


@click.group(cls=CommandGroup)
def batch() -> None:
    """Show and repair batches that a subscriber did not take, and those with damaged items: resume, drop.

    BATCH is the id, which a subscriber has seen as webhook-id, or as many characters of it as only one batch has.
    """


@batch.command("list")
@config_option
@click.option("--subscription", type=SUBSCRIPTION, metavar="NAME", help="Only those of this subscription.")
@click.option("--reader", type=READER, metavar="NAME", help="Only those of this reader.")
@limit_option
@watch_option
@output_option("batch")
def list_(config_path: Path | None, subscription: str | None, reader: str | None, limit: int, output: Output) -> None:
    """Show parked batches, the newest first."""
    now = SystemClock().now()
    with reading(database_url(config_path)) as connection:
        found = list_parked_batches(connection, subscription, limit, reader=reader)
    if output.as_json:
        output.objects(map(of_parked_batch, found))
        return
    rows = [
        (
            output.when(each.since, now),
            each.whose,
            each.attempts,
            each.code,
            each.cause,
            each.id if output.is_wide else each.id[:SHORT_ID],
        )
        for each in found
    ]
    click.echo("\n".join(output.table(HEADS, rows)) if rows else "No batch is parked.")
    if len(found) == limit:
        click.echo("There may be more: give a larger --limit, or narrow the list")


@batch.command()
@config_option
@click.argument("batch")
@json_option()
def show(config_path: Path | None, batch: str, as_json: bool) -> None:
    """Show a parked batch: why it is parked, and the envelopes in it."""
    with reading(database_url(config_path)) as connection:
        found = find_parked_batch(connection, batch)
        events = read_parked_events(connection, found)
    if as_json:
        click.echo(one_json({**of_parked_batch(found), "envelope_ids": [event.envelope_id for event in events]}))
        return
    told = {
        "batch": found.id,
        "subscription": found.subscription,
        "reader": found.reader if found.subscription is None else None,
        "parked since": found.since,
        "attempts": found.attempts,
        "error": f"[{found.code}] {found.cause}",
        "places": f"{found.range.batch_begin} to {found.range.batch_end}",
    }
    lines = [*facts(told), *(f"event of {event.type_name} in envelope {event.envelope_id}" for event in events)]
    click.echo("\n".join(lines))


@batch.command()
@config_option
@batches_argument
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept.")
def resume(config_path: Path | None, batches: tuple[str, ...], reason: str) -> None:
    """Have parked batches handed out again, and count their attempts anew. It resumes all named ones or none."""
    with writing(database_url(config_path)) as connection:
        found = [find_parked_batch(connection, each) for each in dict.fromkeys(batches)]
        for each in found:
            resume_batch(connection, each, decision_of(SystemClock(), reason))
    for each in found:
        click.echo(f"{each.whose} gets {each.id} again.")


@batch.command()
@config_option
@batches_argument
@reason_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def drop(config_path: Path | None, batches: tuple[str, ...], reason: str, yes: bool) -> None:
    """Drop parked batches for good: their readers go without them. It drops all named ones or none."""
    with reading(database_url(config_path)) as connection:
        found = [find_parked_batch(connection, each) for each in dict.fromkeys(batches)]
    for each in found:
        click.echo(f"{each.whose} goes without {each.id}")
    if not yes:
        confirm("Drop that for good?")
    with writing(database_url(config_path)) as connection:
        for each in found:
            drop_batch(connection, each, decision_of(SystemClock(), reason))
    click.echo("Dropped.")
