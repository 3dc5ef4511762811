"""``xbus failure``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from xbus.admin.arguments import ROLE
from xbus.admin.objects import of_failure, of_failure_detail, of_failure_group
from xbus.admin.output import Column, Output, counted, facts, moment, one_json, rows_of
from xbus.admin.program import (
    ROW_ID,
    CommandGroup,
    EnvelopeId,
    config_option,
    database_url,
    limit_option,
    output_option,
)
from xbus.admin.progress import watch_option
from xbus.admin.repair.moves import assignment, move_group, newest_of_group
from xbus.admin.repair.view import failure_rows, group_rows
from xbus.broker.journal.database.connection import Connection, connected_to_write, reading
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.failures import (
    Assign,
    Comment,
    FailureDetail,
    FailureGroup,
    FailureMove,
    GroupFilters,
    GroupPage,
    Track,
    list_failures,
    list_groups,
    move_failures,
    show_failure,
    unknown_failure,
)
from xbus.broker.journal.people import known_person
from xbus.clock import SystemClock
from xbus.states import TrackingState

STATE = click.Choice([state.value for state in TrackingState])

F = TypeVar("F", bound=Callable[..., object])


@click.group(cls=CommandGroup)
def failure() -> None:
    """Show failed calls to recipients, and track their repair."""


@failure.command("list")
@config_option
@click.option("--groups", "as_groups", is_flag=True, help="Show groups: failures of the same trouble together.")
@click.option("--group", "fingerprint", metavar="FINGERPRINT", help="Only those of this group.")
@click.option("--state", type=STATE, help="Only those in this state; groups with one in this state.")
@click.option("--role", type=ROLE, metavar="LOGIN", help="Only those of this role.")
@click.option("--code", metavar="CODE", help="Only those with this code.")
@click.option("--owner", metavar="NAME", help="Only those of this person; groups with one of this person.")
@click.option("--envelope", "envelope_id", type=EnvelopeId(), metavar="ID", help="Only those of this envelope.")
@click.option("--before", type=ROW_ID, metavar="ID", help="Continue below this id, the last one of the previous page.")
@limit_option
@watch_option
@output_option("failure or group")
def list_(
    config_path: Path | None,
    as_groups: bool,
    fingerprint: str | None,
    state: str | None,
    role: str | None,
    code: str | None,
    owner: str | None,
    envelope_id: str | None,
    before: int | None,
    limit: int,
    output: Output,
) -> None:
    """Show failures, the newest first."""
    tracking = None if state is None else TrackingState(state)
    if as_groups:
        if fingerprint is not None or envelope_id is not None:
            raise click.UsageError("--groups counts the failures of all envelopes: leave --group and --envelope out")
        _list_groups(config_path, GroupFilters(role, code, tracking, owner), before, limit, output)
        return
    with reading(database_url(config_path)) as connection:
        found = list_failures(
            connection,
            state=tracking,
            role=role,
            code=code,
            envelope_id=None if envelope_id is None else resolve_envelope(connection, envelope_id),
            owner=None if owner is None else known_person(connection, owner).name,
            fingerprint=fingerprint,
            before=before,
            limit=limit,
        )
    more = f"There may be more: --before {found[-1].id}" if len(found) == limit else None
    output.listing(map(of_failure, found), failure_rows(found, output), "No failures.", more)


def _list_groups(
    config_path: Path | None, filters: GroupFilters, before: int | None, limit: int, output: Output
) -> None:
    with reading(database_url(config_path)) as connection:
        if filters.owner is not None:
            known_person(connection, filters.owner)
        found = _fill(partial(list_groups, connection, filters), before, limit)
    more = f"There may be more: --groups --before {found[-1].newest.id}" if len(found) == limit else None
    output.listing(map(of_failure_group, found), group_rows(found, output), "No failures.", more)


def _fill(list_page: Callable[..., GroupPage], before: int | None, limit: int) -> list[FailureGroup]:
    """List as many groups as a person wants to see, by as many pages as it takes."""
    found: list[FailureGroup] = []
    while len(found) < limit:
        page = list_page(before=before, limit=limit - len(found))
        found += page.groups
        if page.before is None:
            break
        before = page.before
    return found


@failure.command()
@config_option
@click.argument("failure_id", type=ROW_ID, metavar="ID")
@output_option()
def show(config_path: Path | None, failure_id: int, output: Output) -> None:
    """Show one failure: its place, the recipient's words, and the history of its repair."""
    with reading(database_url(config_path)) as connection:
        detail = show_failure(connection, failure_id)
    if detail is None:
        raise unknown_failure(failure_id)
    click.echo(one_json(of_failure_detail(detail)) if output.as_json else "\n".join(_show(detail, output)))


