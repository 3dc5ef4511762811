"""The logins of emitters and roles: their passwords, which nobody reads back, and the end of their sessions."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, Connection, Table, delete, select, update

from xbus.broker.journal.audit import act_here
from xbus.broker.journal.configuration.history import new_version
from xbus.errors import ConfigurationError
from xbus.model import emitter, registration, role, session


def set_password(
    connection: Connection,
    kind: Literal["emitter", "role"],
    login: str,
    password_hash: str,
    at: datetime,
    *,
    keep_sessions: bool = False,
) -> None:
    """Let ``login`` in with another password from now on.

    Args:
        kind: whose login it is; an emitter and a role may have the same one.
        login: the login, in use.
        password_hash: made by ``xbus.passwords``.
        at: the moment of the change.
        keep_sessions: whether who is logged in stays so.

    Raises:
        ConfigurationError: no such emitter or role is in use.
    """
    table = _table(kind)
    act = act_here(
        at, "password_set", f'{kind} "{login}"', after="sessions kept" if keep_sessions else "sessions ended"
    )
    with new_version(connection, "password set", f'password of {kind} "{login}"', at, acts=[act]):
        found = connection.execute(update(table).where(_in_use(table, login)).values(password_hash=password_hash))
        if found.rowcount == 0:
            raise _unknown(kind, login)
        if not keep_sessions:
            end_sessions(connection, table, login)


def end_login(connection: Connection, kind: Literal["emitter", "role"], login: str, at: datetime) -> int:
    """End all sessions of a login by an administrator's word.

    Args:
        kind: whose login it is.
        login: the login, in use.
        at: the moment of the change.

    Returns:
        How many sessions there were.

    Raises:
        ConfigurationError: no such emitter or role is in use.
    """
    table = _table(kind)
    act = act_here(at, "sessions_ended", f'{kind} "{login}"')
    with new_version(connection, "sessions ended", f'sessions of {kind} "{login}"', at, acts=[act]):
        if connection.execute(select(table.c.id).where(_in_use(table, login))).first() is None:
            raise _unknown(kind, login)
        return end_sessions(connection, table, login)


def end_sessions(connection: Connection, table: Table, login: str) -> int:
    """End all sessions of an emitter or a role, and the registration of its recipient.

    A running broker ends them too, when it reads the new version of the configuration.

    Args:
        table: ``emitter`` or ``role``.

    Returns:
        How many sessions there were.
    """
    owner = select(table.c.id).where(table.c.login == login).scalar_subquery()
    ended = connection.execute(
        delete(session).where((session.c.emitter_id if table is emitter else session.c.role_id) == owner)
    )
    if table is role:
        connection.execute(delete(registration).where(registration.c.role_id == owner))
    return ended.rowcount


def _table(kind: Literal["emitter", "role"]) -> Table:
    return emitter if kind == "emitter" else role


def _in_use(table: Table, login: str) -> ColumnElement[bool]:
    return (table.c.login == login) & table.c.removed_at.is_(None)


def _unknown(kind: str, login: str) -> ConfigurationError:
    return ConfigurationError(f'there is no {kind} "{login}"', "xbus export shows all logins", code="unknown_login")


def logins_without_password(connection: Connection) -> Iterator[tuple[Literal["emitter", "role"], str]]:
    """List kind and login of those in use who can't log in because nobody has set a password."""
    kinds: tuple[Literal["emitter", "role"], ...] = ("emitter", "role")
    for kind, table in zip(kinds, (emitter, role), strict=True):
        missing = select(table.c.login).where(table.c.removed_at.is_(None), table.c.password_hash.is_(None))
        for login in connection.execute(missing.order_by(table.c.login)).scalars().all():
            yield kind, login
