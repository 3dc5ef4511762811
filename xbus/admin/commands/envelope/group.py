"""``xbus envelope list``, and the group with the other commands."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import click

from xbus.admin.commands.envelope.cancel import cancel
from xbus.admin.commands.envelope.items import items
from xbus.admin.commands.envelope.show import show
from xbus.admin.moments import Moment
from xbus.admin.names import EMITTER, ROLE, TYPE
from xbus.admin.objects import of_envelope
from xbus.admin.output import STATE, Output, counted, name_column
from xbus.admin.program import CommandGroup, EnvelopeId, config_option, database_url, limit_option, output_option
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.details import EnvelopeSummary
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope, shorten
from xbus.clock import SystemClock
from xbus.states import EnvelopeState

HEADS = (
    Column("POSITION", to_right=True),
    STATE,
    "ITEMS",
    name_column("EMITTER"),
    "OPENED",
    Column("CONSUMERS", narrows=16, painted=True),
    Column("KEY", wide_only=True, optional=True),
    "ID",
)


@click.group(cls=CommandGroup)
def envelope() -> None:
    """Show envelopes, their states and their items, and cancel open ones."""


for command in (show, items, cancel):
    envelope.add_command(command)


@envelope.command("list")
@config_option
@click.option("--state", type=click.Choice([state.value for state in EnvelopeState]), help="Only those in this state.")
@click.option("--type", "event_type", type=TYPE, metavar="NAME", help="Only received ones with events of this type.")
@click.option("--emitter", type=EMITTER, metavar="LOGIN", help="Only those that this emitter sent.")
@click.option("--role", type=ROLE, metavar="LOGIN", help="Only received ones that this consumer role was to get.")
@click.option(
    "--since", type=Moment(), metavar="WHEN", help="Only those opened since: 2d, 12h, 30min (ago), a date or a time."
)
@click.option("--key", metavar="TEXT", help="Only those to which their emitter gave this key.")
@click.option("--undelivered", is_flag=True, help="Only those that a consumer role still lacks; with --role, this one.")
@click.option("--before", type=EnvelopeId(), metavar="ID", help="Continue after this one, the last of the page before.")
@limit_option
@watch_option
@output_option("envelope")
def list_(
    config_path: Path | None,
    state: str | None,
    event_type: str | None,
    emitter: str | None,
    role: str | None,
    since: datetime | None,
    key: str | None,
    undelivered: bool,
    before: str | None,
    limit: int,
    output: Output,
) -> None:
    """Show envelopes, the newest first.

    With --type, --role or --undelivered they are in the order of the log. With --type, add --state to see open or
    cancelled ones.
    """
    filters = EnvelopeFilters(
        None if state is None else EnvelopeState(state), event_type, emitter, role, since, key, undelivered
    )
    with reading(database_url(config_path)) as connection:
        after = None if before is None else resolve_envelope(connection, before)
        found = list_envelopes(connection, filters, after, limit)
        ids = {} if output.as_json or output.is_wide else shorten(connection, [each.id for each in found])
    if output.as_json:
        output.objects(map(of_envelope, found))
        return
    click.echo("\n".join(_list(found, ids, output)) if found else "No envelopes.")
    if len(found) == limit:
        last = found[-1].id
        click.echo(f"There may be more: --before {ids.get(last, last)}")


def _list(found: list[EnvelopeSummary], ids: dict[UUID, str], output: Output) -> Iterator[str]:
    now = SystemClock().now()
    rows = [
        (
            None if summary.position is None else str(summary.position),
            summary.state,
            summary.items,
            summary.emitter,
            output.when(summary.opened_at, now),
            _counts(summary),
            summary.key,
            ids.get(summary.id, summary.id),
        )
        for summary in found
    ]
    return output.table(HEADS, rows)


def _counts(summary: EnvelopeSummary) -> str | None:
    """Word the counts, those first that ask for a person: ``1 parked, 2 done, 3 items parked alone``."""
    states = Counter(role.state for role in summary.roles)
    counts = [f"{number} {state}" for state, number in sorted(states.items(), key=_urgency)]
    if summary.parked_items:
        counts.append(f"{counted(summary.parked_items)} parked alone")
    return ", ".join(counts) or None


def _urgency(counted_state: tuple[str, int]) -> tuple[int, str]:
    state, _ = counted_state
    return {"parked": 0, "done": 2}.get(state, 1), state
