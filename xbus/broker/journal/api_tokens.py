"""API tokens of emitters and roles, by which their programs call without a login."""

import re
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here
from xbus.broker.journal.configuration.history import new_version
from xbus.broker.journal.configuration.logins import of_programs
from xbus.broker.journal.configuration.names import is_name
from xbus.errors import ConfigurationError
from xbus.ids import Ids, token_hash

LEAST_LETTERS = 16
"""The letters of a token that its maker chooses. Fewer can be guessed."""

MARK = "xbus_api_"
"""The beginning of each API token, by which programs that search texts for secrets recognise it."""

_CHOSEN = re.compile(rf"[A-Za-z0-9_.~-]{{{LEAST_LETTERS},255}}")
"""A token that is a user name of HTTP, too: it has no colon."""

_token = model.api_token.c


@dataclass(frozen=True, slots=True)
class ApiToken:
    """An API token, without its secret.

    Args:
        name: what operators call it.
        emitter: the login of the emitter whose it is at the front; None for none.
        role: the login of the role whose it is at the back; None for none.
        used_at: when its use was last noted; None for never.
    """

    name: str
    emitter: str | None
    role: str | None
    created_at: datetime
    used_at: datetime | None


def add_api_token(
    connection: sa.Connection,
    name: str,
    *,
    emitter: str | None = None,
    role: str | None = None,
    chosen: str | None = None,
    at: datetime,
) -> str:
    """Let programs call as an emitter, as a role, or as either, until the token is revoked.

    Args:
        name: what operators call it; no other API token has it.
        emitter: the login of a program's emitter in use; what the bus has of its own gets no tokens.
        role: the login of a program's role in use, likewise.
        chosen: a token that programs have already; None for a new one.
        at: the moment of the change.

    Returns:
        The token, which is kept nowhere.

    Raises:
        ConfigurationError: the name is invalid (``bad_name``) or taken (``name_taken``), nobody is named
            (``owner_missing``), no such emitter or role is in use (``unknown_login``), or the chosen token can be
            guessed (``bad_token``) or is there already (``token_taken``).
    """
    if not is_name(name):
        step = "take 1 to 255 printable characters, without blanks around them"
        raise ConfigurationError(f"{name[:40]!a} is no name", step, code="bad_name")
    if emitter is None and role is None:
        raise ConfigurationError(
            "the token has no owner", "name an emitter, a role, or one of each", code="owner_missing"
        )
    if connection.execute(sa.select(_token.id).where(_token.name == name)).first() is not None:
        raise ConfigurationError(
            f'there is an API token "{name}" already', "choose another name, or revoke that one", code="name_taken"
        )
    token = _new_token() if chosen is None else _checked(connection, chosen)
    row = {
        "name": name,
        "token_hash": token_hash(token),
        "emitter_id": _owner(connection, model.emitter, emitter),
        "role_id": _owner(connection, model.role, role),
        "created_at": at,
    }
    whose = _whose(emitter, role)
    act = act_here(at, "api_token_added", f'API token "{name}"', after=whose)
    with new_version(connection, "API token added", f'API token "{name}" of {whose}', at, acts=[act]):
        connection.execute(sa.insert(model.api_token).values(**row))
    return token


def _new_token() -> str:
    """Make a token in lower case, of up to 64 letters: clients of Routemaster take no other."""
    return MARK + Ids().hex_token()


def _checked(connection: sa.Connection, chosen: str) -> str:
    if not _CHOSEN.fullmatch(chosen):
        cause = "the chosen token is too short, or has letters that a user name of HTTP can't have"
        step = f"take {LEAST_LETTERS} to 255 random letters, digits, dots, hyphens and underscores"
        raise ConfigurationError(cause, step, code="bad_token")
    if connection.execute(sa.select(_token.id).where(_token.token_hash == token_hash(chosen))).first() is not None:
        raise ConfigurationError("this token is an API token already", "choose another one", code="token_taken")
    return chosen


def list_api_tokens(connection: sa.Connection) -> list[ApiToken]:
    """List the API tokens by name."""
    statement = (
        sa.select(_token.name, model.emitter.c.login, model.role.c.login, _token.created_at, _token.used_at)
        .select_from(model.api_token)
        .outerjoin(model.emitter, model.emitter.c.id == _token.emitter_id)
        .outerjoin(model.role, model.role.c.id == _token.role_id)
        .order_by(_token.name)
    )
    return [ApiToken(*row) for row in connection.execute(statement)]


def revoke_api_token(connection: sa.Connection, name: str, at: datetime) -> None:
    """Let no program call by an API token any more.

    Raises:
        ConfigurationError: no API token has the name (``unknown_token``).
    """
    act = act_here(at, "api_token_revoked", f'API token "{name}"')
    with new_version(connection, "API token revoked", f'API token "{name}"', at, acts=[act]):
        is_gone = is_name(name) and connection.execute(sa.delete(model.api_token).where(_token.name == name)).rowcount
        if not is_gone:
            raise ConfigurationError(
                f'there is no API token "{name}"', "xbus token list shows all of them", code="unknown_token"
            )


def _owner(connection: sa.Connection, table: sa.Table, login: str | None) -> int | None:
    if login is None:
        return None
    of_login = sa.select(table.c.id).where(table.c.login == login, of_programs(table))
    found: int | None = connection.execute(of_login).scalar_one_or_none()
    if found is None:
        raise ConfigurationError(
            f'there is no {table.name} "{login}"', "xbus export shows all logins", code="unknown_login"
        )
    return found


def _whose(emitter: str | None, role: str | None) -> str:
    named = (f'{kind} "{login}"' for kind, login in (("emitter", emitter), ("role", role)) if login is not None)
    return " and ".join(named)
