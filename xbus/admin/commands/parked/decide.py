"""``xbus parked resume`` and ``drop``."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from xbus.admin.names import ROLE, SERVICE, TYPE
from xbus.admin.program import Command, EnvelopeId, config_option, confirm, database_url, reason_option
from xbus.admin.repair.bulk import resume_all
from xbus.admin.repair.moves import decision_of
from xbus.admin.repair.moves import drop as drop_parked
from xbus.admin.repair.moves import resume as resume_parked
from xbus.admin.repair.places import find_meant
from xbus.admin.repair.sentences import parts_of, resumed_sentences
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.parked_list import Filters, list_parked
from xbus.clock import SystemClock
from xbus.ending import REFUSED
from xbus.ids import Ids

envelope_argument = click.argument("envelope_id", type=EnvelopeId(), metavar="ENVELOPE")
event_option = click.option("--event", metavar="NUMBER|ID", help="The event, if the envelope has several.")
item_option = click.option(
    "--item", type=click.IntRange(0), metavar="INDEX", help="Only this item, counted from 0, that is parked alone."
)


def role_option(explained: str) -> Callable[[Command], Command]:
    """Add ``--role``."""
    return click.option("--role", type=ROLE, metavar="LOGIN", help=explained)


@click.command()
@config_option
@click.argument("envelope_ids", nargs=-1, type=EnvelopeId(), metavar="[ENVELOPE]...")
@role_option("Only for this role.")
@event_option
@item_option
@click.option("--all", "all_", is_flag=True, help="Everything that is parked and matches the options; asks first.")
@click.option("--code", metavar="CODE", help="With --all: only envelopes and items parked with this code.")
@click.option(
    "--type", "event_type", type=TYPE, metavar="NAME", help="With --all: only envelopes with events of this type."
)
@click.option("--service", type=SERVICE, metavar="NAME", help="With --all: only for roles of this service.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it is kept.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def resume(
    config_path: Path | None,
    envelope_ids: tuple[str, ...],
    role: str | None,
    event: str | None,
    item: int | None,
    all_: bool,
    code: str | None,
    event_type: str | None,
    service: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Deliver parked envelopes or items again, and count their attempts anew.

    The bus redelivers items that are parked alone as an envelope of their own. It resumes all named envelopes or none.
    """
    if bool(envelope_ids) == all_:
        raise click.UsageError("name envelopes, or give --all")
    if not all_ and (code, event_type, service) != (None, None, None):
        raise click.UsageError("--code, --type and --service go with --all")
    if item is not None and len(envelope_ids) != 1:
        raise click.UsageError("--item is one of one envelope")
    _check_event(event, item)
    url = database_url(config_path)
    decision = decision_of(SystemClock(), reason)
    if all_:
        filters = Filters(role=role, service=service, event_type=event_type, code=code)
        _resume_all(url, filters, decision, yes)
        return
    ids = Ids(SystemClock())
    with writing(url) as connection:
        resumed = []
        for envelope_id in dict.fromkeys(resolve_envelope(connection, each) for each in envelope_ids):
            past, found = find_meant(connection, envelope_id, role, event, item)
            resumed += [resume_parked(connection, past, parked, decision, ids) for parked in found]
    for each in resumed:
        click.echo("\n".join(resumed_sentences(each)))


def _resume_all(url: str, filters: Filters, decision: RepairDecision, yes: bool) -> None:
    with reading(url) as connection:
        newest = list_parked(connection, filters, 1)
    if not newest:
        click.echo("Nothing parked matches the options.")
        return
    if not yes:
        confirm("Resume everything parked that matches the options?")
    # What is parked again from now on is not resumed once more.
    filters = replace(filters, until=newest[0].since)
    done = resume_all(url, filters, decision, Ids(SystemClock()))
    click.echo(f"Resumed: envelopes: {done.envelopes:,}, items that were parked alone: {done.items:,}.")
    for refusal in done.refusals:
        click.echo(f"xbus: {refusal}", err=True)
    if done.refusals:
        click.get_current_context().exit(REFUSED)


@click.command()
@config_option
@click.argument("envelope_ids", nargs=-1, required=True, type=EnvelopeId(), metavar="ENVELOPE...")
@role_option("Only for this role.")
@event_option
@item_option
@reason_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def drop(
    config_path: Path | None,
    envelope_ids: tuple[str, ...],
    role: str | None,
    event: str | None,
    item: int | None,
    reason: str,
    yes: bool,
) -> None:
    """Drop everything parked of envelopes for good: their roles go without it. It drops all named ones or none."""
    if item is not None and len(envelope_ids) != 1:
        raise click.UsageError("--item is one of one envelope")
    _check_event(event, item)
    url = database_url(config_path)
    with reading(url) as connection:
        named = dict.fromkeys(resolve_envelope(connection, each) for each in envelope_ids)
        found = [parked for each in named for parked in find_meant(connection, each, role, event, item)[1]]
    for parked in found:
        click.echo(f"{parked.role} goes without {parts_of(parked)}")
    if not yes:
        confirm("Drop that for good?")
    decision = decision_of(SystemClock(), reason)
    with writing(url) as connection:
        # As it was shown: parts that were parked since then stay.
        for parked in found:
            drop_parked(connection, parked, decision)
    click.echo("Dropped.")


def _check_event(event: str | None, item: int | None) -> None:
    if event is not None and item is None:
        raise click.UsageError("--event goes with --item: an envelope is resumed or dropped as a whole")
