"""Failures: groups of the same trouble, single ones, and a person's moves on both: track, assign, release, comment."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from pydantic import Field, StringConstraints, model_validator

from xbus.admin.objects import of_failure, of_failure_detail, of_failure_group, of_group_detail
from xbus.admin.output import counted
from xbus.admin.repair.moves import assignment, move_group
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.operations.envelopes.short_ids import resolve_envelope
from xbus.broker.journal.operations.failures import (
    Assign,
    Comment,
    FailureMove,
    Track,
    list_failures,
    list_groups,
    move_failures,
    show_failure,
    show_group,
    unknown_failure,
)
from xbus.broker.journal.people import Right, known_person, list_persons
from xbus.admin.signatures import UNSAID
from xbus.monitor.actions import Action, asked
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.features.envelopes import Limit
from xbus.monitor.queries import Before, FailureQuery, Name, digits_of
from xbus.monitor.rendering import TheBus, ThePage, TheVisitor, link
from xbus.monitor.rest import ObjectResponse, answer, answer_list
from xbus.states import TRACKING_MOVES, TrackingState

router = APIRouter(prefix="/failures")

PAGE_ROWS = 50

SET_STATES = [state for state in TrackingState if state is not TrackingState.UNPROCESSED]
"""The states that a person sets."""


@router.get("")
def list_(bus: TheBus, page: ThePage, query: Annotated[FailureQuery, Query()]) -> HTMLResponse:
    """Show groups of failures, the one with the newest failure first."""
    with bus.reading() as connection:
        if query.owner:
            known_person(connection, query.owner)
        found = list_groups(connection, query.filters(), before=query.before, limit=PAGE_ROWS)
        persons = [person.name for person in list_persons(connection) if person.disabled_at is None]
        roles = sorted(read_stored(connection).in_use.section(Section.ROLE))
    more = None if found.before is None else link("/failures", **{**query.model_dump(), "before": found.before})
    return page(
        "failures/list.html",
        found=found.groups,
        query=query,
        roles=roles,
        persons=persons,
        states=list(TrackingState),
        more=more,
        page_rows=PAGE_ROWS,
    )


@router.get("/groups/{fingerprint}")
def show_one_group(bus: TheBus, page: ThePage, fingerprint: str, before: Before = None) -> HTMLResponse:
    """Show a group: how many and since when, its newest failures, and what people did with all of it."""
    detail = bus.read(lambda connection: show_group(connection, fingerprint, before=before, limit=PAGE_ROWS))
    here = f"/failures/groups/{fingerprint}"
    older = link(here, before=detail.failures[-1].id) if len(detail.failures) == PAGE_ROWS else None
    return page("failures/group.html", detail=detail, it=detail.group, here=here, older=older, states=SET_STATES)


@router.get("/{failure_id:int}")
def show(bus: TheBus, page: ThePage, failure_id: int) -> HTMLResponse:
    """Show a failure: where it happened, the recipient's words, and what people did about it."""
    with bus.reading() as connection:
        detail = show_failure(connection, failure_id)
        if detail is None:
            raise unknown_failure(failure_id)
        group = show_group(connection, detail.summary.fingerprint, limit=1).group
    following = TRACKING_MOVES[detail.summary.tracking]
    return page(
        "failures/show.html",
        detail=detail,
        it=detail.summary,
        group=group,
        states=[state for state in SET_STATES if state in following],
        here=f"/failures/{failure_id}",
    )


api = APIRouter(prefix="/failures", tags=["failures"], default_response_class=ObjectResponse)


@api.get("", operation_id="list_failures")
def list_json(
    bus: TheBus,
    _: TheVisitor,
    query: Annotated[FailureQuery, Query()],
    envelope: Annotated[str, Query(max_length=64, description="Only those of this envelope.")] = "",
    group: Annotated[Name, Query(description="Only those with this fingerprint.")] = "",
    limit: Limit = 20,
) -> ObjectResponse:
    """List failures, the newest first."""
    wanted = query.filters()
    with bus.reading() as connection:
        found = list_failures(
            connection,
            state=wanted.state,
            role=wanted.role,
            code=wanted.code,
            envelope_id=resolve_envelope(connection, digits_of(envelope)) if envelope else None,
            owner=known_person(connection, wanted.owner).name if wanted.owner else None,
            fingerprint=group or None,
            before=query.before,
            limit=limit,
        )
    return answer_list(map(of_failure, found), {"before": found[-1].id} if len(found) == limit else None)


