"""Moves of people on failures, and on groups of them, as the history keeps them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.states import TrackingState

SUBJECT = "failure"
"""The name of a failure in the history."""

GROUP_SUBJECT = "failure_group"
"""The name of a group of failures in the history."""

ASSIGNED = "assigned"
"""The move after which a person looks after a failure, whom the reason names."""

RELEASED = "released"
COMMENTED = "commented"


def storable(text: str) -> str:
    """Replace what PostgreSQL takes in no text, though a stranger may have written it."""
    return text.replace("\x00", "\ufffd")


_INSERT = sa.insert(model.history)


@dataclass(frozen=True, slots=True)
class PastMove:
    """A person's move.

    Args:
        who: the person; None where nobody noted it.
        action: what was done, in a word: ``tracked``, ``assigned``, ``released`` or ``commented``.
        tracking: the state since then; None where the move was another.
        owner: who looks after it since then; None where the move was another.
        comment: a remark; may be empty.
    """

    at: datetime
    who: str | None
    action: str
    tracking: TrackingState | None
    owner: str | None
    comment: str

    @property
    def told(self) -> str:
        """The move in a word or two."""
        if self.tracking is not None:
            return self.tracking.value
        return self.action if self.owner is None else f"{self.action} {self.owner}"


def note_past_moves(
    connection: sa.Connection, at: datetime, who: str, subject: str, ids: Sequence[object], move: str, reason: str
) -> None:
    """Note one move on each of some failures, or of some groups."""
    row = {"at": at, "who": who, "subject": subject, "move": move, "reason": storable(reason)}
    connection.execute(_INSERT, [{**row, "subject_id": str(each)} for each in ids])


def read_past_moves(connection: sa.Connection, subject: str, subject_id: str) -> Iterator[PastMove]:
    """Read the moves on one failure, or on one group, the oldest first."""
    history = model.history.c
    statement = (
        sa.select(history.at, history.who, history.move, history.reason)
        .where(history.subject == subject, history.subject_id == subject_id)
        .order_by(history.id)
    )
    return (_move(*row) for row in connection.execute(statement))


def _move(at: datetime, who: str | None, move: str, reason: str) -> PastMove:
    if move == ASSIGNED:
        return PastMove(at, who, move, None, reason, "")
    if move in (RELEASED, COMMENTED):
        return PastMove(at, who, move, None, None, reason)
    return PastMove(at, who, "tracked", TrackingState(move), None, reason)
