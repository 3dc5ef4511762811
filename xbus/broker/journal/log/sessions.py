"""Reads sessions, registrations, and recipients' own descriptions. Each function is one short read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from xbus import model

LoginKind = Literal["emitter", "role"]
LOGIN_KINDS: tuple[LoginKind, ...] = ("emitter", "role")


@dataclass(frozen=True, slots=True)
class StoredSession:
    token_hash: bytes
    owner_id: int
    expires_at: datetime
    started_at: datetime | None = None
    is_of_run: bool = False


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


@dataclass(frozen=True, slots=True)
class LoginSessions:
    """The sessions of a login that have not ended.

    Args:
        kind: whose login it is; an emitter and a role may have the same one.
        login: the login.
        sessions: how many there are.
        expires_at: when the last of them ends, unless it is used before that.
    """

    kind: LoginKind
    login: str
    sessions: int
    expires_at: datetime


def read_sessions(connection: sa.Connection, *, of_roles: bool) -> list[StoredSession]:
    """Read all sessions of emitters, or of roles, expired ones included."""
    owner = model.session.c.role_id if of_roles else model.session.c.emitter_id
    row = model.session.c
    is_of_run = row.ticket_hash.is_not(None)
    statement = sa.select(row.token_hash, owner, row.expires_at, row.started_at, is_of_run).where(owner.is_not(None))
    return [StoredSession(*row) for row in connection.execute(statement)]


def read_sessions_of_runs(connection: sa.Connection) -> set[bytes]:
    """Read the token hashes of the sessions that runs of bots have."""
    row = model.session.c
    return set(connection.execute(sa.select(row.token_hash).where(row.ticket_hash.is_not(None))).scalars())


def read_api_tokens(connection: sa.Connection, *, of_roles: bool) -> dict[bytes, int]:
    """Read the owners of the API tokens of emitters, or of roles, by the hashes of the tokens."""
    table = model.role if of_roles else model.emitter
    owner = model.api_token.c.role_id if of_roles else model.api_token.c.emitter_id
    statement = (
        sa.select(model.api_token.c.token_hash, owner)
        .join(table, table.c.id == owner)
        .where(table.c.removed_at.is_(None))
    )
    return dict(iter(connection.execute(statement)))


def read_keys(written: str) -> tuple[str, ...]:
    """Read the public keys in a column, sorted."""
    return tuple(sorted(written.split()))


def read_credentials(connection: sa.Connection, kind: LoginKind, login: str) -> tuple[int, str] | None:
    """Read id and password hash of ``login``; None if it does not exist, is removed, or has no password."""
    table = model.emitter if kind == "emitter" else model.role
    row = connection.execute(
        sa.select(table.c.id, table.c.password_hash).where(
            table.c.login == login, table.c.removed_at.is_(None), table.c.password_hash.is_not(None)
        )
    ).one_or_none()
    return None if row is None else (row.id, row.password_hash)


def read_emitter_logins(connection: sa.Connection) -> dict[int, str]:
    """Read the logins of all emitters, by id."""
    return dict(connection.execute(sa.select(model.emitter.c.id, model.emitter.c.login)).all())


def count_sessions(connection: sa.Connection, now: datetime) -> Sequence[LoginSessions]:
    """List the logins that have sessions: emitters, then roles, each by name.

    Args:
        now: a session that ended before is left out, though its row may still be there.
    """
    owners: Sequence[tuple[LoginKind, sa.Table, sa.Column[int]]] = (
        ("emitter", model.emitter, model.session.c.emitter_id),
        ("role", model.role, model.session.c.role_id),
    )
    return [
        LoginSessions(kind, row.login, row.sessions, row.expires_at)
        for kind, table, owner in owners
        for row in connection.execute(
            sa.select(
                table.c.login,
                sa.func.count().label("sessions"),
                sa.func.max(model.session.c.expires_at).label("expires_at"),
            )
            .join_from(table, model.session, owner == table.c.id)
            .where(model.session.c.expires_at > now)
            .group_by(table.c.login)
            .order_by(table.c.login)
        )
    ]


def read_registrations(connection: sa.Connection) -> list[StoredRegistration]:
    """Read the recipients that were registered when the broker last ran, those first that registered first."""
    row = model.registration.c
    statement = sa.select(row.role_id, row.token_hash, row.uri, row.place).order_by(row.registered_at)
    return [StoredRegistration(*row) for row in connection.execute(statement)]


def read_consumers(connection: sa.Connection) -> list[StoredIntroduction]:
    """Read the registered consumers, one for each role, by its login."""
    statement = (
        sa.select(model.registration.c.role_id, model.registration.c["metadata"], model.registration.c.features)
        .join(model.role, model.role.c.id == model.registration.c.role_id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .where(
            model.service.c.kind == "consumer",
            model.role.c.removed_at.is_(None),
            model.registration.c["metadata"].is_not(None),
        )
        .order_by(model.role.c.login, model.registration.c.registered_at.desc())
    )
    # Of several programs of a role the one that came first remains.
    found = {role_id: StoredIntroduction(*said) for role_id, *said in connection.execute(statement)}
    return list(found.values())
