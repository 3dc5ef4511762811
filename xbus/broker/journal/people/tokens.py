"""Tokens by which programs act for a person, with some of the person's rights."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.configuration.names import is_name
from xbus.broker.journal.people.reading import PERSON_COLUMNS, as_person, check_name, person_name
from xbus.errors import Refused
from xbus.ids import Ids, token_hash
from xbus.rights import Person, Right, narrowed, read_rights, write_rights

MARK = "xbus_"
"""The beginning of each token, by which programs that search texts for secrets recognise it."""

_token = model.person_token.c
_person = model.person.c


@dataclass(frozen=True, slots=True)
class PersonToken:
    """A token of a person.

    Args:
        name: as the person calls it.
        rights: those to which it is narrowed; it has no other than its person.
        used_at: when its use was last noted; None for never.
        expires_at: when it ends; None for never.
    """

    id: int
    name: str
    rights: frozenset[Right]
    created_at: datetime
    used_at: datetime | None
    expires_at: datetime | None


def add_token(
    connection: sa.Connection,
    person_id: int,
    name: str,
    rights: Collection[Right],
    expires_at: datetime | None,
    at: datetime,
) -> str:
    """Let a program act for a person.

    Args:
        name: that tells it from the person's other tokens.
        rights: the only ones that it has, as far as the person has them, too.
        expires_at: when it ends; None for never.

    Returns:
        The token, which is kept nowhere.

    Raises:
        Refused: the name is invalid (``bad_name``) or taken (``name_taken``), or nobody in use has the id
            (``unknown_person``).
    """
    check_name(name)
    # Who disables the person removes the tokens, and must not miss one. The lock lets either come first.
    in_use = sa.select(_person.login).where(_person.id == person_id, _person.removed_at.is_(None))
    whose: str | None = connection.execute(in_use.with_for_update()).scalar_one_or_none()
    if whose is None:
        raise Refused("nobody in use has this id", "xbus person list shows all of them", code="unknown_person")
    if connection.execute(sa.select(_token.id).where(_is(person_id, name))).first() is not None:
        raise Refused(f'"{whose}" has a token "{name}" already', "choose another name", code="name_taken")
    token = MARK + Ids().token()
    row = {"person_id": person_id, "name": name, "token_hash": token_hash(token), "rights": write_rights(rights)}
    connection.execute(sa.insert(model.person_token).values(**row, created_at=at, expires_at=expires_at))
    until = "" if expires_at is None else f", until {expires_at:%Y-%m-%d %H:%M:%SZ}"
    after = f'token "{name}": {write_rights(rights)}{until}'
    note_acts(connection, [act_here(at, "token_added", f'person "{whose}"', after=after)])
    return token


def find_token(connection: sa.Connection, token: str, at: datetime) -> Person | None:
    """Find the person of a token, with the rights that the token has.

    Returns:
        None if the token is unknown or has ended, or its person is disabled.
    """
    wanted = (
        sa.select(*PERSON_COLUMNS, _token.rights.label("narrowed_to"))
        .join_from(model.person_token, model.person)
        .where(
            _token.token_hash == token_hash(token),
            sa.or_(_token.expires_at.is_(None), _token.expires_at > at),
            _person.removed_at.is_(None),
        )
    )
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    person = as_person(row)
    return replace(person, rights=narrowed(person.rights, read_rights(row.narrowed_to)))


def mark_token_used(connection: sa.Connection, token: str, at: datetime) -> None:
    """Note that a token is used. A write for each call would keep others waiting: once a minute is enough."""
    is_used = _token.token_hash == token_hash(token)
    whose = sa.select(_token.person_id).where(is_used).scalar_subquery()
    connection.execute(sa.update(model.person).where(_person.id == whose).values(last_seen_at=at))
    connection.execute(sa.update(model.person_token).where(is_used).values(used_at=at))


def list_tokens(connection: sa.Connection, person_id: int) -> list[PersonToken]:
    """List the tokens of a person by name, also those that have ended."""
    rows = connection.execute(sa.select(model.person_token).where(_token.person_id == person_id).order_by(_token.name))
    return [
        PersonToken(row.id, row.name, read_rights(row.rights), row.created_at, row.used_at, row.expires_at)
        for row in rows
    ]


def remove_token(connection: sa.Connection, person_id: int, name: str, at: datetime) -> None:
    """Let a program act for a person no longer.

    Raises:
        Refused: there is no such person (``unknown_person``) or token (``unknown_token``).
    """
    whose = person_name(connection, person_id)
    # Strangers may ask for anything, also for what no database takes.
    is_gone = is_name(name) and connection.execute(sa.delete(model.person_token).where(_is(person_id, name))).rowcount
    if not is_gone:
        raise Refused(f'"{whose}" has no token "{name}"', "xbus person token list shows all", code="unknown_token")
    note_acts(connection, [act_here(at, "token_removed", f'person "{whose}"', before=f'token "{name}"')])


def delete_tokens(connection: sa.Connection, person_id: int) -> None:
    """Delete the tokens of a person, as a part of a change that notes it."""
    connection.execute(sa.delete(model.person_token).where(_token.person_id == person_id))


def _is(person_id: int, name: str) -> sa.ColumnElement[bool]:
    return (_token.person_id == person_id) & (_token.name == name)
