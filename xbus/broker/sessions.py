"""Sessions of those who logged in, or have an API token: emitters at the front, roles at the back."""

import asyncio
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import read_sessions, read_sessions_of_runs
from xbus.broker.journal.writes import EndSession, RenewSessions, StartSession
from xbus.broker.logins import ApiTokens, Credentials, Verified, check_time
from xbus.clock import Clock, span
from xbus.errors import Failed, JournalUnavailable, Refused
from xbus.ids import Ids, token_hash
from xbus.periodic import after_every

log = logging.getLogger(__name__)

LOGIN_SECONDS = 4.0
"""Seconds that a login of our own clients may take. Their emitter waits for 5 seconds, their recipient for 10. A later
answer would find nobody, or somebody else at the same address.

Who is served later has left, and somebody else may sit where the token goes to.
"""

OLD_LOGIN_SECONDS = 20.0
"""The same for old clients, which wait for minutes, and take a refusal for a wrong password."""

LOOK_AGAIN_SECONDS = 1.0
"""Seconds after which sessions are read again that could not be read."""

RUNS_SECONDS = 1.0
"""Seconds between looks for runs of bots that have ended, while any has a session. A session outlives its run by this
much at the most."""

SAVE_SECONDS = 10.0
"""Seconds between writes of renewed sessions. A crash shortens a session by this much at the most."""


@dataclass(frozen=True, slots=True)
class SessionLifetimes:
    """The ends of sessions.

    Args:
        unused_seconds: how long a session outlives its last use.
        most_seconds: how long it lasts at the most, whatever is open; infinite for no such end.
    """

    unused_seconds: float
    most_seconds: float = math.inf

    def last_moment(self, started_at: datetime) -> datetime | None:
        """Compute the end of a session whatever its use; None without any."""
        return None if math.isinf(self.most_seconds) else started_at + span(self.most_seconds)

    def next_end(self, now: datetime, ends_at: datetime | None) -> datetime:
        """Compute when a session expires that is used now.

        Args:
            ends_at: its end whatever its use.
        """
        unused = now + span(self.unused_seconds)
        return unused if ends_at is None else min(unused, ends_at)


@dataclass(slots=True)
class _Session:
    owner_id: int
    expires_at: datetime
    """Not before; calls of its owner since then make it later."""
    ends_at: datetime | None
    is_of_run: bool = False
    heard_at: datetime | None = None
    """When its owner called last, since the process began."""
    saved_at: datetime | None = None
    """The last of these calls that the journal knows of."""


