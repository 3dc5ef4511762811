"""``xbus envelope show``."""

from collections.abc import Iterator
from pathlib import Path

import click

from xbus.admin.failure_rows import FAILURE_HEADS, failure_rows
from xbus.admin.objects import of_envelope_detail
from xbus.admin.output import CAUSE, STATE, Output, facts, moment, one_json
from xbus.admin.program import EnvelopeId, config_option, database_url, output_option
from xbus.admin.table import Column
from xbus.broker.journal.bulk.summaries import OutputSummary
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes.details import EnvelopeDetail, envelope_unknown, show_envelope
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.headers import header_text

CONSUMER_HEADS = ("ROLE", Column("SERVICE", wide_only=True), STATE, "ATTEMPTS", "CODE", CAUSE)
OUTPUT_HEADS = (
    "EVENT",
    "NODE",
    "ROLE",
    STATE,
    "PROGRESS",
    "ITEMS",
    Column("BYTES", wide_only=True),
    Column("STARTED", wide_only=True),
    Column("ENDED", wide_only=True),
    CAUSE,
)


@click.command()
@config_option
@click.argument("envelope_id", type=EnvelopeId(), metavar="ENVELOPE")
@output_option()
def show(config_path: Path | None, envelope_id: str, output: Output) -> None:
    """Show one envelope: its events, its state at each consumer, and failed calls."""
    with reading(database_url(config_path)) as connection:
        wanted = resolve_envelope(connection, envelope_id)
        detail = show_envelope(connection, wanted)
    if detail is None:
        raise envelope_unknown(wanted)
    click.echo(one_json(of_envelope_detail(detail)) if output.as_json else "\n".join(_show(detail, output)))


def _show(detail: EnvelopeDetail, output: Output) -> Iterator[str]:
    yield from _facts(detail)
    yield from output.block(
        "EVENTS",
        ("NUMBER", "TYPE", STATE, "ITEMS", Column("ESTIMATE", wide_only=True), "ID"),
        [
            (str(event.number), event.type, event.state, event.items, event.estimate, event.id)
            for event in detail.event_list
        ],
    )
    yield from output.block("HEADERS", ("EVENT", "NAME", "VALUE"), list(_header_rows(detail)))
    yield from output.block(
        "PARTITION KEYS",
        ("EVENT", "KEY"),
        [(str(event.number), event.partition_key) for event in detail.event_list if event.partition_key is not None],
    )
    yield from output.block(
        "IMMEDIATE REPLIES",
        ("NUMBER", STATE, CAUSE),
        [(str(event.number), event.reply, event.reply_cause) for event in detail.event_list if event.reply is not None],
    )
    yield from output.block(
        "CONSUMERS",
        CONSUMER_HEADS,
        [
            (role.role or f"({role.service})", role.service, role.state, role.attempts, role.code, role.cause)
            for role in detail.summary.roles
        ],
    )
    yield from output.block(
        "OUTPUTS OF BULK WORKERS",
        OUTPUT_HEADS,
        [_output_row(made) for made in detail.outputs],
    )
    yield from output.block(
        "ITEMS THAT WERE CORRECTED OR PARKED ALONE",
        ("ROLE", "EVENT", "ITEM", STATE, "SINCE", CAUSE),
        [
            (item.role or "all", str(item.number), str(item.index), item.state, moment(item.at), item.cause)
            for item in detail.overlaid
        ],
    )
    if detail.archive is not None:
        yield from output.block("ARCHIVE", ("FILE",), [(file,) for file in detail.archive.files])
    yield from output.block("FAILURES", FAILURE_HEADS, failure_rows(detail.failures, output))


def _header_rows(detail: EnvelopeDetail) -> Iterator[tuple[str, str, str]]:
    """Write a row for each header: first those of the envelope, then those of its events."""
    for name, value in detail.headers.items():
        yield "all", name, header_text(value)
    for event in detail.event_list:
        for name, value in event.headers.items():
            yield str(event.number), name, header_text(value)


def _output_row(output: OutputSummary) -> tuple[object, ...]:
    return (
        str(output.number),
        output.node,
        output.role,
        output.state,
        f"{output.progress:.0%}",
        output.items,
        output.bytes,
        moment(output.started_at),
        moment(output.ended_at),
        output.cause,
    )


def _facts(detail: EnvelopeDetail) -> Iterator[str]:
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
