"""The passwords of those who log in, checked beside the event loop."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

from xbus.broker.journal.audit import Act, note_acts
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import TICKETS, has_ticket
from xbus.broker.journal.log.sessions import read_credentials
from xbus.broker.journal.writes import StorePassword
from xbus.broker.logins.first_tries import FirstTries
from xbus.broker.logins.tally import LoginTally
from xbus.broker.logins.turns import LOGINS_AT_ONCE, Caller, LoginTurns, too_late
from xbus.broker.logins.wrong_guesses import WrongGuesses
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.ids import token_hash
from xbus.passwords import Passwords

T = TypeVar("T")

log = logging.getLogger(__name__)

HASHING_NICENESS = 15
"""Logged-in programs come first: a crowd of logins must not slow them down. First tries are no crowd."""

LOGIN_LETTERS = 64
"""Letters of a login that are remembered: a stranger may send a longer text than any login is."""


class Verified(NamedTuple):
    """The owner of a login whose password is right, the hash against which it was checked, and the caller's address.

    ``key`` is the public key of the connection by which the login came, and empty without encryption.
    ``ticket_hash`` is that of the ticket of a bot's run, where the login came by one.
    """

    owner_id: int
    password_hash: str
    address: str
    key: str
    ticket_hash: bytes | None = None


NOBODY = Caller(b"", "")
"""The caller of a login that came by no connection."""

_NEXT_STEPS = {
    "emitter": "check both, or set the password anew; emitters log in here, recipients at the back's address",
    "role": "check both, or set the password anew; recipients log in here, emitters at the front's address",
}
"""For whoever is refused. A right password at the wrong address is wrong, too."""


class Credentials:
    """The passwords of one kind of owner.

    Args:
        journal: where their hashes are.
        kind: whose they are.
        passwords: compares them.
        clock: measures the pauses after wrong passwords.
        caller: gives who makes the call that is carried out now.
        let_in: gets the connection of each caller whose password is right.
        may_use: tells whether an owner may log in by a public key.
    """

    def __init__(
        self,
        journal: Journal,
        kind: Literal["emitter", "role"],
        passwords: Passwords,
        clock: Clock,
        caller: Callable[[], Caller] = lambda: NOBODY,
        let_in: Callable[[bytes], None] = lambda connection: None,
        may_use: Callable[[int, str], bool] = lambda owner_id, key: False,
    ) -> None:
        self.kind: Literal["emitter", "role"] = kind
        self._journal = journal
        self._passwords = passwords
        self._guesses = WrongGuesses(clock)
        self._turns = LoginTurns(self._guesses)
        self._tally = LoginTally(kind, clock)
        self._unwritten: list[Act] = []
        self._caller = caller
        self._let_in = let_in
        self._may_use = may_use
        self._first_tries = FirstTries(clock)
        self._threads = ThreadPoolExecutor(LOGINS_AT_ONCE, f"first passwords of {kind}s")
        self._low_threads = ThreadPoolExecutor(LOGINS_AT_ONCE, f"passwords of {kind}s", initializer=_stand_back)

    def check(self, login: str, password: str, deadline: float) -> Coroutine[object, object, Verified]:
        """Wait for a turn until the deadline, and check a password; replace a hash of an older kind.

        To be called while the call is carried out that brought the password, and awaited then or later.

        Args:
            login: of an emitter or a role.
            password: as its owner gave it.
            deadline: the moment, on the loop's clock, from which the caller waits no longer.

        Returns:
            The owner.

        Raises:
            Refused: login_refused, for an unknown login and a wrong password alike.
            Failed: login_too_late, when the time is over or too many wait.
            JournalUnavailable: the database can't be asked now.
        """
        return self._check(login, password, self._caller(), deadline)

    async def _check(self, login: str, password: str, caller: Caller, deadline: float) -> Verified:
        async with self._turns.turn(login, caller, deadline):
            # A turn that was free is taken also when the time is over.
            check_time(deadline)
            # No login contains a zero character, and PostgreSQL refuses one in a query.
            credentials = None if "\0" in login else await self._journal.read(read_credentials, self.kind, login)
            owner_id, password_hash = credentials or (0, None)
            is_first = self._first_tries.is_first(login[:LOGIN_LETTERS], caller.address)
            threads = self._threads if is_first else self._low_threads
            is_right = await self._is_right(threads, owner_id, password, password_hash)
            if not is_right or password_hash is None:
                self._guesses.note(login, caller.address)
                self._tally.note("login_refused", login, caller.address)
                log.info("login refused", extra={"action": "login_refused", self.kind: login})
                raise Refused("the login or the password is wrong", _NEXT_STEPS[self.kind], code="login_refused")
            check_time(deadline)
            self._let_in(caller.connection)
            if password_hash == TICKETS:
                # The ticket came over a connection whose key was allowed for the runner.
                return Verified(owner_id, password_hash, caller.address, "", token_hash(password))
            if self._passwords.needs_rehash(password_hash):
                better = await _hashing(threads, self._passwords.hash_password, password)
                await self._journal.write(StorePassword(*self.ids(owner_id), password_hash, better))
                password_hash = better
        return Verified(owner_id, password_hash, caller.address, caller.key)

    async def _is_right(
        self, threads: ThreadPoolExecutor, owner_id: int, password: str, password_hash: str | None
    ) -> bool:
        if password_hash == TICKETS:
            if await self._journal.read(has_ticket, owner_id, token_hash(password)):
                return True
            # A wrong ticket takes as long as a wrong password: the time reveals no logins.
            password_hash = None
        return await _hashing(threads, self._passwords.verify, password, password_hash)

    def note_accepted(self, login: str, verified: Verified) -> None:
        """Note for the audit that a session has begun."""
        self._tally.note("login_accepted", login, verified.address)

    async def write_audit(self, *, is_last: bool = False) -> None:
        """Write down who logged in, and who was refused; the writes of emitters never wait for that.

        Args:
            is_last: whether the broker stops.

        Raises:
            JournalUnavailable: the database can't do it now; the next time writes it.
        """
        self._unwritten += self._tally.take_due(is_last=is_last)
        if self._unwritten:
            written = [*self._unwritten]
            await self._journal.run(note_acts, written)
            del self._unwritten[: len(written)]

    def check_key(self, verified: Verified) -> None:
        """Let a login pass that came without encryption, or by a key that its owner may use.

        Raises:
            Refused: key_not_allowed.
        """
        if verified.key and not self._may_use(verified.owner_id, verified.key):
            raise Refused(
                "the key of this connection is not allowed for the login",
                f"allow it: xbus keys allow {self.kind}; or log in by a key that is allowed",
                code="key_not_allowed",
            )

    def ids(self, owner_id: int) -> tuple[int | None, int | None]:
        """Give emitter id and role id of an owner, one of them None."""
        return (owner_id, None) if self.kind == "emitter" else (None, owner_id)


def _hashing(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


def check_time(deadline: float) -> None:
    """Let a login pass whose caller still waits.

    Raises:
        Failed: login_too_late.
    """
    if asyncio.get_running_loop().time() >= deadline:
        raise too_late()


def _stand_back() -> None:
    """Leave the processor to the other threads of this process, as far as the system lets a thread do so."""
    if sys.platform == "linux":
        # There each thread has a priority of its own: sched(7).
        thread = threading.get_native_id()
        # The broker may stand further back already, or have no choice.
        with contextlib.suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, thread) < HASHING_NICENESS:
                os.setpriority(os.PRIO_PROCESS, thread, HASHING_NICENESS)