def _some(command: F) -> F:
    """Add the ids of failures, or the fingerprint of a group, to a command that moves them."""
    named = click.option(
        "--group", "fingerprint", metavar="FINGERPRINT", help="All failures of this group, in place of ids."
    )
    return config_option(click.argument("ids", nargs=-1, type=ROW_ID, metavar="[ID]...")(named(command)))


@failure.command()
@_some
@click.argument("state", type=STATE)
@click.option("--comment", default="", metavar="TEXT", help="A remark; the history keeps it.")
def track(config_path: Path | None, ids: tuple[int, ...], fingerprint: str | None, state: str, comment: str) -> None:
    """Note your progress with the repair of failures.

    The note helps people who repair to share the work. It does not affect delivery.
    """
    move = Track(TrackingState(state), comment)
    _move(config_path, ids, fingerprint, lambda _: move, f"is {state}", f"are {state}")


@failure.command()
@_some
@click.argument("name")
def assign(config_path: Path | None, ids: tuple[int, ...], fingerprint: str | None, name: str) -> None:
    """Have a person look after failures; see xbus person list."""
    found = (f"is {name}'s", f"are {name}'s")
    _move(config_path, ids, fingerprint, lambda connection: assignment(connection, name), *found)


@failure.command()
@_some
def release(config_path: Path | None, ids: tuple[int, ...], fingerprint: str | None) -> None:
    """Have nobody look after failures any more."""
    _move(config_path, ids, fingerprint, lambda _: Assign(None), "is nobody's", "are nobody's")


@failure.command()
@_some
@click.argument("text")
def comment(config_path: Path | None, ids: tuple[int, ...], fingerprint: str | None, text: str) -> None:
    """Leave a remark on failures; the history keeps it."""
    if not text.strip():
        raise click.UsageError("the remark is empty")
    _move(config_path, ids, fingerprint, lambda _: Comment(text), "has the comment", "have the comment")


def _move(
    config_path: Path | None,
    ids: tuple[int, ...],
    fingerprint: str | None,
    make: Callable[[Connection], FailureMove],
    is_so: str,
    are_so: str,
) -> None:
    if bool(ids) == (fingerprint is not None):
        raise click.UsageError("name failures by their ids, or a group by --group")
    now = SystemClock().now()
    with connected_to_write(database_url(config_path)) as connection:
        if fingerprint is None:
            with connection.begin():
                move_failures(connection, ids, make(connection), now)
            for failure_id in dict.fromkeys(ids):
                click.echo(f"Failure {failure_id} {is_so}.")
            return
        with connection.begin():
            move, until = make(connection), newest_of_group(connection, fingerprint)
        moved = move_group(partial(_begun, connection), fingerprint, move, now, until)
        told = f"{counted(moved, 'failure')} of the group {is_so if moved == 1 else are_so}."
        click.echo(told if moved else "No failure of the group changes.")


@contextmanager
def _begun(connection: Connection) -> Iterator[Connection]:
    with connection.begin():
        yield connection


def _show(detail: FailureDetail, output: Output) -> Iterator[str]:
    summary = detail.summary
    yield from facts(
        {
            "failure": str(summary.id),
            "group": summary.fingerprint,
            "tracking": summary.tracking,
            "owner": summary.owner,
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
        rows_of(
            ("AT", Column("MOVE", painted=True), "WHO", Column("COMMENT", narrows=20, breaks=True)),
            [(moment(move.at), move.told, move.who, move.comment or None) for move in detail.history],
        ),
    )
