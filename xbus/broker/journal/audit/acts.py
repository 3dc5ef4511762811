"""An act of a person or a program, as the audit keeps it, and its hash; no SQL."""

import hashlib
import json
import os
import pwd
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NO_HASH = bytes(32)
"""The hash before the first row."""

MOST_LETTERS = 255
"""Letters of a name that are kept: strangers may send longer ones."""


@dataclass(frozen=True, slots=True)
class Act:
    """An act of a person or a program.

    Args:
        at: when.
        who: a login, or the operating-system user of a command.
        origin: the address of the peer, or the host of the command.
        action: what was done, in a word.
        object: to what, by its kind and its name or id.
        before: how it was, as far as that changed; never a secret.
        after: how it is since then; never a secret.
        reason: why, as the person said.
    """

    at: datetime
    who: str
    origin: str
    action: str
    object: str
    before: str = ""
    after: str = ""
    reason: str = ""

    def hashed(self, number: int, before: bytes) -> bytes:
        """Compute the hash that it has in the chain: SHA-256 over the hash before it, and over a list in JSON.

        The list has its number, its moment in UTC to the microsecond, and its texts in the order of the arguments. JSON
        is written without spaces and in ASCII.

        Args:
            number: its place in the chain.
            before: the hash of the row before it.
        """
        moment = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        texts = (self.who, self.origin, self.action, self.object, self.before, self.after, self.reason)
        content = json.dumps([number, moment, *texts], separators=(",", ":"))
        return hashlib.sha256(before + content.encode("ascii")).digest()


def act_here(
    at: datetime, action: str, object: str, *, who: str = "", before: str = "", after: str = "", reason: str = ""
) -> Act:
    """Make an act of the person of :func:`acting_as`; otherwise of who runs this process, on this host.

    Args:
        who: who did it on this host, where the caller knows better.
    """
    actor = None if who else _actor.get()
    by, origin = actor or (who or person(), socket.gethostname())
    return Act(at, by, origin, action, object, before, after, reason)


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """A person's decision to repair something: the person, the reason, and the moment.

    Args:
        reason: may be empty.
    """

    who: str
    reason: str
    at: datetime

    @property
    def told(self) -> str:
        """As it is kept: ``ada: the name was missing``."""
        return f"{self.who}: {self.reason}" if self.reason else self.who

    def act(self, action: str, thing: str, *, before: str = "", after: str = "") -> Act:
        """Make the act of this decision for the audit."""
        return act_here(self.at, action, thing, before=before, after=after, reason=self.reason)


_actor: ContextVar[tuple[str, str] | None] = ContextVar(
    "the person for whom a program acts, and the origin", default=None
)


@contextmanager
def acting_as(who: str, origin: str) -> Iterator[None]:
    """Act for a person of whom the program made sure: acts and decisions within bear that name.

    It holds for this task or thread, and for a thread that runs in a copy of its context, as ``asyncio.to_thread``
    does; a bare thread pool forgets it.

    Args:
        who: the person's name.
        origin: the address from which the person asks.
    """
    token = _actor.set((who, origin))
    try:
        yield
    finally:
        _actor.reset(token)


def done_by(who: str, origin: str, errand: Callable[P, T]) -> Callable[P, T]:
    """Make an errand that acts for somebody, wherever it is run; see :func:`acting_as`."""

    def done(*args: P.args, **kwargs: P.kwargs) -> T:
        with acting_as(who, origin):
            return errand(*args, **kwargs)

    return done


def acting_person() -> str | None:
    """Name the person of :func:`acting_as`; None outside of it."""
    actor = _actor.get()
    return None if actor is None else actor[0]


def person() -> str:
    """Name the person at the keyboard: the operating-system user, and who became this user by sudo."""
    user_id = os.getuid()
    try:
        user = pwd.getpwuid(user_id).pw_name
    except KeyError:
        # A user of a container has an id at least.
        user = f"user {user_id}"
    by_sudo = os.environ.get("SUDO_USER", user)
    return user if by_sudo == user else f"{by_sudo} as {user}"
