"""Rights of people, and the people who have them; pure."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Right(StrEnum):
    """The right to do a kind of work. A person may have several; everybody who is a person may view."""

    MANAGER = "manager"
    """The configuration but for the programs of bots, people, and the work of all others but programmers."""
    PROGRAMMER = "programmer"
    """Say which function or command a bot runs. Runners are machines of others, so no other right includes it."""
    OPERATOR = "operator"
    """Repairs: resume, drop, correct, cancel, pause, track."""
    UPLOADER = "uploader"
    """Upload files, which become envelopes."""
    CLEARER = "clearer"
    """Answer the questions of data clearing."""
    VIEWER = "viewer"
    """See everything, and change nothing."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who operates or administers the bus.

    Args:
        name: the login.
        rights: as somebody gave them; :meth:`may` says what follows from them.
        disabled_at: since when the person may do nothing; None for one in use.
        last_seen_at: when a session or a token was last used, to a minute; None for never.
    """

    id: int
    name: str
    rights: frozenset[Right]
    disabled_at: datetime | None
    created_at: datetime
    last_seen_at: datetime | None

    def may(self, right: Right) -> bool:
        """Check whether the person has a right, given or included in another one."""
        return self.disabled_at is None and right in covered(self.rights)


def covered(rights: Collection[Right]) -> frozenset[Right]:
    """Compute all rights that some include: that of managers includes all but that of programmers.

    Example:
        >>> sorted(covered({Right.UPLOADER}))
        [<Right.UPLOADER: 'uploader'>, <Right.VIEWER: 'viewer'>]
    """
    included = frozenset(Right) - {Right.PROGRAMMER} if Right.MANAGER in rights else frozenset({Right.VIEWER})
    return included | frozenset(rights)


def narrowed(rights: Collection[Right], to: Collection[Right]) -> frozenset[Right]:
    """Compute the rights of who has some, and may use others only."""
    return covered(rights) & covered(to)


def read_rights(written: str) -> frozenset[Right]:
    """Read rights out of their column. A word that means nothing here gives nobody a right."""
    words = written.split()
    return frozenset(right for right in Right if right in words)


def write_rights(rights: Collection[Right]) -> str:
    """Write rights as their column has them: in the order of their definition, with blanks between them.

    No right is written as the one to view, which everybody has. So an empty column means that nobody has given any.
    """
    return " ".join(right for right in Right if right in rights) or Right.VIEWER.value
