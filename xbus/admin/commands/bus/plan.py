"""``xbus plan``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click

from xbus.admin.applying import Problems, plan_change, tell_change
from xbus.admin.bus_file.change import Decisions, PlannedChange
from xbus.admin.objects import JsonObject
from xbus.admin.output import Output, counted, moment, name_column
from xbus.admin.program import config_option, database_url, output_option
from xbus.admin.progress import shown_on_terminal
from xbus.admin.rehearsal.comparing import Route, Tally, TypeComparison
from xbus.admin.rehearsal.last_events import rehearse, types_of
from xbus.admin.rehearsal.routing import Way
from xbus.admin.table import Column
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.operations.envelopes.short_ids import FEWEST_CHARACTERS, shorten

MOST_EVENTS = 100_000

HEADS = (
    name_column("ROLE"),
    name_column("SERVICE"),
    "KIND",
    "NOW",
    "THEN",
    Column("WAY", narrows=16, breaks=True),
    Column("EXAMPLES", narrows=FEWEST_CHARACTERS),
)


@click.command()
@config_option
@click.argument("file", type=click.File("rb"))
@click.option("--prune", is_flag=True, help="Plan the removal of entries that the file does not name, too.")
@click.option(
    "--last",
    type=click.IntRange(1, MOST_EVENTS),
    metavar="NUMBER",
    help="Say which roles would have got so many last events of each type.",
)
@output_option()
def plan(config_path: Path | None, file: BinaryIO, prune: bool, last: int | None, output: Output) -> None:
    """Show what FILE would change on the bus, and change nothing; - is standard input.

    With --last the command takes the last events that emitters sent, and compares which roles get them on the bus as it
    is, and on the bus as it would be. Nothing is sent. -o wide shows also what stays the same.
    """
    url = database_url(config_path)
    try:
        change = plan_change(url, getattr(file, "name", "<stdin>"), file.read(), Decisions(prune))
    except Problems as problems:
        click.echo("\n".join(problems.told), err=True)
        raise
    found: list[TypeComparison] = []
    ids: Mapping[UUID, str] = {}
    if last is not None:
        steps = last * len(types_of(change.plan))
        with connected(url) as connection:
            with shown_on_terminal(lambda: steps, "Comparing") as tell:
                found = list(rehearse(connection, change.plan, last, tell))
            if not output.is_wide:
                with connection.begin():
                    ids = shorten(connection, (each for comparison in found for each in comparison.examples))
    if output.as_json:
        output.objects([_of_plan(change, None if last is None else found)])
        return
    tell_change(change)
    if not change.plan.changes:
        click.echo("Nothing to change: the bus is as the file says.")
    if last is not None:
        click.echo("\n".join(_told(found, last, ids, output)))


def _told(found: Sequence[TypeComparison], last: int, ids: Mapping[UUID, str], output: Output) -> Iterator[str]:
    for each in found:
        if each.is_changed or output.is_wide:
            yield from _told_type(each, ids, output)
    same = ", ".join(f"{each.type} ({each.events:,})" for each in found if not each.is_changed)
    yield ""
    if same:
        yield output.paragraph(f"As before, of the last {last:,} events of each type: {same}.")
    else:
        yield "Nothing is as before." if found else "The bus has no event type."


def _told_type(found: TypeComparison, ids: Mapping[UUID, str], output: Output) -> Iterator[str]:
    since = "" if found.since is None else f", sealed since {moment(found.since)}"
    title = f"{found.type}: {counted(found.events, 'event')}{since}"
    rows = [
        (
            route.role,
            route.service,
            route.kind,
            route.tally.now,
            route.tally.then,
            _way(route),
            _examples(route.tally, ids),
        )
        for route in found.routes
        if route.is_changed or output.is_wide
    ]
    yield from output.block(title, HEADS, rows) if rows else ("", title)
    for emitter, tally in found.senders:
        number = counted(max(tally.now, tally.then), "event")
        would = "would be refused" if tally.then < tally.now else "would be taken, which are refused now"
        yield f"  {number} of {emitter} {would}: {_examples(tally, ids)}"


def _way(route: Route) -> str:
    now, then = _words(route.now), _words(route.then)
    return then if now == then else f"{now}, then {then}"


def _words(way: Way | None) -> str:
    if way is None:
        return "none"
    return f"{', '.join(way.nodes)}{' behind ' if way.through else ''}{', '.join(way.through)}"


def _examples(tally: Tally, ids: Mapping[UUID, str]) -> str | None:
    return ", ".join(ids.get(each, str(each)) for each in tally.examples) or None


def _of_plan(change: PlannedChange, found: Sequence[TypeComparison] | None) -> JsonObject:
    return {
        "changes": [
            {
                "action": each.move,
                "object": f'{each.section} "{each.name}"',
                "former_name": each.former or None,
                "fields": each.fields,
                "owed": [
                    {
                        "role": owed.role,
                        "service": owed.service,
                        "envelopes": owed.envelopes,
                        "owed_since": owed.oldest,
                    }
                    for owed in change.arrears
                    if owed.change == each
                ],
            }
            for each in change.plan.changes
        ],
        "comparisons": None if found is None else [_of_comparison(each) for each in found],
    }


def _of_comparison(found: TypeComparison) -> JsonObject:
    return {
        "type": found.type,
        "events": found.events,
        "since": found.since,
        "changed": found.is_changed,
        "routes": [
            {
                "role": route.role,
                "service": route.service,
                "kind": route.kind,
                "changed": route.is_changed,
                **_of_tally(route.tally),
                "nodes_now": None if route.now is None else route.now.nodes,
                "nodes_then": None if route.then is None else route.then.nodes,
                "through_now": None if route.now is None else route.now.through,
                "through_then": None if route.then is None else route.then.through,
            }
            for route in found.routes
        ],
        "senders": [{"emitter": emitter, **_of_tally(tally)} for emitter, tally in found.senders],
    }


def _of_tally(tally: Tally) -> JsonObject:
    return {"events_now": tally.now, "events_then": tally.then, "examples": list(map(str, tally.examples))}
