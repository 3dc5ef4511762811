"""``xbus failure``."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import ClassVar

import click

from xbus.admin.arguments import LIMIT, ROLE
from xbus.admin.objects import of_failure, of_failure_detail, of_failure_group
from xbus.admin.output import Column, Output, counted, facts, moment, rows_of
from xbus.admin.program import ROW_ID, CommandGroup, EnvelopeId
from xbus.admin.repair.view import failure_rows, group_rows
from xbus.admin.signatures import LINKED, UNSAID, BusAction, CommandBus, argument, command, command_of, option, shown
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations import failure_moves, failures
from xbus.broker.journal.operations.envelopes.details import resolve_envelope
from xbus.broker.journal.people import known_person
from xbus.errors import Refused
from xbus.rights import Right
from xbus.states import TrackingState


@click.group(cls=CommandGroup)
def failure() -> None:
    """Show failed calls to recipients, and track their repair."""


@command(failure)
def list_(
    bus: CommandBus,
    as_groups: bool = option("Show groups: failures of the same trouble together.", None, "--groups", is_local=True),
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
        _list_groups(bus, failures.GroupFilters(role, code, state, owner), before, limit, output)
        return
    with bus.reading() as connection:
        found = failures.list_failures(
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
    after = {"before": found[-1].id} if len(found) == limit else None
    output.listing(found, of_failure, failure_rows(found, output), "No failures.", after=after)


def _list_groups(
    bus: CommandBus, filters: failures.GroupFilters, before: int | None, limit: int, output: Output
) -> None:
    """List as many groups as a person wants to see, by as many pages as it takes."""
    found: list[failures.FailureGroup] = []
    with bus.reading() as connection:
        if filters.owner is not None:
            known_person(connection, filters.owner)
        while len(found) < limit:
            page = failures.list_groups(connection, filters, before=before, limit=limit - len(found))
            found += page.groups
            if page.before is None:
                break
            before = page.before
    more = f"There may be more: --groups --before {found[-1].newest.id}" if len(found) == limit else None
    output.listing(found, of_failure_group, group_rows(found, output), "No failures.", more)


@command(failure)
def show(bus: CommandBus, failure_id: int = argument(ROW_ID, metavar="ID"), output: Output = shown()) -> None:
    """Show one failure: its place, the recipient's words, and the history of its repair."""
    detail = bus.read(lambda connection: failures.show_failure(connection, failure_id))
    if detail is None:
        raise failures.unknown_failure(failure_id)
    output.detail(of_failure_detail(detail), _show(detail, output))


class FailureAction(BusAction, ABC):
    """The failures that an action is about: those with these ids, or a group.

    ``until`` is the newest failure of the group that the person has seen; without it the group is meant as it is now.
    """

    right = Right.OPERATOR

    fingerprint: str | None = option(
        "All failures of this group, in place of ids.", None, "--group", longest=64, metavar="FINGERPRINT"
    )
    failure_id: Sequence[int] = argument(ROW_ID, metavar="[ID]...")
    until: int | None = LINKED

    is_so: ClassVar[str]
    """The end of a sentence about one of them, in which ``{field}`` stands for a field."""

    are_so: ClassVar[str]
    """The end of a sentence about several."""

    def check(self) -> None:
        if bool(self.failure_id) == (self.fingerprint is not None):
            raise ValueError("name failures by their ids, or a group by its fingerprint")

    @abstractmethod
    def move(self, connection: Connection) -> failure_moves.FailureMove:
        """Make the move.

        Raises:
            Refused: it is none.
        """

    def preview(self, bus: CommandBus) -> Iterator[str]:
        with bus.reading() as connection:
            yield f"{self._named(connection)}: each {self._told(self.is_so)}."
            if UNSAID not in vars(self).values():
                self.move(connection)

    def carry_out(self, bus: CommandBus) -> Iterator[str]:
        now = bus.now()
        if self.fingerprint is None:
            with bus.writing() as connection:
                failure_moves.move_failures(connection, self.failure_id, self.move(connection), now)
            yield from (f"Failure {each} {self._told(self.is_so)}." for each in dict.fromkeys(self.failure_id))
            return
        with bus.reading() as connection:
            move = self.move(connection)
            newest = failures.show_group(connection, self.fingerprint, limit=1).group.newest
        moved = _move_group(bus, self.fingerprint, move, now, self.until or newest.id)
        told = self._told(self.is_so if moved == 1 else self.are_so)
        yield f"{counted(moved, 'failure')} of the group {told}." if moved else "No failure of the group changes."

    def _told(self, words: str) -> str:
        return words.format(**vars(self))

    def _named(self, connection: Connection) -> str:
        if self.fingerprint is not None:
            group = failures.show_group(connection, self.fingerprint, limit=1).group
            number = counted(group.count, "failure", at_least=group.at_least)
            return f"{number} of {group.newest.role or 'no role'} with {group.newest.code}"
        for failure_id in self.failure_id:
            if failures.show_failure(connection, failure_id) is None:
                raise failures.unknown_failure(failure_id)
        cut = ", …" if len(self.failure_id) > MOST_NAMED else ""
        return f"Failure{'s' * (len(self.failure_id) > 1)} {', '.join(map(str, self.failure_id[:MOST_NAMED]))}{cut}"


