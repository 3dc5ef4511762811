"""Reads sessions, registrations, and recipients' own descriptions. Each function is one short read."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model


@dataclass(frozen=True, slots=True)
class StoredSession:
    token_hash: bytes
    owner_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class StoredRegistration:
    """A recipient that was registered when the broker last ran.

    Args:
        place: where the journal was then; None where that is not known.
    """

    role_id: int
    token_hash: bytes
    uri: str
    place: str | None


@dataclass(frozen=True, slots=True)
class StoredIntroduction:
    """The introduction of a registered consumer, as in ``model.registration``."""

    metadata: Mapping[str, Any]
    features: Mapping[str, Any]


def read_sessions(connection: sa.Connection, *, of_roles: bool) -> list[StoredSession]:
    """Read all sessions of emitters, or of roles, expired ones included."""
    owner = model.session.c.role_id if of_roles else model.session.c.emitter_id
    statement = sa.select(model.session.c.token_hash, owner, model.session.c.expires_at).where(owner.is_not(None))
    return [StoredSession(*row) for row in connection.execute(statement)]


def read_registrations(connection: sa.Connection) -> list[StoredRegistration]:
    """Read the recipients that were registered when the broker last ran."""
    row = model.registration.c
    statement = sa.select(row.role_id, row.token_hash, row.uri, row.place)
    return [StoredRegistration(*row) for row in connection.execute(statement)]


def read_consumers(connection: sa.Connection) -> list[StoredIntroduction]:
    """Read the registered consumers, by the login of their role."""
    statement = (
        sa.select(model.registration.c["metadata"], model.registration.c.features)
        .join(model.role, model.role.c.id == model.registration.c.role_id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(
            model.service.c.kind == "consumer",
            model.role.c.removed_at.is_(None),
            model.registration.c["metadata"].is_not(None),
        )
        .order_by(model.role.c.login)
    )
    return [StoredIntroduction(*row) for row in connection.execute(statement)]
