"""The moves of a person on failures: on some of them at once, or on a whole group, page by page.

Each failure that is moved gets its row in the history and its act in the audit, whether alone or with its group.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.operations.failures import (
    ASSIGNED,
    COMMENTED,
    GROUP_SUBJECT,
    RELEASED,
    SUBJECT,
    check_fingerprint,
    note_past_moves,
    unknown_failure,
)
from xbus.errors import Refused
from xbus.states import TRACKING_MOVES, TrackingState

PAGE = 500
"""Failures that one transaction moves. More keep other writers of SQLite waiting for longer."""


@dataclass(frozen=True, slots=True)
class FailureStanding:
    """The present state of a failure, as far as people move it."""

    id: int
    tracking: TrackingState
    owner: str | None


class FailureMove(ABC):
    """A thing that a person does with failures."""

    @abstractmethod
    def refusal(self, present: FailureStanding) -> Refused | None:
        """Make the error for a failure on which this move is not possible or changes nothing; None where it is."""

    @abstractmethod
    def values(self) -> Mapping[str, object]:
        """Give the new values of the failure's columns."""

    @abstractmethod
    def noted(self) -> tuple[str, str]:
        """Give the move and the reason as the history has them."""

    @abstractmethod
    def audited(self, present: FailureStanding) -> tuple[str, str, str, str]:
        """Give the action as the audit has it, the value before and after, and the reason."""


@dataclass(frozen=True, slots=True)
class Track(FailureMove):
    """Note the person's progress.

    Args:
        state: the new state.
        comment: a remark; may be empty.
    """

    state: TrackingState
    comment: str = ""

    def refusal(self, present: FailureStanding) -> Refused | None:
        """Refuse a state that does not follow the present one (``tracking_refused``)."""
        following = TRACKING_MOVES[present.tracking]
        if self.state in following:
            return None
        cause = f"failure {present.id} is {present.tracking}"
        cause += " already" if self.state == present.tracking else f" and can't become {self.state}"
        states = ", ".join(state for state in TrackingState if state in following)
        return Refused(cause, f"it can become {states}", code="tracking_refused")

    def values(self) -> Mapping[str, object]:
        """Set the state."""
        return {"tracking": self.state.value}

    def noted(self) -> tuple[str, str]:
        """Note the state with the comment."""
        return self.state.value, self.comment

    def audited(self, present: FailureStanding) -> tuple[str, str, str, str]:
        """Audit both states."""
        return "tracked", present.tracking.value, self.state.value, self.comment


@dataclass(frozen=True, slots=True)
class Assign(FailureMove):
    """Have a person look after it.

    Args:
        owner: the person's name; None for nobody.
    """

    owner: str | None

    def refusal(self, present: FailureStanding) -> Refused | None:
        """Refuse the present owner (``assigned_already``)."""
        if self.owner != present.owner:
            return None
        cause = f"failure {present.id} is {'nobody' if self.owner is None else self.owner}'s already"
        return Refused(cause, f"see xbus failure show {present.id}", code="assigned_already")

    def values(self) -> Mapping[str, object]:
        """Set the owner."""
        return {"owner": self.owner}

    def noted(self) -> tuple[str, str]:
        """Note the owner."""
        return (RELEASED, "") if self.owner is None else (ASSIGNED, self.owner)

    def audited(self, present: FailureStanding) -> tuple[str, str, str, str]:
        """Audit both owners."""
        return RELEASED if self.owner is None else ASSIGNED, present.owner or "", self.owner or "", ""


@dataclass(frozen=True, slots=True)
class Comment(FailureMove):
    """Leave a remark."""

    text: str

    def refusal(self, present: FailureStanding) -> Refused | None:
        """Refuse nothing."""
        return None

    def values(self) -> Mapping[str, object]:
        """Change nothing."""
        return {}

    def noted(self) -> tuple[str, str]:
        """Note the remark."""
        return COMMENTED, self.text

    def audited(self, present: FailureStanding) -> tuple[str, str, str, str]:
        """Audit the remark."""
        return COMMENTED, "", "", self.text


def move_failures(connection: sa.Connection, failure_ids: Sequence[int], move: FailureMove, at: datetime) -> None:
    """Carry a move out on some failures, or on none of them if it is refused for one.

    Raises:
        Refused: no failure has one of these ids (``failure_unknown``), or the move is not possible
            (``tracking_refused``, ``assigned_already``).
    """
    failure = model.failure.c
    wanted = sorted(set(failure_ids))
    found = {each.id: each for each in _locked(connection, failure.id.in_(wanted), len(wanted))}
    for failure_id in wanted:
        if failure_id not in found:
            raise unknown_failure(failure_id)
        if (refusal := move.refusal(found[failure_id])) is not None:
            raise refusal
    _carry_out(connection, list(found.values()), move, at)


@dataclass(frozen=True, slots=True)
class GroupStep:
    """A page of a group.

    Args:
        moved: how many failures were moved.
        last_id: the last one of the page, after which the next page begins; None at the end.
    """

    moved: int
    last_id: int | None


def move_group_page(
    connection: sa.Connection,
    fingerprint: str,
    move: FailureMove,
    at: datetime,
    *,
    after: int,
    until: int,
    limit: int = PAGE,
) -> GroupStep:
    """Carry a move out on a page of a group, and pass over the failures for which it is refused.

    Args:
        after: the id of the last failure of the page before; 0 for the first page, which notes the move on the group.
        until: the id of the last failure that the person means: others may come meanwhile.
        limit: the failures of a page.

    Raises:
        Refused: ``fingerprint`` is none (``failure_group_unknown``).
    """
    check_fingerprint(fingerprint)
    failure = model.failure.c
    is_in_page = sa.and_(failure.fingerprint == fingerprint, failure.id > after, failure.id <= until)
    page = _locked(connection, is_in_page, limit)
    _carry_out(connection, [each for each in page if move.refusal(each) is None], move, at)
    moved = sum(move.refusal(each) is None for each in page)
    if after == 0 and page:
        note_past_moves(connection, at, _person(at), GROUP_SUBJECT, [fingerprint], *move.noted())
    return GroupStep(moved, page[-1].id if len(page) == limit else None)


def _locked(connection: sa.Connection, which: sa.ColumnElement[bool], limit: int) -> list[FailureStanding]:
    """Read failures that nobody else moves until the end of the transaction: two people may have the same in view."""
    failure = model.failure.c
    statement = (
        sa.select(failure.id, failure.tracking, failure.owner)
        .where(which)
        .order_by(failure.id)
        .limit(limit)
        .with_for_update()
    )
    return [
        FailureStanding(failure_id, TrackingState(tracking), owner)
        for failure_id, tracking, owner in connection.execute(statement)
    ]


def _carry_out(connection: sa.Connection, found: Sequence[FailureStanding], move: FailureMove, at: datetime) -> None:
    ids = [each.id for each in found]
    if not ids:
        return
    if values := move.values():
        connection.execute(sa.update(model.failure).where(model.failure.c.id.in_(ids)).values(values))
    note_past_moves(connection, at, _person(at), SUBJECT, ids, *move.noted())
    acts = []
    for each in found:
        action, before, after, reason = move.audited(each)
        acts.append(act_here(at, action, f"failure {each.id}", before=before, after=after, reason=reason))
    note_acts(connection, acts)


def _person(at: datetime) -> str:
    """Name the person for whom the program acts, as the audit does."""
    return act_here(at, "", "").who
