"""``xbus failure``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import click

from xbus.admin.arguments import ROLE
from xbus.admin.objects import of_failure, of_failure_detail, of_failure_group
from xbus.admin.output import Column, Output, counted, facts, moment, one_json, rows_of
from xbus.admin.program import (
    ROW_ID,
    CommandGroup,
    EnvelopeId,
)
from xbus.admin.repair.moves import assignment, move_group, newest_of_group
from xbus.admin.repair.view import failure_rows, group_rows
from xbus.admin.signatures import LIMIT, CommandBus, argument, command, option, shown
from xbus.broker.journal.database.connection import Connection, connected_to_write
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
from xbus.states import TrackingState


@click.group(cls=CommandGroup)
def failure() -> None:
    """Show failed calls to recipients, and track their repair."""


@command(failure)
def list_(
    bus: CommandBus,
    as_groups: bool = option("Show groups: failures of the same trouble together.", None, "--groups"),
    fingerprint: str | None = option("Only those of this group.", None, "--group", metavar="FINGERPRINT"),
    state: TrackingState | None = option("Only those in this state; groups with one in this state."),
    role: str | None = option("Only those of this role.", ROLE),
    code: str | None = option("Only those with this code.", metavar="CODE"),
    owner: str | None = option("Only those of this person; groups with one of this person.", metavar="NAME"),
    envelope_id: str | None = option("Only those of this envelope.", EnvelopeId(), "--envelope"),
    before: int | None = option("Continue below this id, the last one of the previous page.", ROW_ID, metavar="ID"),
    limit: int = LIMIT,
    output: Output = shown("failure or group", watch=True),
) -> None:
    """Show failures, the newest first."""
    if as_groups:
        if fingerprint is not None or envelope_id is not None:
            raise click.UsageError("--groups counts the failures of all envelopes: leave --group and --envelope out")
        _list_groups(bus, GroupFilters(role, code, state, owner), before, limit, output)
        return
    with bus.reading() as connection:
        found = list_failures(
            connection,
            state=state,
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


def _list_groups(bus: CommandBus, filters: GroupFilters, before: int | None, limit: int, output: Output) -> None:
    with bus.reading() as connection:
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


@command(failure)
def show(bus: CommandBus, failure_id: int = argument(ROW_ID, metavar="ID"), output: Output = shown()) -> None:
    """Show one failure: its place, the recipient's words, and the history of its repair."""
    with bus.reading() as connection:
        detail = show_failure(connection, failure_id)
    if detail is None:
        raise unknown_failure(failure_id)
    click.echo(one_json(of_failure_detail(detail)) if output.as_json else "\n".join(_show(detail, output)))


IDS = argument(ROW_ID, metavar="[ID]...")
GROUP = option("All failures of this group, in place of ids.", None, "--group", metavar="FINGERPRINT")


@command(failure)
def track(
    bus: CommandBus,
    ids: tuple[int, ...] = IDS,
    fingerprint: str | None = GROUP,
    state: TrackingState = argument(),
    comment: str = option("A remark; the history keeps it.", default=""),
) -> None:
    """Note your progress with the repair of failures.

    The note helps people who repair to share the work. It does not affect delivery.
    """
    _move(bus, ids, fingerprint, lambda _: Track(state, comment), f"is {state}", f"are {state}")


@command(failure)
def assign(
    bus: CommandBus, ids: tuple[int, ...] = IDS, fingerprint: str | None = GROUP, name: str = argument()
) -> None:
    """Have a person look after failures; see xbus person list."""
    _move(bus, ids, fingerprint, lambda found: assignment(found, name), f"is {name}'s", f"are {name}'s")


@command(failure)
def release(bus: CommandBus, ids: tuple[int, ...] = IDS, fingerprint: str | None = GROUP) -> None:
    """Have nobody look after failures any more."""
    _move(bus, ids, fingerprint, lambda _: Assign(None), "is nobody's", "are nobody's")


@command(failure)
def comment(
    bus: CommandBus, ids: tuple[int, ...] = IDS, fingerprint: str | None = GROUP, text: str = argument()
) -> None:
    """Leave a remark on failures; the history keeps it."""
    if not text.strip():
        raise click.UsageError("the remark is empty")
    _move(bus, ids, fingerprint, lambda _: Comment(text), "has the comment", "have the comment")


def _move(
    bus: CommandBus,
    ids: tuple[int, ...],
    fingerprint: str | None,
    make: Callable[[Connection], FailureMove],
    is_so: str,
    are_so: str,
) -> None:
    if bool(ids) == (fingerprint is not None):
        raise click.UsageError("name failures by their ids, or a group by --group")
    with connected_to_write(bus.url) as connection:
        if fingerprint is None:
            with connection.begin():
                move_failures(connection, ids, make(connection), bus.now())
            for failure_id in dict.fromkeys(ids):
                click.echo(f"Failure {failure_id} {is_so}.")
            return
        with connection.begin():
            move, until = make(connection), newest_of_group(connection, fingerprint)
        moved = move_group(partial(_begun, connection), fingerprint, move, bus.now(), until)
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
