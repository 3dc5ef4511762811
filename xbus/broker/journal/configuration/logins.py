"""The passwords of emitters and roles: set by an administrator, never read back."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, select, update

from xbus.broker.journal.configuration.history import new_version
from xbus.errors import ConfigurationError
from xbus.model import emitter, role


def set_password(
    connection: Connection, kind: Literal["emitter", "role"], login: str, password_hash: str, at: datetime
) -> None:
    """Let ``login`` in with another password from now on; sessions that are open stay so.

    Args:
        kind: whose login it is; an emitter and a role may have the same one.
        login: the login, in use.
        password_hash: made by ``xbus.passwords``.
        at: the moment of the change.

    Raises:
        ConfigurationError: no such emitter or role is in use.
    """
    table = emitter if kind == "emitter" else role
    in_use = (table.c.login == login) & table.c.removed_at.is_(None)
    found = connection.execute(update(table).where(in_use).values(password_hash=password_hash))
    if found.rowcount == 0:
        raise ConfigurationError(f'there is no {kind} "{login}"', "xbus export shows all logins", code="unknown_login")
    new_version(connection, "password set", f'password of {kind} "{login}"', at)


def logins_without_password(connection: Connection) -> Iterator[tuple[Literal["emitter", "role"], str]]:
    """List kind and login of those in use who can't log in because nobody has set a password."""
    kinds: tuple[Literal["emitter", "role"], ...] = ("emitter", "role")
    for kind, table in zip(kinds, (emitter, role), strict=True):
        missing = select(table.c.login).where(table.c.removed_at.is_(None), table.c.password_hash.is_(None))
        for login in connection.execute(missing.order_by(table.c.login)).scalars().all():
            yield kind, login
