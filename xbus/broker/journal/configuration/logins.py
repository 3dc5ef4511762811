"""The logins of emitters and roles: passwords, which nobody reads back, public keys, and the end of sessions."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, select, update

from xbus.broker.journal.audit import act_here
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.log.sessions import LOGIN_KINDS, LoginKind, read_keys
from xbus.errors import ConfigurationError
from xbus.model import api_token, emitter, emitting_service, registration, role, session


def set_password(
    connection: Connection,
    kind: LoginKind,
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


def end_login(connection: Connection, kind: LoginKind, login: str, at: datetime) -> int:
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
        check_login(connection, kind, login)
        return end_sessions(connection, table, login)


def check_login(connection: Connection, kind: LoginKind, login: str) -> None:
    """Let a login pass that is in use.

    Raises:
        ConfigurationError: no such emitter or role is in use (``unknown_login``).
    """
    if connection.execute(select(_table(kind).c.id).where(_in_use(_table(kind), login))).first() is None:
        raise _unknown(kind, login)


@dataclass(frozen=True, slots=True)
class LoginKeys:
    """The public keys by which a login may be used over encrypted connections."""

    kind: LoginKind
    login: str
    keys: tuple[str, ...]


def list_keys(connection: Connection) -> list[LoginKeys]:
    """List the logins in use that have keys: emitters, then roles, each by name."""
    found = []
    for kind in LOGIN_KINDS:
        table = _table(kind)
        with_keys = select(table.c.login, table.c.public_keys).where(
            table.c.removed_at.is_(None), table.c.public_keys != ""
        )
        for row in connection.execute(with_keys.order_by(table.c.login)):
            found.append(LoginKeys(kind, row.login, read_keys(row.public_keys)))
    return found


def allow_key(connection: Connection, kind: LoginKind, login: str, key: str, at: datetime) -> None:
    """Let a login be used by a public key, beside those that it has.

    Args:
        kind: whose login it is.
        login: the login, in use.
        key: in Z85.
        at: the moment of the change.

    Raises:
        ConfigurationError: no such emitter or role is in use.
    """
    table = _table(kind)
    act = act_here(at, "key_allowed", f'{kind} "{login}"', after=key)
    with new_version(connection, "key allowed", f'key {key} of {kind} "{login}"', at, acts=[act]):
        present = connection.execute(select(table.c.public_keys).where(_in_use(table, login))).scalar_one_or_none()
        if present is None:
            raise _unknown(kind, login)
        written = _written({*read_keys(present), key})
        connection.execute(update(table).where(_in_use(table, login)).values(public_keys=written))


def revoke_key(connection: Connection, key: str, at: datetime) -> list[LoginKeys]:
    """Let no login be used by a public key any more, and end the sessions of those that had it.

    Args:
        key: in Z85.
        at: the moment of the change.

    Returns:
        The logins that had it, with the keys that they have left.

    Raises:
        ConfigurationError: no login in use has the key (``unknown_key``).
    """
    found = [each for each in list_keys(connection) if key in each.keys]
    if not found:
        raise ConfigurationError(f"no login has the key {key}", "xbus keys list shows all of them", code="unknown_key")
    told = ", ".join(f'{each.kind} "{each.login}"' for each in found)
    acts = [act_here(at, "key_revoked", f'{each.kind} "{each.login}"', before=key) for each in found]
    with new_version(connection, "key revoked", f"key {key} of {told}", at, acts=acts):
        left = [LoginKeys(each.kind, each.login, tuple(k for k in each.keys if k != key)) for each in found]
        for each in left:
            table = _table(each.kind)
            written = replace_keys(connection, table, each.login, each.keys)
            connection.execute(update(table).where(_in_use(table, each.login)).values(public_keys=written))
    return left


def replace_keys(connection: Connection, table: Table, login: str, keys: Collection[str]) -> str:
    """Write the new keys of a login for its column; if an old key is gone, all its sessions end.

    Args:
        table: ``emitter`` or ``role``.
        login: it may be new.
        keys: the public keys that it has from now on.
    """
    present = connection.execute(select(table.c.public_keys).where(table.c.login == login)).scalar_one_or_none()
    if set(read_keys(present or "")) - set(keys):
        end_sessions(connection, table, login)
    return _written(keys)


def _written(keys: Collection[str]) -> str:
    return " ".join(sorted(keys))


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


def delete_api_tokens(connection: Connection, table: Table, login: str) -> None:
    """Delete the API tokens of a removed emitter or role, as a part of a change that notes it.

    Args:
        table: ``emitter`` or ``role``.
    """
    owner = select(table.c.id).where(table.c.login == login).scalar_subquery()
    column = api_token.c.emitter_id if table is emitter else api_token.c.role_id
    connection.execute(delete(api_token).where(column == owner))


def _table(kind: LoginKind) -> Table:
    return emitter if kind == "emitter" else role


def _in_use(table: Table, login: str) -> ColumnElement[bool]:
    return (table.c.login == login) & of_programs(table)


def of_programs(table: Table) -> ColumnElement[bool]:
    """Select the logins in use by which programs may come, and not those that the bus has of its own."""
    if table is emitter:
        return emitter.c.removed_at.is_(None) & (emitter.c.kind == "program")
    is_own = exists().where(emitting_service.c.service_id == role.c.service_id)
    return role.c.removed_at.is_(None) & ~is_own


def _unknown(kind: str, login: str) -> ConfigurationError:
    return ConfigurationError(f'there is no {kind} "{login}"', "xbus export shows all logins", code="unknown_login")


def logins_without_password(connection: Connection) -> Iterator[tuple[LoginKind, str]]:
    """List kind and login of those in use who have neither a password nor an API token."""
    for kind in LOGIN_KINDS:
        table = _table(kind)
        column = api_token.c.emitter_id if table is emitter else api_token.c.role_id
        has_token = exists().where(column == table.c.id)
        missing = select(table.c.login).where(of_programs(table), table.c.password_hash.is_(None), ~has_token)
        for login in connection.execute(missing.order_by(table.c.login)).scalars().all():
            yield kind, login
