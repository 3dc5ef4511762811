"""``xbus envelope`` lists envelopes, shows one with its events and items, and cancels an open one."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

import click

from xbus.admin.arguments import EMITTER, LIMIT, MOMENT, REASON, ROLE, SHOW_SECRETS, TYPE
from xbus.admin.objects import of_envelope, of_envelope_detail
from xbus.admin.output import CAUSE, STATE, Column, Output, Row, counted, facts, moment, name_column, rows_of
from xbus.admin.program import Careful, CommandGroup, EnvelopeId
from xbus.admin.repair.view import failure_rows
from xbus.admin.search import EnvelopeItem, read_items_page
from xbus.admin.signatures import YES, CommandBus, argument, command, confirm, option, shown
from xbus.broker.journal.bulk.outputs import OutputSummary
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.envelopes import details
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.headers import header_text
from xbus.states import EnvelopeState

ENVELOPE = argument(
    EnvelopeId(),
    metavar="ENVELOPE",
    about="The id of an envelope, or 4 or more digits with which only this one begins.",
)


@click.group(cls=CommandGroup)
def envelope() -> None:
    """Show envelopes, their states and their items, and cancel open ones."""


@command(envelope)
def list_(
    bus: CommandBus,
    state: EnvelopeState | None = option("Only those in this state."),
    event_type: str | None = option("Only received ones with events of this type.", TYPE, "--type"),
    emitter: str | None = option("Only those that this emitter sent.", EMITTER),
    role: str | None = option("Only received ones that this consumer role was to get.", ROLE),
    since: datetime | None = option("Only those opened since: 2d, 12h, 30min (ago), a date or a time.", MOMENT),
    key: str | None = option("Only those to which their emitter gave this key."),
    undelivered: bool = option("Only those that a consumer role still lacks; with --role, this one."),
    before: str | None = option("Continue after this one, the last of the page before.", EnvelopeId()),
    limit: int = LIMIT,
    output: Output = shown("envelope", watch=True),
) -> None:
    """Show envelopes, the newest first.

    With --type, --role or --undelivered they are in the order of the log. With --type, add --state to see open or
    cancelled ones.
    """
    filters = EnvelopeFilters(state, event_type, emitter, role, since, key, undelivered)
    with bus.reading() as connection:
        newer = None if before is None else details.resolve_envelope(connection, before)
        found = list_envelopes(connection, filters, newer, limit)
        ids = {} if output.as_json or output.is_wide else details.shorten(connection, [each.id for each in found])
    rows = (
        {
            Column("POSITION", to_right=True): None if summary.position is None else str(summary.position),
            STATE: summary.state,
            "ITEMS": summary.items,
            name_column("EMITTER"): summary.emitter,
            "OPENED": output.when(summary.opened_at),
            Column("CONSUMERS", narrows=16, painted=True): _counts(summary),
            Column("KEY", wide_only=True, optional=True): summary.key,
            "ID": ids.get(summary.id, summary.id),
        }
        for summary in found
    )
    after = more = None
    if len(found) == limit:
        after = {"before": found[-1].id}
        more = f"There may be more: --before {ids.get(found[-1].id, found[-1].id)}"
    output.listing(found, of_envelope, rows, "No envelopes.", more, after)


def _counts(summary: details.EnvelopeSummary) -> str | None:
    """Word the counts, those first that ask for a person: ``1 parked, 2 done, 3 items parked alone``."""
    states = Counter(role.state for role in summary.roles)
    counts = [f"{number} {state}" for state, number in sorted(states.items(), key=_urgency)]
    if summary.parked_items:
        counts.append(f"{counted(summary.parked_items)} parked alone")
    return ", ".join(counts) or None


def _urgency(counted_state: tuple[str, int]) -> tuple[int, str]:
    state, _ = counted_state
    return {"parked": 0, "done": 2}.get(state, 1), state


@command(envelope)
def show(bus: CommandBus, envelope_id: str = ENVELOPE, output: Output = shown()) -> None:
    """Show one envelope: its events, its state at each consumer, and failed calls."""
    with bus.reading() as connection:
        wanted = details.resolve_envelope(connection, envelope_id)
        detail = details.show_envelope(connection, wanted)
    if detail is None:
        raise details.envelope_unknown(wanted)
    output.detail(of_envelope_detail(detail), _show(detail, output))


def _show(detail: details.EnvelopeDetail, output: Output) -> Iterator[str]:
    yield from _facts(detail)
    yield from output.block(
        "EVENTS",
        rows_of(
            ("NUMBER", "TYPE", STATE, "ITEMS", Column("ESTIMATE", wide_only=True), "ID"),
            [(str(it.number), it.type, it.state, it.items, it.estimate, it.id) for it in detail.event_list],
        ),
    )
    yield from output.block("HEADERS", rows_of(("EVENT", "NAME", "VALUE"), _header_rows(detail)))
    yield from output.block(
        "PARTITION KEYS",
        [
            {"EVENT": str(it.number), "KEY": it.partition_key}
            for it in detail.event_list
            if it.partition_key is not None
        ],
    )
    yield from output.block(
        "IMMEDIATE REPLIES",
        [
            {"NUMBER": str(event.number), STATE: event.reply, CAUSE: event.reply_cause}
            for event in detail.event_list
            if event.reply is not None
        ],
    )
    yield from output.block(
        "CONSUMERS",
        rows_of(
            ("ROLE", Column("SERVICE", wide_only=True), STATE, "ATTEMPTS", "CODE", CAUSE),
            [
                (role.role or f"({role.service})", role.service, role.state, role.attempts, role.code, role.cause)
                for role in detail.summary.roles
            ],
        ),
    )
    yield from output.block("OUTPUTS OF BULK WORKERS", [_output_row(made) for made in detail.outputs])
    yield from output.block(
        "ITEMS THAT WERE CORRECTED OR PARKED ALONE",
        rows_of(
            ("ROLE", "EVENT", "ITEM", STATE, "SINCE", CAUSE),
            [
                (item.role or "all", str(item.number), str(item.index), item.state, moment(item.at), item.cause)
                for item in detail.overlaid
            ],
        ),
    )
    if detail.archive is not None:
        yield from output.block("ARCHIVE", [{"FILE": file} for file in detail.archive.files])
    yield from output.block("FAILURES", failure_rows(detail.failures, output))


def _header_rows(detail: details.EnvelopeDetail) -> Iterator[tuple[str, str, str]]:
    """Write a row for each header: first those of the envelope, then those of its events."""
    for name, value in detail.headers.items():
        yield "all", name, header_text(value)
    for event in detail.event_list:
        for name, value in event.headers.items():
            yield str(event.number), name, header_text(value)


def _output_row(output: OutputSummary) -> Row:
    return {
        "EVENT": str(output.number),
        "NODE": output.node,
        "ROLE": output.role,
        STATE: output.state,
        "PROGRESS": f"{output.progress:.0%}",
        "ITEMS": output.items,
        Column("BYTES", wide_only=True): output.bytes,
        Column("STARTED", wide_only=True): moment(output.started_at),
        Column("ENDED", wide_only=True): moment(output.ended_at),
        CAUSE: output.cause,
    }


def _facts(detail: details.EnvelopeDetail) -> Iterator[str]:
    summary = detail.summary
    known = {
        "envelope": summary.id,
        "state": summary.state,
        "position": None if summary.position is None else str(summary.position),
        "emitter": summary.emitter,
        "key": summary.key,
        "ordering key": summary.ordering_key,
        "repeats": summary.origin,
        "only for": summary.only_roles and ", ".join(summary.only_roles),
        "opened": moment(summary.opened_at),
        "closed": moment(summary.closed_at),
        "items": summary.items,
        "parked alone": summary.parked_items or None,
        "bytes": summary.bytes,
        "hash": detail.hash and detail.hash.hex(),
        "archived": detail.archive and moment(detail.archive.archived_at),
        "restored": detail.archive and moment(detail.archive.restored_at),
    }
    return facts(known)


@command(envelope)
def items(
    bus: CommandBus,
    envelope_id: str = ENVELOPE,
    event: str | None = option("Begin with this event; by default with the first.", metavar="NUMBER|ID"),
    first: int = option(
        "Begin with this item, counted from 0.", click.IntRange(0), "--from", default=0, metavar="INDEX"
    ),
    show_secrets: bool = SHOW_SECRETS,
    limit: int = LIMIT,
    output: Output = shown("item", wide=False),
) -> None:
    """Show the items of an envelope, as its emitter sent them.

    The command reads an item as msgpack, JSON or text. Of an open envelope it shows the items that the bus has so far.
    Fields that the event type calls secret show as ***.
    """
    with bus.reading() as connection:
        wanted = details.resolve_envelope(connection, envelope_id)
        position = details.read_position(connection, wanted)
        page = read_items_page(connection, wanted, position, event, first, limit, show_secrets=show_secrets)
    if output.as_json:
        after = None if page.next_event is None else {"event": page.next_event, "from": page.next_index}
        output.objects((item.plain() for item in page.items), after)
        return
    click.echo("\n".join(_told_items(page.items)) if page.items else "No items.")
    if page.next_event is not None:
        click.echo(f"There are more: --event {page.next_event} --from {page.next_index}")


def _told_items(found: tuple[EnvelopeItem, ...]) -> Iterator[str]:
    event_number = 0
    for item in found:
        if item.event_number != event_number:
            event_number = item.event_number
            yield f"event {event_number}, {item.type_name}"
        payload = item.payload
        yield f"  item {item.index}, {payload.kind}, {counted(len(item.data), 'byte')}"
        yield from (f"    {line}" for line in payload.lines())


@command(envelope, kind=Careful)
def cancel(bus: CommandBus, envelope: str = argument(EnvelopeId()), reason: str = REASON, yes: bool = YES) -> None:
    """Cancel an envelope that its emitter has not sealed: nobody gets it.

    Its emitter gets the reason at its next call. A sealed envelope can't be cancelled. The broker may run or not.
    """
    with bus.reading() as connection:
        envelope_id = details.resolve_envelope(connection, envelope)
        details.check_open(connection, envelope_id)
        click.echo(_told_open(connection, envelope_id))
    confirm("Cancel it for good?", unless=yes)
    decision = bus.decision(reason)
    act = decision.act("cancelled", f"envelope {envelope_id}", before="open")
    move = "envelope cancelled"
    # The new version has a running broker look: its front keeps open envelopes in memory.
    with (
        bus.writing() as connection,
        new_version(connection, move, f"envelope {envelope_id}: {decision.told}", decision.at, acts=[act]),
    ):
        details.cancel_open(connection, envelope_id, decision.at, decision.told)
    click.echo(f"Cancelled envelope {envelope_id}.")


def _told_open(connection: Connection, envelope_id: UUID) -> str:
    detail = details.show_envelope(connection, envelope_id)
    assert detail is not None, "its state was read in this transaction"
    summary, types = detail.summary, list(dict.fromkeys(event.type for event in detail.event_list))
    events = counted(len(detail.event_list), "event") + (
        " or more" if len(detail.event_list) == details.MOST_EVENTS else ""
    )
    return (
        f"Envelope {envelope_id} of {summary.emitter} is open since {moment(summary.opened_at)}, with {events}"
        f"{' of ' if types else ''}{', '.join(types)}."
    )
