"""The API tokens of one kind of owner, in memory: operators make and revoke them in the database."""

from collections.abc import Iterator
from datetime import datetime

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import read_api_tokens
from xbus.broker.journal.writes import NoteTokens
from xbus.clock import Clock


class ApiTokens:
    """The API tokens of emitters, or of roles. It knows only their hashes.

    Args:
        journal: keeps them.
        of_roles: whether they are those of roles.
        clock: tells when one is used.
    """

    def __init__(self, journal: Journal, *, of_roles: bool, clock: Clock) -> None:
        self._journal = journal
        self._of_roles = of_roles
        self._clock = clock
        self._owners: dict[bytes, int] = {}
        self._used: set[bytes] = set()
        self._heard: dict[bytes, datetime] = {}

    def __contains__(self, of_token: bytes) -> bool:
        """Check whether a token with this hash is valid."""
        return of_token in self._owners

    def owner(self, of_token: bytes) -> int | None:
        """Give the owner of the token with this hash, and note its use; None for an unknown one."""
        owner_id = self._owners.get(of_token)
        if owner_id is not None:
            self._used.add(of_token)
            self._heard[of_token] = self._clock.now()
        return owner_id

    def heard(self) -> Iterator[tuple[int, datetime]]:
        """Give the owner of each token that was used since the process began, and when it was used last."""
        return ((self._owners[of_token], at) for of_token, at in self._heard.items())

    async def read(self) -> set[bytes]:
        """Read them anew.

        Returns:
            The hashes of those that were revoked since the last time.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        before = set(self._owners)
        self._owners = await self._journal.read(read_api_tokens, of_roles=self._of_roles)
        ended = before - set(self._owners)
        for of_token in ended:
            self._heard.pop(of_token, None)
        return ended

    async def save(self) -> None:
        """Write down which were used since the last time.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        if self._used:
            # What is used while the write is out is noted next time.
            used, self._used = self._used, set()
            try:
                await self._journal.write(NoteTokens(sorted(used), self._clock.now()))
            except BaseException:
                self._used |= used
                raise
