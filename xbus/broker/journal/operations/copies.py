"""Decides about registrations that were not made where the journal is now: it was restored, moved or copied."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.writes import SERVED

SUBJECT = "journal"
"""The name of moves of the journal in the history."""

SUBJECT_ID = "registrations"
"""The moved part of the journal. A place would be too long for this column, so the reason has it."""

SUBJECTS = f"{SUBJECT_ID} of the {SUBJECT}"
"""The same for the audit."""


@dataclass(frozen=True, slots=True)
class ForeignRegistration:
    """A registration that was made elsewhere.

    Args:
        role: the login of the role.
        uri: where its recipient listened.
        place: where the journal was then; None where that is not known.
    """

    role: str
    uri: str
    place: str | None


def read_foreign(connection: sa.Connection) -> list[ForeignRegistration]:
    """Read the registrations that were made elsewhere, by role."""
    row = model.registration.c
    statement = (
        sa.select(model.role.c.login, row.uri, row.place)
        .join(model.role, model.role.c.id == row.role_id)
        .where(_is_foreign(connection))
        .order_by(model.role.c.login)
    )
    return [ForeignRegistration(*found) for found in connection.execute(statement)]


def adopt(connection: sa.Connection, reason: str, at: datetime) -> list[ForeignRegistration]:
    """Declare this the live journal: its broker calls those who registered elsewhere."""
    found = read_foreign(connection)
    place = read_place(connection)
    connection.execute(sa.update(model.registration).where(_is_foreign(connection)).values(place=place))
    remember(connection, at, SUBJECT, SUBJECT_ID, "adopted", _told(found, reason, place))
    note_acts(connection, [act_here(at, "adopted", SUBJECTS, before=_roles(found), after=place, reason=reason)])
    return found


def forget(connection: sa.Connection, reason: str, at: datetime) -> list[ForeignRegistration]:
    """Declare this a copy that goes its own way: who registered elsewhere is forgotten, with the sessions."""
    found = read_foreign(connection)
    is_foreign = _is_foreign(connection)
    tokens = sa.select(model.registration.c.token_hash).where(is_foreign)
    connection.execute(sa.delete(model.session).where(model.session.c.token_hash.in_(tokens)))
    connection.execute(sa.delete(model.registration).where(is_foreign))
    place = read_place(connection)
    remember(connection, at, SUBJECT, SUBJECT_ID, "forgotten", _told(found, reason, place))
    note_acts(connection, [act_here(at, "forgotten", SUBJECTS, before=_roles(found), after=place, reason=reason)])
    return found


def _is_foreign(connection: sa.Connection) -> sa.ColumnElement[bool]:
    row = model.registration.c
    # One that made its connection itself comes by itself to where the journal is now, or to nobody.
    is_called = row.uri.not_like(f"{SERVED}%")
    return is_called & (row.place.is_(None) | (row.place != read_place(connection)))


def _told(found: list[ForeignRegistration], reason: str, place: str) -> str:
    """Word a decision for the history: the role, the reason, and the journal's place."""
    return f"{_roles(found)}: {reason}; the journal is at {place}"


def _roles(found: list[ForeignRegistration]) -> str:
    return ", ".join(registration.role for registration in found)