@api.get("/groups", operation_id="list_failure_groups")
def groups_json(
    bus: TheBus, _: TheVisitor, query: Annotated[FailureQuery, Query()], limit: Limit = 20
) -> ObjectResponse:
    """List groups of failures of the same trouble, the one with the newest failure first.

    In a long list some pages have fewer groups than `limit`, or none: `next` is null at the end alone.
    """
    with bus.reading() as connection:
        if query.owner:
            known_person(connection, query.owner)
        found = list_groups(connection, query.filters(), before=query.before, limit=limit)
    after = None if found.before is None else {"before": found.before}
    return answer_list(map(of_failure_group, found.groups), after)


@api.get("/groups/{fingerprint}", operation_id="show_failure_group")
def show_group_json(
    bus: TheBus, _: TheVisitor, fingerprint: str, before: Before = None, limit: Limit = 20
) -> ObjectResponse:
    """Show a group: its newest failures, and what people did with all of it."""
    detail = bus.read(lambda connection: show_group(connection, fingerprint, before=before, limit=limit))
    return answer(of_group_detail(detail))


@api.get("/{failure_id:int}", operation_id="show_failure")
def show_json(bus: TheBus, _: TheVisitor, failure_id: int) -> ObjectResponse:
    """Show a failure: where it happened, the recipient's words, and what people did about it."""
    detail = bus.read(lambda connection: show_failure(connection, failure_id))
    if detail is None:
        raise unknown_failure(failure_id)
    return answer(of_failure_detail(detail))


MOST_FAILURES = 1000
"""Failures that one request may name. More make a transaction long, which others wait for; a group has any number."""

FailureId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _OfFailures(Action):
    """The failures that an action is about: those with these ids, or a group.

    ``until`` is the newest failure of the group that the person has seen; without it the group is meant as it is now.
    """

    right = Right.OPERATOR

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

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            yield self._named(connection) + f": {self.told()}."
            if UNSAID not in self.told():
                self.move(connection)

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        now = bus.now()
        if self.fingerprint is None:
            with bus.writing() as connection:
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
    words = "failure track --group={fingerprint} {failure_id} {state} --comment={comment}"

    state: TrackingState
    comment: Annotated[str, asked("line", "Comment", "It is kept.", max_length=4000)] = ""

    def move(self, connection: Connection) -> FailureMove:
        return Track(self.state, self.comment)

    def told(self) -> str:
        return f"tracked as {self.state}"


class AssignFailures(_OfFailures):
    """Have a person look after failures."""

    path: ClassVar[str] = "failures/assign"
    title: ClassVar[str] = "Assign"
    words = "failure assign --group={fingerprint} {failure_id} {owner}"

    owner: Annotated[
        str, StringConstraints(min_length=1, max_length=255), asked("line", "Person", "The name of who looks after it.")
    ]

    def move(self, connection: Connection) -> FailureMove:
        return assignment(connection, self.owner)

    def told(self) -> str:
        return f"{self.owner} looks after it"


class ReleaseFailures(_OfFailures):
    """Have nobody look after failures any more."""

    path: ClassVar[str] = "failures/release"
    title: ClassVar[str] = "Release"
    words = "failure release --group={fingerprint} {failure_id}"

    def move(self, connection: Connection) -> FailureMove:
        return Assign(None)

    def told(self) -> str:
        return "nobody looks after it"


class CommentFailures(_OfFailures):
    """Leave a remark on failures."""

    path: ClassVar[str] = "failures/comment"
    title: ClassVar[str] = "Comment"
    words = "failure comment --group={fingerprint} {failure_id} {comment}"

    comment: Annotated[str, StringConstraints(min_length=1, max_length=4000), asked("line", "Comment", "It is kept.")]

    def move(self, connection: Connection) -> FailureMove:
        return Comment(self.comment)

    def told(self) -> str:
        return f"“{self.comment}”"
