"""``xbus envelope``."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

import click

from xbus.admin.failure_rows import FAILURE_HEADS, failure_row
from xbus.admin.output import block, counted, facts, moment, one_json
from xbus.admin.program import config_option, database_url, json_option, limit_option
from xbus.admin.table import table
from xbus.broker.journal.bulk.summaries import OutputSummary
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.envelopes import (
    EnvelopeDetail,
    EnvelopeSummary,
    envelope_unknown,
    list_envelopes,
    show_envelope,
)
from xbus.states import EnvelopeState


@click.group()
def envelope() -> None:
    """Show envelopes and their states."""


@envelope.command("list")
@config_option
@click.option("--state", type=click.Choice([state.value for state in EnvelopeState]), help="Only those in this state.")
@click.option("--before", type=click.UUID, metavar="ID", help="Continue after this one, the last of the previous page.")
@limit_option
@json_option("envelope")
def list_(config_path: Path | None, state: str | None, before: UUID | None, limit: int, as_json: bool) -> None:
    """Show envelopes, the newest first."""
    with reading(database_url(config_path)) as connection:
        found = list_envelopes(
            connection, state=None if state is None else EnvelopeState(state), before=before, limit=limit
        )
    if as_json:
        click.echo("".join(f"{one_json(asdict(summary))}\n" for summary in found), nl=False)
        return
    click.echo("\n".join(_list(found)) if found else "No envelopes.")
    if len(found) == limit:
        click.echo(f"There may be more: --before {found[-1].id}")


@envelope.command()
@config_option
@click.argument("envelope_id", type=click.UUID, metavar="ID")
@json_option("envelope")
def show(config_path: Path | None, envelope_id: UUID, as_json: bool) -> None:
    """Show one envelope: its events, its state at each consumer, and failed calls."""
    with reading(database_url(config_path)) as connection:
        detail = show_envelope(connection, envelope_id)
    if detail is None:
        raise envelope_unknown(envelope_id)
    click.echo(one_json(asdict(detail)) if as_json else "\n".join(_show(detail)))


def _list(found: list[EnvelopeSummary]) -> Iterator[str]:
    rows = [
        (
            summary.position,
            summary.state,
            summary.items,
            summary.emitter,
            moment(summary.opened_at),
            summary.id,
            _counts(summary),
        )
        for summary in found
    ]
    return table(("POSITION", "STATE", "ITEMS", "EMITTER", "OPENED", "ID", "CONSUMERS"), rows)


def _counts(summary: EnvelopeSummary) -> str:
    """Word the counts: ``2 done, 1 parked, 3 items parked alone``."""
    states = Counter(role.state for role in summary.roles)
    counts = [f"{number} {state}" for state, number in sorted(states.items())]
    if summary.parked_items:
        counts.append(f"{counted(summary.parked_items)} parked alone")
    return ", ".join(counts)


def _show(detail: EnvelopeDetail) -> Iterator[str]:
    yield from _facts(detail)
    yield from block(
        "EVENTS",
        ("NUMBER", "TYPE", "STATE", "ITEMS", "ESTIMATE", "ID"),
        [(event.number, event.type, event.state, event.items, event.estimate, event.id) for event in detail.event_list],
    )
    yield from block(
        "IMMEDIATE REPLIES",
        ("NUMBER", "STATE", "CAUSE"),
        [(event.number, event.reply, event.reply_cause) for event in detail.event_list if event.reply is not None],
    )
    yield from block(
        "CONSUMERS",
        ("ROLE", "SERVICE", "STATE", "ATTEMPTS", "CODE", "CAUSE"),
        [(role.role, role.service, role.state, role.attempts, role.code, role.cause) for role in detail.summary.roles],
    )
    yield from block(
        "OUTPUTS OF BULK WORKERS",
        ("EVENT", "NODE", "ROLE", "STATE", "PROGRESS", "ITEMS", "BYTES", "STARTED", "ENDED", "CAUSE"),
        [_output_row(output) for output in detail.outputs],
    )
    yield from block(
        "ITEMS THAT WERE CORRECTED OR PARKED ALONE",
        ("ROLE", "EVENT", "ITEM", "STATE", "SINCE", "CAUSE"),
        [
            (item.role or "all", item.number, item.index, item.state, moment(item.at), item.cause)
            for item in detail.overlaid
        ],
    )
    if detail.archive is not None:
        yield from block("ARCHIVE", ("FILE",), [(file,) for file in detail.archive.files])
    yield from block("FAILURES", FAILURE_HEADS, [failure_row(failure) for failure in detail.failures])


def _output_row(output: OutputSummary) -> tuple[object, ...]:
    return (
        output.number,
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
        "position": summary.position,
        "emitter": summary.emitter,
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
