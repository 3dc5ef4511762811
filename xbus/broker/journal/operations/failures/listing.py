"""Failures as those see them who look after them: the list, and one with its history."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows
from xbus.broker.journal.operations.failures.past_moves import SUBJECT, PastMove, read_past_moves, storable
from xbus.broker.journal.writes.fingerprint import is_fingerprint
from xbus.errors import Refused
from xbus.states import TrackingState

MOST_ID = 2**63 - 1


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
        fingerprint: the group of those of the same trouble.
        owner: the name of the person who looks after it; None for nobody.
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
    fingerprint: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class FailureDetail:
    """A failure with its history, oldest first."""

    summary: FailureSummary
    history: tuple[PastMove, ...]


def list_failures(
    connection: sa.Connection,
    *,
    state: TrackingState | None = None,
    role: str | None = None,
    code: str | None = None,
    envelope_id: UUID | None = None,
    owner: str | None = None,
    fingerprint: str | None = None,
    before: int | None = None,
    limit: int = 20,
) -> list[FailureSummary]:
    """List failures, the newest first.

    Args:
        state: only those in this tracking state.
        role: only those of the role with this login.
        code: only those with this code.
        envelope_id: only those of this envelope.
        owner: only those of the person with this name.
        fingerprint: only those of this group.
        before: only those below this id: the last one of the page before.

    Raises:
        Refused: no role has or had this login (``unknown_login``), or ``fingerprint`` is none
            (``failure_group_unknown``).
    """
    failure = model.failure.c
    wanted: list[sa.ColumnElement[bool]] = []
    if state is not None:
        wanted.append(failure.tracking == state.value)
    if role is not None:
        wanted.append(failure.role_id == known_role_id(connection, role))
    if code is not None:
        wanted.append(failure.code == storable(code))
    if envelope_id is not None:
        wanted.append(failure.envelope_id == envelope_id)
    if owner is not None:
        wanted.append(failure.owner == owner)
    if fingerprint is not None:
        check_fingerprint(fingerprint)
        wanted.append(failure.fingerprint == fingerprint)
    if before is not None:
        wanted.append(failure.id < before)
    return list_failures_of(connection, sa.and_(sa.true(), *wanted), limit)


def list_failures_of(connection: sa.Connection, which: sa.ColumnElement[bool], limit: int) -> list[FailureSummary]:
    """List the failures of which a condition holds, the newest first."""
    statement = _summaries().where(which).order_by(model.failure.c.id.desc()).limit(limit)
    return [_summary(row) for row in connection.execute(statement)]


def show_failure(connection: sa.Connection, failure_id: int) -> FailureDetail | None:
    """Read all details of one failure; None if no failure has this id."""
    if not 0 < failure_id <= MOST_ID:
        return None
    row = connection.execute(_summaries().where(model.failure.c.id == failure_id)).one_or_none()
    if row is None:
        return None
    return FailureDetail(_summary(row), tuple(read_past_moves(connection, SUBJECT, str(failure_id))))


def unknown_failure(failure_id: int) -> Refused:
    """Make the error for an id that no failure has."""
    return Refused(f"there is no failure {failure_id}", "see xbus failure list", code="failure_unknown")


def check_fingerprint(text: str) -> None:
    """Let a text pass that can be a fingerprint.

    Raises:
        Refused: no failure has it (``failure_group_unknown``).
    """
    if not is_fingerprint(text):
        raise unknown_group(text)


def unknown_group(fingerprint: str) -> Refused:
    """Make the error for a fingerprint that no failure has."""
    cause = f'there is no group "{fingerprint[:40]}" of failures'
    return Refused(cause, "see xbus failure list --groups", code="failure_group_unknown")


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
        failure.fingerprint,
        failure.owner,
    ).outerjoin(model.role, model.role.c.id == failure.role_id)


def _summary(row: NamedRow) -> FailureSummary:
    return FailureSummary(**{**row._mapping, "tracking": TrackingState(row.tracking)})


def known_role_id(connection: sa.Connection, login: str) -> int:
    """Find the id of a role, also of a removed one.

    Raises:
        Refused: no role has or had this login (``unknown_login``).
    """
    found = None
    if "\0" not in login:  # strangers may ask for anything, also for what no database takes
        found = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == login)).scalar_one_or_none()
    if found is None:
        raise Refused(f'there is no role "{login}"', "xbus export shows the roles", code="unknown_login")
    role_id: int = found
    return role_id


def role_name(connection: sa.Connection, role_id: int) -> str:
    """Read the login of a role, also of a removed one."""
    login: str = connection.execute(sa.select(model.role.c.login).where(model.role.c.id == role_id)).scalar_one()
    return login
