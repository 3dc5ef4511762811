"""Sessions of people who logged in: a token that only the person has, an end, and an earlier end without use."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import Act, act_here, note_acts
from xbus.broker.journal.people.reading import PERSON_COLUMNS, as_person, person_name
from xbus.errors import Refused
from xbus.ids import Ids, token_hash
from xbus.rights import Person

IDLE = timedelta(hours=1)
"""The time without use after which a session ends. Shorter protects a computer that was left, and logs out more."""

USE_NOTED = timedelta(minutes=1)
"""The age from which a noted use is too old. Shorter shows the last use more exactly, and costs writes."""

_session = model.person_session.c
_person = model.person.c


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


def replace_hash(connection: sa.Connection, person_id: int, verified_hash: str, better_hash: str) -> None:
    """Keep the same password under a better hash; one that was set meanwhile stays.

    Args:
        verified_hash: the present hash, which the password fits.
        better_hash: of the same password, as ``xbus.passwords`` makes it today.
    """
    is_verified = (_person.id == person_id) & (_person.password_hash == verified_hash)
    connection.execute(sa.update(model.person).where(is_verified).values(password_hash=better_hash))
