"""Statements for sessions and registrations."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.states import BotRunState


def _insert_session(owners: sa.Table, column: str) -> sa.Insert:
    """Insert a session of an owner whose password is still the one that was checked.

    An administrator who is changing it has locked the row. That may take long, so the session just does not begin.
    """
    is_verified = (owners.c.id == bindparam("owner_id")) & (owners.c.password_hash == bindparam("verified_hash"))
    owner = (
        sa.select(bindparam("new_hash", type_=model.session.c.token_hash.type), owners.c.id)
        .add_columns(bindparam("new_expiry", type_=model.session.c.expires_at.type))
        .add_columns(bindparam("new_start", type_=model.session.c.started_at.type))
        .add_columns(bindparam("of_ticket", type_=model.session.c.ticket_hash.type))
        .where(is_verified, owners.c.removed_at.is_(None))
        .with_for_update(read=True, skip_locked=True)
    )
    return sa.insert(model.session).from_select(
        ["token_hash", column, "expires_at", "started_at", "ticket_hash"], owner
    )


_INSERT_SESSION_OF_EMITTER = _insert_session(model.emitter, "emitter_id")
_INSERT_SESSION_OF_ROLE = _insert_session(model.role, "role_id")
# Locked, so that the run does not end before the session is there to end with it.
_RUN_UNDER_WAY = (
    sa.select(model.bot_run.c.id)
    .where(model.bot_run.c.ticket_hash == bindparam("of_ticket"), model.bot_run.c.state == BotRunState.RUNNING)
    .with_for_update(read=True, skip_locked=True)
)
_RENEW_SESSION = (
    sa.update(model.session)
    .where(model.session.c.token_hash == bindparam("session_hash"))
    .values(expires_at=bindparam("new_expiry"))
)
_NOTE_TOKEN = (
    sa.update(model.api_token)
    .where(model.api_token.c.token_hash == bindparam("of_token"))
    .values(used_at=bindparam("new_use"))
)
_END_SESSION = sa.delete(model.session).where(model.session.c.token_hash == bindparam("session_hash"))
_DELETE_REGISTRATION = sa.delete(model.registration).where(model.registration.c.role_id == bindparam("of_role"))
_DELETE_OTHER_REGISTRATIONS = _DELETE_REGISTRATION.where(
    model.registration.c.token_hash.not_in(bindparam("beside", expanding=True))
)
_THIS_REGISTRATION = (
    model.registration.c.token_hash == bindparam("session_hash"),
    model.registration.c.uri == bindparam("of_uri"),
)
_DELETE_THIS_REGISTRATION = _DELETE_REGISTRATION.where(*_THIS_REGISTRATION)
_DESCRIBE_THIS_REGISTRATION = (
    sa.update(model.registration)
    .where(model.registration.c.role_id == bindparam("of_role"), *_THIS_REGISTRATION)
    .values(metadata=bindparam("new_metadata"), features=bindparam("new_features"))
)
_INSERT_REGISTRATION = sa.insert(model.registration)


def start_sessions(connection: sa.Connection, group: Sequence[writes.StartSession]) -> list[bool]:
    return [_has_started(connection, write) for write in group]


def _has_started(connection: sa.Connection, write: writes.StartSession) -> bool:
    statement = _INSERT_SESSION_OF_ROLE if write.emitter_id is None else _INSERT_SESSION_OF_EMITTER
    if (
        write.ticket_hash is not None
        and not connection.execute(_RUN_UNDER_WAY, {"of_ticket": write.ticket_hash}).first()
    ):
        return False
    values = {
        "new_hash": write.token_hash,
        "owner_id": write.role_id if write.emitter_id is None else write.emitter_id,
        "new_expiry": write.expires_at,
        "new_start": write.started_at,
        "verified_hash": write.verified_hash,
        "of_ticket": write.ticket_hash,
    }
    return connection.execute(statement, values).rowcount > 0


def renew_sessions(connection: sa.Connection, group: Sequence[writes.RenewSessions]) -> None:
    for write in group:
        for token_hash, expires_at in write.expiries:
            connection.execute(_RENEW_SESSION, {"session_hash": token_hash, "new_expiry": expires_at})


def note_tokens(connection: sa.Connection, group: Sequence[writes.NoteTokens]) -> None:
    for write in group:
        for token_hash in write.token_hashes:
            connection.execute(_NOTE_TOKEN, {"of_token": token_hash, "new_use": write.at})


def end_sessions(connection: sa.Connection, group: Sequence[writes.EndSession]) -> None:
    for write in group:
        connection.execute(_END_SESSION, {"session_hash": write.token_hash})


def store_passwords(connection: sa.Connection, group: Sequence[writes.StorePassword]) -> None:
    for write in group:
        table = model.role if write.emitter_id is None else model.emitter
        owner = write.role_id if write.emitter_id is None else write.emitter_id
        is_verified = (table.c.id == owner) & (table.c.password_hash == write.verified_hash)
        connection.execute(sa.update(table).where(is_verified).values(password_hash=write.better_hash))


def register(connection: sa.Connection, group: Sequence[writes.Register]) -> None:
    for write in group:
        connection.execute(_DELETE_OTHER_REGISTRATIONS, {"of_role": write.role_id, "beside": list(write.beside)})
        row = {
            "role_id": write.role_id,
            "token_hash": write.token_hash,
            "uri": write.uri,
            "place": write.place,
            "registered_at": write.at,
            "metadata": write.metadata,
            "features": write.features,
        }
        connection.execute(_INSERT_REGISTRATION, row)


def introduce(connection: sa.Connection, group: Sequence[writes.Introduce]) -> None:
    for write in group:
        values = {
            "of_role": write.role_id,
            "session_hash": write.token_hash,
            "of_uri": write.uri,
            "new_metadata": write.metadata,
            "new_features": write.features,
        }
        connection.execute(_DESCRIBE_THIS_REGISTRATION, values)


def unregister(connection: sa.Connection, group: Sequence[writes.Unregister]) -> None:
    for write in group:
        values = {"of_role": write.role_id, "session_hash": write.token_hash, "of_uri": write.uri}
        connection.execute(_DELETE_THIS_REGISTRATION, values)
