"""Moves of a person on failures, on some or on a whole group: track, assign, release, comment."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, model_validator

from xbus.admin.output import counted
from xbus.admin.repair.failures import assignment, move_group
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.failures import (
    Assign,
    Comment,
    FailureMove,
    Track,
    move_failures,
    show_failure,
    show_group,
    unknown_failure,
)
from xbus.broker.journal.people import Right
from xbus.monitor.actions.action import UNSAID, Action, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor
from xbus.states import TrackingState

MOST_FAILURES = 1000
"""Failures that one request may name. More make a transaction long, which others wait for; a group has any number."""

FailureId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _OfFailures(Action):
    """The failures that an action is about: those with these ids, or a group.

    ``until`` is the newest failure of the group that the person has seen; without it the group is meant as it is now.
    """

    right: ClassVar[Right] = Right.OPERATOR

    failure_id: Annotated[list[FailureId], Field(default_factory=list, max_length=MOST_FAILURES)]
    fingerprint: Annotated[str, Field(max_length=64)] | None = None
    until: FailureId | None = None

    @model_validator(mode="after")
    def _is_of_some(self) -> "_OfFailures":
        if bool(self.failure_id) == (self.fingerprint is not None):
            raise ValueError("name failures by failure_id, or a group by fingerprint")
        return self

    @abstractmethod
    def move(self, connection: Connection) -> FailureMove:
        """Make the move.

        Raises:
            Refused: it is none.
        """

    @abstractmethod
    def told(self) -> str:
        """Give the end of a sentence that says what happens to the failures."""

    def words(self, verb: str, *told: str) -> Sequence[str]:
        """Give the words of a command about these failures."""
        group = [] if self.fingerprint is None else ["--group", self.fingerprint]
        return ["xbus", "failure", verb, *group, *map(str, self.failure_id), *told]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            yield self._named(connection) + f": {self.told()}."
            if UNSAID not in self.told():
                self.move(connection)

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        now = bus.now()
        if self.fingerprint is None:
            with bus.writing(visitor) as connection:
                move_failures(connection, self.failure_id, self.move(connection), now)
            yield f"{_told(self.failure_id)}: {self.told()}."
            return
        with bus.reading() as connection:
            newest = show_group(connection, self.fingerprint, limit=1).group.newest.id
            move = self.move(connection)
        until = newest if self.until is None else self.until
        moved = move_group(partial(bus.writing, visitor), self.fingerprint, move, now, until)
        yield f"{counted(moved, 'failure')} of the group: {self.told()}."

    def _named(self, connection: Connection) -> str:
        if self.fingerprint is not None:
            group = show_group(connection, self.fingerprint, limit=1).group
            number = counted(group.count, "failure", at_least=group.at_least)
            return f"{number} of {group.newest.role or 'no role'} with {group.newest.code}"
        for failure_id in self.failure_id:
            if show_failure(connection, failure_id) is None:
                raise unknown_failure(failure_id)
        return _told(self.failure_id)


def _told(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"Failure{'s' * (len(ids) > 1)} {shown}{', …' if len(ids) > 10 else ''}"


class TrackFailures(_OfFailures):
    """Note how far you are with failures. It does not affect delivery."""

    path: ClassVar[str] = "failures/track"
    title: ClassVar[str] = "Track"

    state: TrackingState
    comment: Annotated[str, asked("line", "Comment", "It is kept.", max_length=4000)] = ""

    def move(self, connection: Connection) -> FailureMove:
        return Track(self.state, self.comment)

    def told(self) -> str:
        return f"tracked as {self.state}"

    def command(self) -> Sequence[str]:
        return self.words("track", self.state.value, *(["--comment", self.comment] if self.comment else []))


class AssignFailures(_OfFailures):
    """Have a person look after failures."""

    path: ClassVar[str] = "failures/assign"
    title: ClassVar[str] = "Assign"

    owner: Annotated[
        str, StringConstraints(min_length=1, max_length=255), asked("line", "Person", "The name of who looks after it.")
    ]

    def move(self, connection: Connection) -> FailureMove:
        return assignment(connection, self.owner)

    def told(self) -> str:
        return f"{self.owner} looks after it"

    def command(self) -> Sequence[str]:
        return self.words("assign", self.owner)


class ReleaseFailures(_OfFailures):
    """Have nobody look after failures any more."""

    path: ClassVar[str] = "failures/release"
    title: ClassVar[str] = "Release"

    def move(self, connection: Connection) -> FailureMove:
        return Assign(None)

    def told(self) -> str:
        return "nobody looks after it"

    def command(self) -> Sequence[str]:
        return self.words("release")


class CommentFailures(_OfFailures):
    """Leave a remark on failures."""

    path: ClassVar[str] = "failures/comment"
    title: ClassVar[str] = "Comment"

    comment: Annotated[str, StringConstraints(min_length=1, max_length=4000), asked("line", "Comment", "It is kept.")]

    def move(self, connection: Connection) -> FailureMove:
        return Comment(self.comment)

    def told(self) -> str:
        return f"“{self.comment}”"

    def command(self) -> Sequence[str]:
        return self.words("comment", self.comment)
