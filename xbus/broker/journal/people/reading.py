"""Reads people. Each function is one short read."""

from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.configuration.names import is_name
from xbus.errors import Refused
from xbus.rights import Person, read_rights

_row = model.person.c
PERSON_COLUMNS = (_row.id, _row.login, _row.rights, _row.removed_at, _row.created_at, _row.last_seen_at)
"""The columns of :func:`as_person`, at the beginning of a row."""


def list_persons(connection: sa.Connection) -> list[Person]:
    """List all people by name, disabled ones too."""
    return [as_person(row) for row in connection.execute(sa.select(*PERSON_COLUMNS).order_by(_row.login))]


def find_person(connection: sa.Connection, name: str) -> Person | None:
    """Find a person, disabled or not; None where nobody has the name."""
    if not is_name(name):
        return None  # strangers may ask for anything, also for what no database takes
    found = connection.execute(sa.select(*PERSON_COLUMNS).where(_row.login == name)).one_or_none()
    return None if found is None else as_person(found)


def known_person(connection: sa.Connection, name: str) -> Person:
    """Find a person who must be there.

    Raises:
        Refused: nobody has the name (``unknown_person``).
    """
    found = find_person(connection, name)
    if found is None:
        shown = name if name.isprintable() else ascii(name)[1:-1]
        raise Refused(f'there is no person "{shown}"', "xbus person list shows all of them", code="unknown_person")
    return found


def person_name(connection: sa.Connection, person_id: int) -> str:
    """Read the name of a person by its id.

    Raises:
        Refused: nobody has the id (``unknown_person``).
    """
    name: str | None = connection.execute(sa.select(_row.login).where(_row.id == person_id)).scalar_one_or_none()
    if name is None:
        raise Refused(f"there is no person {person_id}", "xbus person list shows all of them", code="unknown_person")
    return name


def read_password_hash(connection: sa.Connection, name: str) -> tuple[Person, str | None] | None:
    """Read the hash of a person's password, None for no password; None where nobody has the name.

    To check a password takes milliseconds on purpose: do it after the transaction, and for nobody, too.
    """
    if not is_name(name):
        return None
    wanted = sa.select(*PERSON_COLUMNS, _row.password_hash).where(_row.login == name)
    found = connection.execute(wanted).one_or_none()
    return None if found is None else (as_person(found), found.password_hash)


def as_person(row: sa.Row[*tuple[Any, ...]]) -> Person:
    """Make a person of a row that begins with ``PERSON_COLUMNS``."""
    person_id, login, rights, removed_at, created_at, last_seen_at, *_ = row
    return Person(person_id, login, read_rights(rights), removed_at, created_at, last_seen_at)


def check_name(name: str) -> None:
    """Let the name of a person or a token pass.

    Raises:
        Refused: people could not tell it from others, or it is too long (``bad_name``).
    """
    # Browsers take . and .. for a way, so nobody could open the page of such a name.
    if not is_name(name) or name in (".", ".."):
        # "!a" shows what people would not see.
        cause = f"{name[:40]!a} is no name"
        raise Refused(cause, "take 1 to 255 printable characters, without blanks around them", code="bad_name")
