"""Writes about sessions and registrations."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from xbus.broker.journal.writes.write import Write

SERVED = "served:"
"""The begin of the uri of a recipient that is called over the connection that it made."""


@dataclass(frozen=True, slots=True)
class StartSession(Write[bool]):
    """Begin a session, unless the login's password was changed meanwhile, or its run of a bot has ended.

    Answers whether it has begun.

    Args:
        verified_hash: what the password was checked against.
        started_at: the moment of the login; None where it does not matter.
        ticket_hash: of the ticket of a bot's run, with which the session ends; None for a session by a password.
    """

    token_hash: bytes
    emitter_id: int | None
    role_id: int | None
    expires_at: datetime
    verified_hash: str
    started_at: datetime | None = None
    ticket_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class RenewSessions(Write[None]):
    """Set new ends of sessions, by token hash."""

    expiries: Sequence[tuple[bytes, datetime]]


@dataclass(frozen=True, slots=True)
class NoteTokens(Write[None]):
    """Note that API tokens were used.

    Args:
        token_hashes: of the tokens, some of which may be revoked meanwhile.
        at: the moment.
    """

    token_hashes: Sequence[bytes]
    at: datetime


@dataclass(frozen=True, slots=True)
class EndSession(Write[None]):
    token_hash: bytes


@dataclass(frozen=True, slots=True)
class StorePassword(Write[None]):
    """A better hash of a password that was just given, unless another was set since.

    Args:
        verified_hash: what the password was checked against; it is replaced while it is still what is stored.
        better_hash: what is stored of it from then on.
    """

    emitter_id: int | None
    role_id: int | None
    verified_hash: str
    better_hash: str


def served_uri(channel: bytes) -> str:
    """Name a registration over the recipient's own connection, in the place of an address: nobody can connect there.

    Args:
        channel: of this registration. Only a part of its hash is kept, as who knows it might answer by it.
    """
    return SERVED + hashlib.sha256(channel).hexdigest()[:16]


def is_served(uri: str) -> bool:
    """Check whether a registration was made over the recipient's own connection."""
    return uri.startswith(SERVED)


@dataclass(frozen=True, slots=True)
class Register(Write[None]):
    """A recipient serves a role from now on; ``place``, ``metadata`` and ``features`` as in ``model.registration``.

    Args:
        beside: the sessions of the role's other programs, whose registrations stay; all others end.
    """

    role_id: int
    token_hash: bytes
    uri: str
    place: str
    at: datetime
    metadata: Mapping[str, object]
    features: Mapping[str, object]
    beside: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Introduce(Write[None]):
    """Store the new introduction of a recipient, if it is still the registered one.

    Args:
        metadata: as in ``model.registration``; None before it has been asked, as after a restart of the broker.
        features: the same.
    """

    role_id: int
    token_hash: bytes
    uri: str
    metadata: Mapping[str, object] | None
    features: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Unregister(Write[None]):
    """A registration ends; a newer one of the same role stays."""

    role_id: int
    token_hash: bytes
    uri: str
