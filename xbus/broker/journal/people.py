"""People who operate the bus, their rights, their sessions, and the tokens by which programs act for them.

Passwords come as hashes of ``xbus.passwords``. The caller checks them outside of any transaction, as that takes
milliseconds on purpose. Tokens are shown once, and kept as hashes. Each change notes an act in the audit, in the
transaction of the change. The monitor and commands import it, and the broker, which removes expired sessions.

A writer of rows of a person and of its sessions or tokens begins with the person: two writers then never wait for each
other.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import Act, act_here, note_acts
from xbus.broker.journal.configuration.names import is_name
from xbus.errors import Refused
from xbus.ids import Ids, token_hash
from xbus.rights import Person, Right, narrowed, read_rights, write_rights

# -- reading -----------------------------------------------------------------------------------------------------------
# Reads people. Each function is one short read.

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


# -- tokens ------------------------------------------------------------------------------------------------------------
# Tokens by which programs act for a person, with some of the person's rights.

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


# -- sessions ----------------------------------------------------------------------------------------------------------
# Sessions of people who logged in: a token that only the person has, an end, and an earlier end without use.

IDLE = timedelta(hours=1)
"""The time without use after which a session ends. Shorter protects a computer that was left, and logs out more."""

USE_NOTED = timedelta(minutes=1)
"""The age from which a noted use is too old. Shorter shows the last use more exactly, and costs writes."""

_session = model.person_session.c


@dataclass(frozen=True, slots=True)
class PersonSession:
    """A session that has not ended.

    Args:
        used_at: when its use was last noted.
        expires_at: when it ends, whatever its use.
        origin: the address from which the person logged in.
    """

    id: int
    person: Person
    created_at: datetime
    used_at: datetime
    expires_at: datetime
    origin: str

    def needs_renewal(self, at: datetime) -> bool:
        """Check whether its use should be noted again: a write for each page would keep others waiting."""
        return at - self.used_at >= USE_NOTED


def open_session(
    connection: sa.Connection,
    person_id: int,
    origin: str,
    at: datetime,
    lifetime: timedelta,
    *,
    verified_hash: str | None = None,
) -> str:
    """Log a person in, whose password the caller has checked.

    Args:
        origin: the address from which the person logs in.
        lifetime: after this the session ends, whatever its use.
        verified_hash: the hash against which the password was checked; it must be there still.

    Returns:
        The token of the session, which is kept nowhere.

    Raises:
        Refused: the person is disabled or got another password meanwhile (``login_refused``).
    """
    # 1. A password is checked. 2. Somebody disables the person, and ends all sessions. 3. None may begin any more. The
    # change of the person's row lets either come first.
    is_let_in = sa.and_(_person.id == person_id, _person.removed_at.is_(None))
    if verified_hash is not None:
        is_let_in &= _person.password_hash == verified_hash
    seen = sa.update(model.person).where(is_let_in).values(last_seen_at=at)
    if connection.execute(seen).rowcount == 0:
        raise Refused("the person is disabled, or has another password now", "log in again", code="login_refused")
    token = Ids().token()
    name = person_name(connection, person_id)
    row = {"person_id": person_id, "token_hash": token_hash(token), "origin": origin[:255]}
    moments = {"created_at": at, "used_at": at, "expires_at": at + lifetime}
    connection.execute(sa.insert(model.person_session).values(**row, **moments))
    note_acts(connection, [Act(at, name, origin, "login_accepted", f'person "{name}"')])
    return token


def find_session(connection: sa.Connection, token: str, at: datetime, idle: timedelta = IDLE) -> PersonSession | None:
    """Find the session of a token; None if it is unknown, has ended, or its person is disabled.

    Args:
        idle: the time without use after which it has ended.
    """
    wanted = (
        sa.select(
            *PERSON_COLUMNS,
            _session.id.label("session_id"),
            _session.created_at.label("began_at"),
            _session.used_at,
            _session.expires_at,
            _session.origin,
        )
        .join_from(model.person_session, model.person)
        .where(
            _session.token_hash == token_hash(token),
            _session.expires_at > at,
            _session.used_at > at - idle,
            _person.removed_at.is_(None),
        )
    )
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    return PersonSession(row.session_id, as_person(row), row.began_at, row.used_at, row.expires_at, row.origin)


def renew_session(connection: sa.Connection, session_id: int, at: datetime) -> None:
    """Note that a session is used; see :meth:`PersonSession.needs_renewal`."""
    whose = sa.select(_session.person_id).where(_session.id == session_id).scalar_subquery()
    connection.execute(sa.update(model.person).where(_person.id == whose).values(last_seen_at=at))
    connection.execute(sa.update(model.person_session).where(_session.id == session_id).values(used_at=at))


def end_session(connection: sa.Connection, session_id: int, at: datetime) -> None:
    """Log a person out of one session; one that has ended stays so."""
    ended = sa.delete(model.person_session).where(_session.id == session_id).returning(_session.person_id)
    person_id = connection.execute(ended).scalar_one_or_none()
    if person_id is not None:
        name = person_name(connection, person_id)
        note_acts(connection, [act_here(at, "logged_out", f'person "{name}"')])


def end_sessions(connection: sa.Connection, person_id: int, at: datetime) -> int:
    """End all sessions of a person.

    Returns:
        How many there were.

    Raises:
        Refused: there is no such person (``unknown_person``).
    """
    name = person_name(connection, person_id)
    note_acts(connection, [act_here(at, "sessions_ended", f'person "{name}"')])
    return delete_sessions(connection, person_id)


def delete_sessions(connection: sa.Connection, person_id: int) -> int:
    """Delete the sessions of a person, as a part of a change that notes it; returns how many there were."""
    return connection.execute(sa.delete(model.person_session).where(_session.person_id == person_id)).rowcount


def count_sessions_of(connection: sa.Connection, at: datetime, idle: timedelta = IDLE) -> dict[int, int]:
    """Count the sessions of each person that has some, by its id.

    Args:
        idle: the time without use after which one has ended.
    """
    open_ones = sa.select(_session.person_id, sa.func.count()).where(
        _session.expires_at > at, _session.used_at > at - idle
    )
    return dict(connection.execute(open_ones.group_by(_session.person_id)).all())


def remove_expired(connection: sa.Connection, at: datetime, idle: timedelta = IDLE) -> int:
    """Remove the rows of sessions that have ended by themselves; returns how many there were.

    It waits for nobody: rows that somebody else is about to end are left to them.
    """
    is_over = sa.or_(_session.expires_at <= at, _session.used_at <= at - idle)
    found = sa.select(_session.id).where(is_over).with_for_update(skip_locked=True)
    return connection.execute(sa.delete(model.person_session).where(_session.id.in_(found))).rowcount


# -- changing ----------------------------------------------------------------------------------------------------------
# Adds people, and changes what they may do. The bus never loses its last manager that way.


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
