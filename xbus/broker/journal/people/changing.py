"""Adds people, and changes what they may do. The bus never loses its last manager that way."""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.people.reading import PERSON_COLUMNS, as_person, check_name, find_person, known_person
from xbus.broker.journal.people.sessions import delete_sessions
from xbus.broker.journal.people.tokens import delete_tokens
from xbus.errors import Refused
from xbus.rights import Person, Right, write_rights

_person = model.person.c


def add_person(
    connection: sa.Connection, name: str, rights: Collection[Right], password_hash: str | None, at: datetime
) -> Person:
    """Add a person.

    Args:
        name: the login.
        rights: none lets the person view.
        password_hash: made by ``xbus.passwords``; None for one who can't log in yet.
        at: the moment of the change.

    Raises:
        Refused: the name is invalid (``bad_name``), or somebody has or had it (``name_taken``).
    """
    check_name(name)
    before = find_person(connection, name)
    if before is not None:
        hint = (
            "choose another name" if before.disabled_at is None else "enable the person again, or choose another name"
        )
        raise Refused(f'there is a person "{name}" already', hint, code="name_taken")
    row = {"login": name, "rights": write_rights(rights), "password_hash": password_hash, "created_at": at}
    connection.execute(sa.insert(model.person).values(row))
    note_acts(connection, [act_here(at, "added", f'person "{name}"', after=write_rights(rights))])
    return known_person(connection, name)


def set_rights(connection: sa.Connection, name: str, rights: Collection[Right], at: datetime) -> None:
    """Give a person these rights, and no others, at once.

    Raises:
        Refused: nobody has the name (``unknown_person``), or it is the last manager (``last_manager``).
    """
    person = _locked(connection, name)
    if Right.MANAGER not in rights:
        _check_others_manage(connection, person)
    connection.execute(sa.update(model.person).where(_person.id == person.id).values(rights=write_rights(rights)))
    act = act_here(at, "rights_set", f'person "{name}"', before=write_rights(person.rights), after=write_rights(rights))
    note_acts(connection, [act])


def set_password(
    connection: sa.Connection, name: str, password_hash: str, at: datetime, *, verified_hash: str | None = None
) -> None:
    """Let a person in with another password from now on, and end all sessions. Tokens stay.

    Args:
        password_hash: made by ``xbus.passwords``.
        verified_hash: the hash against which the present password was checked; it must be there still.

    Raises:
        Refused: nobody has the name (``unknown_person``), or the person got another password meanwhile
            (``login_refused``).
    """
    person = _locked(connection, name)
    is_meant = _person.id == person.id
    if verified_hash is not None:
        is_meant &= _person.password_hash == verified_hash
    if connection.execute(sa.update(model.person).where(is_meant).values(password_hash=password_hash)).rowcount == 0:
        raise Refused("the password was changed meanwhile", "log in with the new one", code="login_refused")
    delete_sessions(connection, person.id)
    note_acts(connection, [act_here(at, "password_set", f'person "{name}"', after="sessions ended")])


def disable_person(connection: sa.Connection, name: str, at: datetime) -> None:
    """Let a person do nothing any more: all sessions end, and all tokens are gone for good.

    Raises:
        Refused: nobody has the name (``unknown_person``), or it is the last manager (``last_manager``).
    """
    person = _locked(connection, name)
    _check_others_manage(connection, person)
    if person.disabled_at is None:
        connection.execute(sa.update(model.person).where(_person.id == person.id).values(removed_at=at))
        delete_sessions(connection, person.id)
        delete_tokens(connection, person.id)
        note_acts(connection, [act_here(at, "disabled", f'person "{name}"', before=write_rights(person.rights))])


def enable_person(connection: sa.Connection, name: str, at: datetime) -> None:
    """Let a disabled person work again, with the rights and the password of before.

    Raises:
        Refused: nobody has the name (``unknown_person``).
    """
    person = _locked(connection, name)
    if person.disabled_at is not None:
        connection.execute(sa.update(model.person).where(_person.id == person.id).values(removed_at=None))
        note_acts(connection, [act_here(at, "enabled", f'person "{name}"', after=write_rights(person.rights))])


def _locked(connection: sa.Connection, name: str) -> Person:
    """Read a person, and let nobody else change people meanwhile.

    1. Two managers are there. 2. Two commands see the other one, and disable one each. 3. Nobody is left. So all that
    change people lock them all, in one order; they are few.
    """
    connection.execute(sa.select(_person.id).order_by(_person.id).with_for_update())
    return known_person(connection, name)


def _check_others_manage(connection: sa.Connection, person: Person) -> None:
    if not person.may(Right.MANAGER):
        return
    others = sa.select(*PERSON_COLUMNS).where(_person.id != person.id, _person.removed_at.is_(None))
    if not any(as_person(row).may(Right.MANAGER) for row in connection.execute(others)):
        raise Refused(
            f'"{person.name}" is the last manager', "give somebody else the right manager first", code="last_manager"
        )
