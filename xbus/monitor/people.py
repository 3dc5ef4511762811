"""The persons who use the monitor: it knows them by their sessions and tokens, and lets them in and out."""

import asyncio
import math
import threading
from dataclasses import dataclass
from shlex import quote

from xbus.broker.journal import people
from xbus.broker.journal.audit import Act, acting_as, note_acts
from xbus.broker.journal.database.connection import ConnectionPool
from xbus.broker.logins import Caller, LoginTally, LoginTurns, WrongGuesses
from xbus.clock import Clock, span
from xbus.config import MonitorSettings
from xbus.errors import Failed, Refused
from xbus.passwords import Passwords
from xbus.rights import Person, Right


class NotLoggedIn(Refused):
    """The request names no session and no token that is in force."""

    default_code = "not_logged_in"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who asks the monitor.

    Args:
        origin: the address from which the person asks.
        session_id: the person's session; None for a program that has a token.
    """

    person: Person
    origin: str
    session_id: int | None = None

    def may(self, right: Right) -> bool:
        """Check whether the person has a right."""
        return self.person.may(right)

    def check(self, right: Right) -> None:
        """Let a person pass who has a right.

        Raises:
            Refused: the person lacks it (``forbidden``).
        """
        if not self.may(right):
            raise Refused(
                f"{self.person.name} lacks the right {right}",
                f"ask a manager for it, who gives it by: xbus person rights {quote(self.person.name)} ... {right}",
                code="forbidden",
            )


HASHED_AT_ONCE = 1
"""A hash takes a core and memory on purpose; persons must leave the others to the broker."""


class GuardedPasswords:
    """The passwords of persons; safe for threads.

    Args:
        passwords: makes and compares hashes.
        clock: measures the pauses after wrong guesses.
    """

    def __init__(self, passwords: Passwords, clock: Clock) -> None:
        self._passwords = passwords
        self._guesses = WrongGuesses(clock)
        self._hashing = threading.Semaphore(HASHED_AT_ONCE)

    def hash_password(self, password: str) -> str:
        """Hash a new password for storage."""
        with self._hashing:
            return self._passwords.hash_password(password)

    def verify(self, password: str, password_hash: str | None) -> bool:
        """Check whether a password is the one behind a hash.

        Args:
            password_hash: as stored; None for a person who does not exist or may not come in.
        """
        with self._hashing:
            return self._passwords.verify(password, password_hash)

    def confirm(self, session_id: int, password: str, password_hash: str | None) -> bool:
        """Check the password of a person who is logged in, and count a wrong one against the session.

        Log-ins under the same name count elsewhere: strangers who guess must not keep this person from a new password.

        Raises:
            Failed: after wrong guesses in this session the next one must wait (``slow_down``).
        """
        session = f"session {session_id}"
        if (seconds := self._guesses.pause(session, session)) > 0:
            raise Failed("there were wrong passwords in this session", f"wait {math.ceil(seconds)} s", code="slow_down")
        is_right = self.verify(password, password_hash)
        if not is_right:
            self._guesses.note(session, session)
        return is_right


LOG_IN_SECONDS = 10.0
"""Seconds for which a log-in waits for its turn. More let more of them wait, fewer keep a person out while somebody
guesses."""


class Door:
    """Checks passwords, sessions and tokens; all but ``enter`` is safe for threads.

    Args:
        journal: has the persons.
        settings: say how long sessions last.
        passwords: compares passwords.
        clock: tells the moment.
    """

    def __init__(
        self, journal: ConnectionPool, settings: MonitorSettings, passwords: GuardedPasswords, clock: Clock
    ) -> None:
        self._journal = journal
        self._lifetime = span(3600 * settings.session_hours)
        self._idle = span(60 * settings.idle_minutes)
        self._passwords = passwords
        self._guesses = WrongGuesses(clock)
        self._turns = LoginTurns(self._guesses)
        self._clock = clock
        self._tally = LoginTally("person", clock)
        self._unwritten: list[Act] = []
        self._tallying = threading.Lock()

    async def enter(self, name: str, password: str, caller: Caller) -> str:
        """Begin a session for who knows the password of a person.

        Wrong guesses make the next one for the same name or from the same address wait, as at the front. It waits here,
        and has its turn before those who guess: so nobody is kept out of the monitor by guesses under their name.

        Args:
            caller: the connection and the address from which the person asks.

        Returns:
            The session's token.

        Raises:
            Refused: name or password is wrong, or the person is disabled (``login_refused``): nobody learns which.
            Failed: too many log-ins wait (``login_too_late``).
        """
        async with self._turns.turn(name, caller, asyncio.get_running_loop().time() + LOG_IN_SECONDS):
            return await asyncio.to_thread(self._enter, name, password, caller.address)

    def _enter(self, name: str, password: str, origin: str) -> str:
        with self._journal.reading() as connection:
            found = people.read_password_hash(connection, name)
        person, password_hash = found or (None, None)
        may_enter = person is not None and person.disabled_at is None
        is_right = self._passwords.verify(password, password_hash if may_enter else None)
        if not is_right or person is None:
            self._guesses.note(name, origin)
            with self._tallying:
                self._tally.note("login_refused", name, origin)
            self.audit_refused()
            raise Refused(
                "the name or the password is wrong",
                "try again; a manager sets passwords by: xbus person password NAME",
                code="login_refused",
            )
        with acting_as(person.name, origin), self._journal.writing() as connection:
            return people.open_session(
                connection, person.id, origin, self._clock.now(), self._lifetime, verified_hash=password_hash
            )

    def audit_refused(self, *, is_last: bool = False) -> None:
        """Write down who was refused: the first of a name and an address at once, the next ones as a sum.

        Args:
            is_last: whether the monitor ends; then all is written.

        Raises:
            JournalUnavailable: the database can't be written now; the next time writes it.
        """
        with self._tallying:
            self._unwritten += self._tally.take_due(is_last=is_last)
            if self._unwritten:
                with self._journal.writing() as connection:
                    note_acts(connection, self._unwritten)
                self._unwritten.clear()

    def known(self, token: str, origin: str, *, is_by_itself: bool = False) -> Visitor:
        """Find the person of a session.

        Args:
            is_by_itself: whether an open page asks, and its person may be away: that prolongs no session.

        Raises:
            NotLoggedIn: no session has this token any more.
        """
        now = self._clock.now()
        with self._journal.reading() as connection:
            session = people.find_session(connection, token, now, self._idle)
        if session is None:
            raise NotLoggedIn("the session has ended", "log in")
        if not is_by_itself and session.needs_renewal(now):
            with self._journal.writing() as connection:
                people.renew_session(connection, session.id, now)
        return Visitor(session.person, origin, session.id)

    def known_program(self, token: str, origin: str) -> Visitor:
        """Find the person whose token for programs this is.

        Raises:
            NotLoggedIn: the token is unknown, has ended, or its person is disabled.
        """
        now = self._clock.now()
        with self._journal.reading() as connection:
            person = people.find_token(connection, token, now)
        if person is None:
            raise NotLoggedIn("the token is not in force", "make one: xbus person token add NAME TOKEN-NAME")
        if person.last_seen_at is None or now - person.last_seen_at >= people.USE_NOTED:
            with self._journal.writing() as connection:
                people.mark_token_used(connection, token, now)
        return Visitor(person, origin)

    def leave(self, visitor: Visitor) -> None:
        """End the session of a visitor."""
        if visitor.session_id is not None:
            with acting_as(visitor.person.name, visitor.origin), self._journal.writing() as connection:
                people.end_session(connection, visitor.session_id, self._clock.now())
