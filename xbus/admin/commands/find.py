"""``xbus find`` and ``xbus read``: items of a type, those that fit from the newest on, or all in their order."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from uuid import UUID

import click

from xbus.admin.arguments import LIMIT, LOG_START, LONGEST_POSITION, MOMENT, SHOW_SECRETS
from xbus.admin.output import Column, Output, counted, moment, on_one_line, one_json
from xbus.admin.progress import progress
from xbus.admin.search import MOST_ITEMS, Condition, Search, SearchResult, StreamRequest, read_stream, search_items
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.broker.journal.log.slices.listing import Start
from xbus.broker.journal.operations.envelopes.details import shorten


@command()
def find(
    bus: CommandBus,
    type_name: str = argument(metavar="TYPE"),
    conditions: tuple[str, ...] = argument(metavar="[FIELD=VALUE]..."),
    since: datetime | None = option("Only items sealed since: 2d, 12h, 30min (ago), a date or a time.", MOMENT),
    before: int | None = option(
        "Only items below this position.", click.IntRange(1, 10**LONGEST_POSITION - 1), metavar="POSITION"
    ),
    most: int = option(
        "Read so many items at most.", click.IntRange(1), "--read", default=MOST_ITEMS, show_default=True
    ),
    show_secrets: bool = SHOW_SECRETS,
    limit: int = LIMIT,
    output: Output = shown("item"),
) -> None:
    """Find items of TYPE whose fields have these values, the newest first.

    number=4711 finds the number and the text. client.number=4711 looks into the map client. In a list, any element may
    fit. Several conditions must all fit; without any, all items do.

    The command looks at items as their emitters sent them, and at all that retention and archive left in the journal.
    Fields that the type calls secret show as ***, and are searched with --show-secrets
    only. It stops after --read items or 1 GiB, and says so.
    """
    wanted = [Condition.of(condition).fits for condition in conditions]
    result = _search(bus.url, Search(type_name, wanted, since, before, limit, most, show_secrets=show_secrets))
    if output.as_json:
        output.objects(item.plain() for item, _ in result.found)
    else:
        click.echo("\n".join(_list(bus, result, output)) if result.found else "Nothing found.")
    for sentence in _told(result):
        click.echo(f"xbus: {sentence}", err=True)


def _search(url: str, search: Search) -> SearchResult:
    if not sys.stderr.isatty():
        return search_items(url, search, lambda searched, of: None)
    with progress(1, f"Searching {search.type_name}") as bar:

        def show(searched: int, of: int) -> None:
            bar.length = max(1, of)
            bar.update(searched - bar.pos)

        return search_items(url, search, show)


def _list(bus: CommandBus, result: SearchResult, output: Output) -> Iterator[str]:
    ids: dict[UUID, str] = {}
    if not output.is_wide:
        ids = bus.read(lambda connection: shorten(connection, [item.envelope_id for item, _ in result.found]))
    rows = [
        {
            Column("POSITION", to_right=True): str(item.position),
            "SEALED": output.when(closed_at),
            Column("EVENT", to_right=True): str(item.event_number),
            Column("ITEM", to_right=True): str(item.index),
            Column("VALUE", narrows=20): " ".join(item.payload.lines()),
            "ENVELOPE": ids.get(item.envelope_id, item.envelope_id),
        }
        for item, closed_at in result.found
    ]
    return output.table(rows)


def _told(result: SearchResult) -> Iterator[str]:
    """Say what was not searched, and how to go on."""
    if result.archived:
        events = counted(result.archived, "event")
        yield f"{events} of the type not searched: an archive has the items, see xbus restore"
    if not result.stopped:
        return
    go_on = "give a larger --read" if result.is_bounded else "give a larger --limit"
    if result.next_below is not None:
        go_on = f"go on with --before {result.next_below}, or {go_on}"
    if result.is_bounded:
        yield f"stopped after {counted(result.read_items)}, older ones were not searched: {go_on}"
    else:
        yield f"there are more: {go_on}"


FOLLOW_SECONDS = 0.5
"""Seconds between two looks for more. Smaller shows it sooner, and reads the journal more often."""

LIMIT = 20


@command()
def read(
    bus: CommandBus,
    type_name: str = argument(metavar="TYPE"),
    start: Start | None = option(
        "The start: a place as 1234 or 1234:0:500, a date or time, 1h (ago), oldest, or head. By default oldest, with "
        "--follow head.",
        LOG_START,
        "--from",
    ),
    follow: bool = option("At the end of the log, wait for more until you press Ctrl-C."),
    conditions: tuple[str, ...] = option(
        "Only items with this value; may be repeated.", None, "--where", metavar="FIELD=VALUE"
    ),
    key: str | None = option("Only events of this partition key, or of this ordering key without one."),
    limit: int | None = option(
        f"Stop after so many items; by default {LIMIT}, with --follow never.", click.IntRange(1)
    ),
    show_secrets: bool = SHOW_SECRETS,
    output: Output = shown("item", wide=False),
) -> None:
    """Read the items of TYPE in the order in which they came, from any place of the log on.

    Items come as readers get them, with the corrections that are for all roles. No reader is needed, and nothing
    remembers what you have read. --where takes conditions as xbus find does. Fields that the type calls secret show as
    ***.
    """
    begin: Start = start or ("head" if follow else "oldest")
    wanted = StreamRequest(type_name, begin, key, [Condition.of(text).fits for text in conditions], show_secrets)
    most = limit or (None if follow else LIMIT)
    try:
        for found in islice(read_stream(bus.url, wanted, lambda: follow and _pause()), most):
            if output.as_json:
                click.echo(one_json(found.item.plain()))
            else:
                place, value = ":".join(map(str, found.place)), " ".join(found.item.payload.lines())
                click.echo(on_one_line(f"{place} {moment(found.sealed_at)} {value}"))
    except KeyboardInterrupt:
        if not follow:
            raise


def _pause() -> bool:
    time.sleep(FOLLOW_SECONDS)
    return True
