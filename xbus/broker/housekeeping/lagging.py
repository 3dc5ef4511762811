"""Does what a consumer role wants when it lags too far: tells people, takes it off the bus, or has it skip."""

import logging
from collections.abc import Callable
from shlex import quote

from xbus.broker.journal.configuration.detaching import detach
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.lagging import Lagging, find_lagging, skip
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

CODE = "role_behind"


class LagKeeper:
    """Compares the lag of roles with their limits.

    Args:
        journal: knows both.
        clock: measures ages.
        health: shows roles that stay beyond their limits.
        decided: called when the back has something to carry out.
    """

    def __init__(self, journal: Journal, clock: Clock, health: Health, decided: Callable[[], None]) -> None:
        self._journal = journal
        self._clock = clock
        self._health = health
        self._decided = decided
        self._behind: set[str] = set()

    async def look(self) -> None:
        """Look at all roles with a limit once.

        Raises:
            JournalError: the database does not do it now.
        """
        now = self._clock.now()
        behind: dict[str, Lagging] = {}
        for role in await self._journal.read(find_lagging, now):
            match role.when_behind:
                case "skip":
                    await self._skip(role)
                case "detach" if await self._detach(role):
                    pass
                case _:
                    behind[role.login] = role
        for login in self._behind - behind.keys():
            self._health.over(CODE, about=login)
        for login, role in behind.items():
            cause = f"the role {login} is too far behind: {role.told}"
            self._health.trouble(CODE, cause, _next_step(role), about=login)
        self._behind = set(behind)

    async def _skip(self, role: Lagging) -> None:
        if not role.is_decided:
            await self._journal.run(skip, role, self._clock.now())
            log.warning("the role %s skips: %s", role.login, role.told, extra={"action": "skipped", "role": role.login})
            self._decided()

    async def _detach(self, role: Lagging) -> bool:
        """Take a role off the bus; a program that serves it has to be gone first."""
        try:
            await self._journal.run(detach, role.login, f"too far behind: {role.told}", self._clock.now())
        except Refused:
            return False
        log.warning(
            "the role %s is detached: %s", role.login, role.told, extra={"action": "detached", "role": role.login}
        )
        return True


def _next_step(role: Lagging) -> str:
    if role.when_behind == "detach":
        return f"see why its recipient is slow; the bus detaches {role.login} once nobody serves it"
    detach_it = f"xbus recipient detach {quote(role.login)}"
    return f"start its recipient, or more instances of it, or take it off the bus: {detach_it}"