class Sessions:
    """The sessions of one kind of owner. It keeps only hashes of tokens, in memory too.

    Args:
        journal: keeps them.
        credentials: let owners in, and say whose sessions these are.
        clock: says when they end.
        ids: makes tokens.
        lifetimes: how long they last.
        in_use: says whether an owner has something open that its sessions must not expire under.
        catch_up: awaited at each login, so that every earlier change of the configuration is in force then.
    """

    def __init__(
        self,
        journal: Journal,
        credentials: Credentials,
        *,
        clock: Clock,
        ids: Ids,
        lifetimes: SessionLifetimes,
        in_use: Callable[[int], bool] = lambda owner_id: False,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._journal = journal
        self._credentials = credentials
        self._kind = credentials.kind
        self._clock = clock
        self._ids = ids
        self._lifetimes = lifetimes
        self._in_use = in_use
        self._catch_up = catch_up
        self._sessions: dict[bytes, _Session] = {}
        self._api_tokens = ApiTokens(journal, of_roles=self._kind == "role", clock=clock)
        self._ended: list[bytes] = []
        """The sessions that have ended here, and that the journal has still."""
        self._changed = asyncio.Event()
        self._saving = asyncio.Lock()

    async def restore(self) -> None:
        """Take up the sessions that were there before a restart."""
        for stored in await self._journal.read(read_sessions, of_roles=self._kind == "role"):
            # One of before its begin was kept begins now.
            ends_at = self._lifetimes.last_moment(stored.started_at or self._clock.now())
            expires_at = stored.expires_at if ends_at is None else min(stored.expires_at, ends_at)
            self._sessions[stored.token_hash] = _Session(stored.owner_id, expires_at, ends_at, stored.is_of_run)
        await self._api_tokens.read()

    def login(self, login: str, password: str, seconds: float = LOGIN_SECONDS) -> Coroutine[object, object, str]:
        """Begin a session, durably; to be called while its call is carried out, and awaited then or later.

        Args:
            login: of an emitter or a role.
            password: as its owner gave it.
            seconds: how long the caller waits; after that no session is begun.

        Returns:
            Its token, which is kept nowhere.

        Raises:
            Refused: login_refused, for an unknown login and a wrong password alike; key_not_allowed.
            Failed: login_too_late, when the time is over or too many wait.
            JournalUnavailable: the database can't be asked now.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        return self._login(login, self._credentials.check(login, password, deadline), deadline)

    async def _login(self, login: str, check: Awaitable[Verified], deadline: float) -> str:
        verified = await check
        owner_id = verified.owner_id
        if self._catch_up is not None:
            await self._catch_up()
        self._credentials.check_key(verified)
        check_time(deadline)
        token = self._ids.token()
        now = self._clock.now()
        ends_at = self._lifetimes.last_moment(now)
        expires_at = self._lifetimes.next_end(now, ends_at)
        ids = self._credentials.ids(owner_id)
        start = StartSession(
            token_hash(token),
            *ids,
            expires_at,
            verified.password_hash,
            started_at=now,
            ticket_hash=verified.ticket_hash,
        )
        if not await self._journal.write(start):
            raise Failed("the login was changed meanwhile", "log in again", code="login_too_late")
        self._sessions[token_hash(token)] = _Session(owner_id, expires_at, ends_at, verified.ticket_hash is not None)
        try:
            check_time(deadline)
        except Failed:
            self.take_back(token)
            raise
        self._credentials.note_accepted(login, verified)
        log.info("logged in", extra={"action": "login", self._kind: login})
        return token

    def take_back(self, token: str) -> None:
        """End a session whose token reached nobody; the journal learns of it when sessions are saved."""
        key = token_hash(token)
        if self._sessions.pop(key, None) is not None:
            self._ended.append(key)
            log.info("a token reached nobody", extra={"action": "login_taken_back"})

    def owner(self, token: str) -> int:
        """Give the owner of a session, and renew it; or that of an API token.

        Raises:
            Refused: session_unknown, also for an expired session or a revoked token.
        """
        # As of ``token_hash``, which would be one more call of a Python function for each message.
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        session = self._sessions.get(key)
        now = self._clock.now()
        if session is None or session.expires_at <= now:
            if session is None and (owner_id := self._api_tokens.owner(key)) is not None:
                return owner_id
            if session is None or self._is_over(session, now):
                raise Refused("the session is unknown or has expired", "log in again", code="session_unknown")
            session.expires_at = self._lifetimes.next_end(now, session.ends_at)
        session.heard_at = now
        return session.owner_id

    def heard(self) -> dict[int, datetime]:
        """Give when each owner called last, by a session or an API token that has not ended."""
        calls = [(session.owner_id, session.heard_at) for session in self._sessions.values()]
        found: dict[int, datetime] = {}
        for owner_id, at in (*calls, *self._api_tokens.heard()):
            if at is not None:
                found[owner_id] = max(at, found.get(owner_id, at))
        return found

    def knows(self, token: str) -> bool:
        """Check whether a session or an API token exists, without renewing it."""
        key = token_hash(token)
        return key in self._sessions or key in self._api_tokens

    def _is_over(self, session: _Session, now: datetime) -> bool:
        if session.ends_at is not None and session.ends_at <= now:
            return True
        return self._expiry(session) <= now and not self._in_use(session.owner_id)

    def _expiry(self, session: _Session) -> datetime:
        """Compute when a session expires, by its last use."""
        if session.heard_at is None:
            return session.expires_at
        return self._lifetimes.next_end(session.heard_at, session.ends_at)

    async def logout(self, token: str) -> int:
        """End a session, durably.

        Returns:
            Whose it was.

        Raises:
            Refused: session_unknown; token_stays, for an API token.
        """
        owner_id = self.owner(token)
        if token_hash(token) in self._api_tokens:
            raise Refused("an API token has no end", "revoke it with xbus token revoke", code="token_stays")
        # Before the write: 1. The journal ends the session. 2. ``end_removed`` compares the sessions here with those of
        # the journal, takes it that an administrator ended this one, and breaks off the last calls of the recipient.
        session = self._sessions.pop(token_hash(token))
        try:
            await self._journal.write(EndSession(token_hash(token)))
        except BaseException:
            self._sessions[token_hash(token)] = session
            raise
        log.info("logged out", extra={"action": "logout", f"{self._kind}_id": owner_id})
        return owner_id

    async def end(self, of_token: bytes) -> None:
        """End a lost owner's session with a token of this hash; in the database also later, if it can't do it now."""
        if self._sessions.pop(of_token, None) is None:
            return
        try:
            await self._journal.write(EndSession(of_token))
        except JournalUnavailable as error:
            self._ended.append(of_token)
            log.warning("session not ended: %s", error, extra={"action": "sessions_unsaved"})

    def configuration_changed(self) -> None:
        """Look soon for sessions that an administrator has ended, by ``watch``."""
        self._changed.set()

    async def watch(self, on_ended: Callable[[set[bytes]], Awaitable[None]] | None = None) -> NoReturn:
        """End the sessions that were ended in the database, after each change of the configuration, for ever.

        Args:
            on_ended: gets the hashes of their tokens.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                ended = await self.end_removed()
            except JournalUnavailable as error:
                log.warning("sessions not read: %s", error, extra={"action": "sessions_unread"})
                self._changed.set()
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                if ended and on_ended is not None:
                    await on_ended(ended)

    async def end_removed(self) -> set[bytes]:
        """End sessions that are gone from the database, and take over its API tokens; give the ended hashes.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        # Each of them was written down before it was known here.
        known = set(self._sessions)
        stored = await self._journal.read(read_sessions, of_roles=self._kind == "role")
        ended = known - {session.token_hash for session in stored} | await self._api_tokens.read()
        for key in ended:
            self._sessions.pop(key, None)
        if ended:
            log.info("sessions ended", extra={"action": "sessions_ended", "of": self._kind, "number": len(ended)})
        return ended

    async def watch_runs(self) -> None:
        """End the sessions of runs of bots that have ended, for ever; an unreachable database only delays that."""
        await after_every(RUNS_SECONDS, self.end_with_runs)

    async def end_with_runs(self) -> None:
        """End the sessions of runs of bots that have ended, as far as the database can be read."""
        # Each of them was written down before it was known here.
        known = {key for key, session in self._sessions.items() if session.is_of_run}
        if not known:
            return
        try:
            ended = known - await self._journal.read(read_sessions_of_runs)
        except JournalUnavailable as error:
            log.warning("sessions not read: %s", error, extra={"action": "sessions_unread"})
            return
        for key in ended:
            self._sessions.pop(key, None)

    async def keep(self) -> None:
        """Write renewals down and forget expired sessions, for ever."""
        await after_every(SAVE_SECONDS, self.save)

    async def save(self, *, is_last: bool = False) -> None:
        """Write down renewals and log-ins since the last time, and end expired sessions, as far as the database can.

        Args:
            is_last: whether the broker stops.
        """
        try:
            # 1. ``keep`` writes the end of a session. 2. The broker stops, and writes it too. 3. Both forget it.
            async with self._saving:
                await self._save()
                await self._credentials.write_audit(is_last=is_last)
        except JournalUnavailable as error:
            log.warning("sessions not saved: %s", error, extra={"action": "sessions_unsaved"})

    async def _save(self) -> None:
        now = self._clock.now()
        renewed = [
            (session, session.heard_at, (key, self._expiry(session)))
            for key, session in self._sessions.items()
            if session.heard_at is not session.saved_at
        ]
        expired = [key for key, session in self._sessions.items() if self._is_over(session, now)]
        if renewed:
            # 1. The write is made. 2. A call renews a session. 3. The write is answered: that renewal is not written.
            await self._journal.write(RenewSessions([expiry for _, _, expiry in renewed]))
            for session, heard_at, _ in renewed:
                session.saved_at = heard_at
        for key in expired:
            self._sessions.pop(key, None)
        self._ended += expired
        await self._api_tokens.save()
        while self._ended:
            await self._journal.write(EndSession(self._ended[0]))
            self._ended.pop(0)
