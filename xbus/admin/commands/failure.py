"""``xbus failure``."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

import click

from xbus.admin.failure_rows import FAILURE_HEADS, failure_row
from xbus.admin.output import block, facts, moment, one_json
from xbus.admin.program import config_option, database_url, json_option, limit_option
from xbus.admin.table import table
from xbus.broker.journal.database.connection import reading, writing
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


@click.group()
def failure() -> None:
    """Show failed calls to recipients, and track their repair."""


@failure.command("list")
@config_option
@click.option("--state", type=click.Choice([state.value for state in TrackingState]), help="Only those in this state.")
@click.option("--role", metavar="LOGIN", help="Only those of this role.")
@click.option("--envelope", "envelope_id", type=click.UUID, metavar="ID", help="Only those of this envelope.")
@click.option(
    "--before", type=FAILURE_ID, metavar="ID", help="Continue below this id, the last one of the previous page."
)
@limit_option
@json_option("failure")
def list_(
    config_path: Path | None,
    state: str | None,
    role: str | None,
    envelope_id: UUID | None,
    before: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show failures, the newest first."""
    with reading(database_url(config_path)) as connection:
        found = list_failures(
            connection,
            state=None if state is None else TrackingState(state),
            role=role,
            envelope_id=envelope_id,
            before=before,
            limit=limit,
        )
    if as_json:
        click.echo("".join(f"{one_json(asdict(summary))}\n" for summary in found), nl=False)
        return
    rows = [failure_row(summary) for summary in found]
    click.echo("\n".join(table(FAILURE_HEADS, rows)) if rows else "No failures.")
    if len(found) == limit:
        click.echo(f"There may be more: --before {found[-1].id}")


@failure.command()
@config_option
@click.argument("failure_id", type=FAILURE_ID, metavar="ID")
@json_option("failure")
def show(config_path: Path | None, failure_id: int, as_json: bool) -> None:
    """Show one failure: its place, the recipient's words, and the history of its repair."""
    with reading(database_url(config_path)) as connection:
        detail = show_failure(connection, failure_id)
    if detail is None:
        raise unknown_failure(failure_id)
    click.echo(one_json(asdict(detail)) if as_json else "\n".join(_show(detail)))


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


def _show(detail: FailureDetail) -> Iterator[str]:
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
            "message": summary.message,
        }
    )
    yield from block(
        "HISTORY",
        ("AT", "TRACKING", "COMMENT"),
        [(moment(move.at), move.state, move.comment or None) for move in detail.history],
    )