def _move_group(bus: CommandBus, fingerprint: str, move: failure_moves.FailureMove, at: datetime, until: int) -> int:
    """Carry a move out on a whole group, in as many short transactions as it takes.

    If a page fails, the pages before it stay moved. The same move once more does the rest.

    Args:
        until: the id of the last failure that the person means: one that comes meanwhile is news.

    Returns:
        How many failures were moved.
    """
    moved, after = 0, 0
    while True:
        with bus.writing() as connection:
            step = failure_moves.move_group_page(connection, fingerprint, move, at, after=after, until=until)
        moved += step.moved
        if step.last_id is None:
            return moved
        after = step.last_id


MOST_NAMED = 10
"""Failures that a preview names. More make it long."""


class TrackFailures(FailureAction):
    """Note your progress with the repair of failures.

    The note helps people who repair to share the work. It does not affect delivery.
    """

    path = "failures/track"
    title = "Track"
    words = "failure track"
    is_so = "is {state}"
    are_so = "are {state}"

    state: TrackingState = argument()
    comment: str = option("A remark; the history keeps it.", default="", title="Comment")

    def move(self, connection: Connection) -> failure_moves.FailureMove:
        return failure_moves.Track(self.state, self.comment)


class AssignFailures(FailureAction):
    """Have a person look after failures; see xbus person list."""

    path = "failures/assign"
    title = "Assign"
    words = "failure assign"
    is_so = "is {owner}'s"
    are_so = "are {owner}'s"

    owner: str = argument(title="Person", about="The name of who looks after it.", longest=255, metavar="NAME")

    def move(self, connection: Connection) -> failure_moves.FailureMove:
        person = known_person(connection, self.owner)
        if person.disabled_at is not None:
            raise Refused(f"{person.name} is disabled", "name another person: xbus person list", code="person_disabled")
        return failure_moves.Assign(person.name)


class ReleaseFailures(FailureAction):
    """Have nobody look after failures any more."""

    path = "failures/release"
    title = "Release"
    words = "failure release"
    is_so = "is nobody's"
    are_so = "are nobody's"

    def move(self, connection: Connection) -> failure_moves.FailureMove:
        return failure_moves.Assign(None)


class CommentFailures(FailureAction):
    """Leave a remark on failures; the history keeps it."""

    path = "failures/comment"
    title = "Comment"
    words = "failure comment"
    is_so = "has the comment"
    are_so = "have the comment"

    comment: str = argument(title="Comment", about="It is kept.", metavar="TEXT")

    def check(self) -> None:
        super().check()
        if not self.comment.strip():
            raise ValueError("the remark is empty")

    def move(self, connection: Connection) -> failure_moves.FailureMove:
        return failure_moves.Comment(self.comment)


command_of(TrackFailures, failure)
command_of(AssignFailures, failure)
command_of(ReleaseFailures, failure)
command_of(CommentFailures, failure)


def _show(detail: failures.FailureDetail, output: Output) -> Iterator[str]:
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
