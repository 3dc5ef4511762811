"""``xbus failure``."""

from collections.abc import Iterator
from pathlib import Path

import click

from xbus.admin.failure_rows import FAILURE_HEADS, failure_rows
from xbus.admin.names import ROLE
from xbus.admin.objects import of_failure, of_failure_detail
from xbus.admin.output import Output, facts, moment, one_json
from xbus.admin.program import CommandGroup, EnvelopeId, config_option, database_url, limit_option, output_option
from xbus.admin.table import Column
from xbus.admin.watching import watch_option
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.failures import (
    FailureDetail,
    list_failures,
    show_failure,
    track_failure,
    unknown_failure,
)
from xbus.clock import SystemClock
from xbus.states import TrackingState

FAILURE_ID = click.IntRange(1, 2**63 - 1)


@click.group(cls=CommandGroup)
def failure() -> None:
    """Show failed calls to recipients, and track their repair."""


@failure.command("list")
@config_option
@click.option("--state", type=click.Choice([state.value for state in TrackingState]), help="Only those in this state.")
@click.option("--role", type=ROLE, metavar="LOGIN", help="Only those of this role.")
@click.option("--envelope", "envelope_id", type=EnvelopeId(), metavar="ID", help="Only those of this envelope.")
@click.option(
    "--before", type=FAILURE_ID, metavar="ID", help="Continue below this id, the last one of the previous page."
)
@limit_option
@watch_option
@output_option("failure")
def list_(
    config_path: Path | None,
    state: str | None,
    role: str | None,
    envelope_id: str | None,
    before: int | None,
    limit: int,
    output: Output,
) -> None:
    """Show failures, the newest first."""
    with reading(database_url(config_path)) as connection:
        found = list_failures(
            connection,
            state=None if state is None else TrackingState(state),
            role=role,
            envelope_id=None if envelope_id is None else resolve_envelope(connection, envelope_id),
            before=before,
            limit=limit,
        )
    if output.as_json:
        output.objects(map(of_failure, found))
        return
    rows = failure_rows(found, output)
    click.echo("\n".join(output.table(FAILURE_HEADS, rows)) if rows else "No failures.")
    if len(found) == limit:
        click.echo(f"There may be more: --before {found[-1].id}")


@failure.command()
@config_option
@click.argument("failure_id", type=FAILURE_ID, metavar="ID")
@output_option()
def show(config_path: Path | None, failure_id: int, output: Output) -> None:
    """Show one failure: its place, the recipient's words, and the history of its repair."""
    with reading(database_url(config_path)) as connection:
        detail = show_failure(connection, failure_id)
    if detail is None:
        raise unknown_failure(failure_id)
    click.echo(one_json(of_failure_detail(detail)) if output.as_json else "\n".join(_show(detail, output)))


@failure.command()
@config_option
@click.argument("failure_id", type=FAILURE_ID, metavar="ID")
@click.argument("state", type=click.Choice([state.value for state in TrackingState]))
@click.option("--comment", default="", metavar="TEXT", help="A remark; the history keeps it.")
def track(config_path: Path | None, failure_id: int, state: str, comment: str) -> None:
    """Note your progress with the repair of a failure.

    The note helps people who repair to share the work. It does not affect delivery.
    """
    with writing(database_url(config_path)) as connection:
        track_failure(connection, failure_id, TrackingState(state), comment, SystemClock().now())
    click.echo(f"Failure {failure_id} is {state}.")


def _show(detail: FailureDetail, output: Output) -> Iterator[str]:
    summary = detail.summary
    yield from facts(
        {
            "failure": str(summary.id),
            "tracking": summary.tracking,
            "at": moment(summary.at),
            "envelope": summary.envelope_id,
            "event": summary.event_id,
            "node": summary.node,
            "role": summary.role,
            "verb": summary.verb,
            "code": summary.code,
            "items": None if summary.indices is None else ", ".join(map(str, summary.indices)),
            "cause": summary.message,
        }
    )
    yield from output.block(
        "HISTORY",
        ("AT", Column("TRACKING", painted=True), Column("COMMENT", narrows=20, breaks=True)),
        [(moment(move.at), move.state, move.comment or None) for move in detail.history],
    )
