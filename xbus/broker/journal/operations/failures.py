"""Failures as those see them who look after them, and how far they have come with each."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.rows import NamedRow, NamedRows
from xbus.errors import Refused
from xbus.states import TRACKING_MOVES, TrackingState, predecessors

SUBJECT = "failure"
"""The name of moves of a failure in the history."""


@dataclass(frozen=True, slots=True)
class FailureSummary:
    """A call to a recipient that went wrong, or one of the errors that it answered.

    Args:
        event_id: in which event; None at the end of the envelope.
        node: where in the event's graph, several where a role sits in several; None at the end of the envelope.
        role: the login of the recipient's role; None where no recipient was at fault.
        verb: what was asked of it.
        indices: the items that it named; None where it named none.
        tracking: how far the person who looks after it has come.
    """

    id: int
    at: datetime
    envelope_id: UUID
    event_id: UUID | None
    node: str | None
    role: str | None
    verb: str
    code: str
    message: str
    indices: list[int] | None
    tracking: TrackingState


@dataclass(frozen=True, slots=True)
class TrackingMove:
    """A person's move on a failure."""

    at: datetime
    state: TrackingState
    comment: str


@dataclass(frozen=True, slots=True)
class FailureDetail:
    """A failure with its history, oldest first."""

    summary: FailureSummary
    history: tuple[TrackingMove, ...]


def list_failures(
    connection: sa.Connection,
    *,
    state: TrackingState | None = None,
    role: str | None = None,
    envelope_id: UUID | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[FailureSummary]:
    """List failures, the newest first.

    Args:
        state: only those in this tracking state.
        role: only those of the role with this login.
        envelope_id: only those of this envelope.
        before: only those below this id: the last one of the page before.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    statement = _summaries().order_by(model.failure.c.id.desc()).limit(limit)
    if state is not None:
        statement = statement.where(model.failure.c.tracking == state.value)
    if role is not None:
        statement = statement.where(model.failure.c.role_id == known_role_id(connection, role))
    if envelope_id is not None:
        statement = statement.where(model.failure.c.envelope_id == envelope_id)
    if before is not None:
        statement = statement.where(model.failure.c.id < before)
    return [_summary(row) for row in connection.execute(statement)]


def show_failure(connection: sa.Connection, failure_id: int) -> FailureDetail | None:
    """Read all details of one failure; None if no failure has this id."""
    row = connection.execute(_summaries().where(model.failure.c.id == failure_id)).one_or_none()
    return None if row is None else FailureDetail(_summary(row), tuple(_moves(connection, failure_id)))


def track_failure(connection: sa.Connection, failure_id: int, state: TrackingState, comment: str, at: datetime) -> None:
    """Note a person's progress with a failure, and keep it in the history.

    Args:
        state: the new state.
        comment: a remark; may be empty.
        at: the moment of the move.

    Raises:
        Refused: no failure has this id (``failure_unknown``), or ``state`` does not follow its present one
            (``tracking_refused``).
    """
    failure = model.failure.c
    may_move = sa.and_(failure.id == failure_id, failure.tracking.in_(predecessors(TRACKING_MOVES, state)))
    if connection.execute(sa.update(model.failure).where(may_move).values(tracking=state.value)).rowcount != 1:
        raise _refusal(connection, failure_id, state)
    remember(connection, at, SUBJECT, str(failure_id), state.value, comment)
    note_acts(connection, [act_here(at, "tracked", f"failure {failure_id}", after=state.value, reason=comment)])


def unknown_failure(failure_id: int) -> Refused:
    """Make the error for an id that no failure has."""
    return Refused(f"there is no failure {failure_id}", "see xbus failure list", code="failure_unknown")


def _refusal(connection: sa.Connection, failure_id: int, state: TrackingState) -> Refused:
    found = connection.execute(sa.select(model.failure.c.tracking).where(model.failure.c.id == failure_id))
    present = found.scalar_one_or_none()
    if present is None:
        return unknown_failure(failure_id)
    following = ", ".join(next_ for next_ in TrackingState if next_ in TRACKING_MOVES[TrackingState(present)])
    cause = f"failure {failure_id} is {present}"
    cause += " already" if state == present else f" and can't become {state}"
    return Refused(cause, f"it can become {following}", code="tracking_refused")


def _summaries() -> NamedRows:
    failure = model.failure.c
    return sa.select(
        failure.id,
        failure.at,
        failure.envelope_id,
        failure.event_id,
        failure.node,
        model.role.c.login.label("role"),
        failure.verb,
        failure.code,
        failure.message,
        failure.indices,
        failure.tracking,
    ).outerjoin(model.role, model.role.c.id == failure.role_id)


def _summary(row: NamedRow) -> FailureSummary:
    return FailureSummary(**{**row._mapping, "tracking": TrackingState(row.tracking)})


def known_role_id(connection: sa.Connection, login: str) -> int:
    """Find the id of a role, also of a removed one.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    found = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == login)).scalar_one_or_none()
    if found is None:
        raise Refused(f'there is no role "{login}"', "xbus export shows the roles", code="unknown_login")
    role_id: int = found
    return role_id


def role_name(connection: sa.Connection, role_id: int) -> str:
    """Read the login of a role, also of a removed one."""
    login: str = connection.execute(sa.select(model.role.c.login).where(model.role.c.id == role_id)).scalar_one()
    return login


def _moves(connection: sa.Connection, failure_id: int) -> Iterator[TrackingMove]:
    history = model.history.c
    statement = (
        sa.select(history.at, history.move, history.reason)
        .where(history.subject == SUBJECT, history.subject_id == str(failure_id))
        .order_by(history.id)
    )
    return (TrackingMove(at, TrackingState(move), comment) for at, move, comment in connection.execute(statement))
