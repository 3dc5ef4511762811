"""The alarm for roles that stay away while the bus keeps something for them, for longer than it should."""

import asyncio
import logging
from shlex import quote

from xbus.broker.back.recipients import Registry, ServedRole
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.clock import Clock
from xbus.errors import JournalUnavailable
from xbus.periodic import every
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 30.0
"""A broker that starts has more urgent things to read."""

LOOK_SECONDS = 600.0

DAY_SECONDS = 86_400.0
"""The log reports a role at most once in so many seconds."""

CODE = "owed_too_long"


class OverdueBacklog:
    """Reports roles that have been owed an envelope for too long.

    Args:
        journal: says how old the envelopes are.
        registry: knows who is registered.
        health: shows each such role.
        clock: measures ages.
        owed_days: days after which an envelope is owed for too long; 0 for never.
    """

    def __init__(self, journal: Journal, registry: Registry, health: Health, clock: Clock, owed_days: float) -> None:
        self._journal = journal
        self._registry = registry
        self._health = health
        self._clock = clock
        self._owed_days = owed_days
        self._told: dict[str, float] = {}

    def arrived(self, recipient: ServedRole) -> None:
        """End the alarm of a role that has come: it catches up now."""
        self._health.over(CODE, about=recipient.role.login)

    async def watch(self) -> None:
        """Look now and then, for ever; return at once if the operator wants no alarm."""
        if self._owed_days:
            await asyncio.sleep(FIRST_LOOK_SECONDS)
            await every(LOOK_SECONDS, self._try_to_look)

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except JournalUnavailable as error:
            log.info("no look at what is owed: %s", error, extra={"action": "owed_unread"})

    async def look(self) -> None:
        """Raise the alarm for those that are owed something too old, and end it for the others.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        now = self._clock.now()
        roles = await self._journal.read(list_roles)
        # The journal's rows about recipients may be a moment old.
        present = {recipient.role.login for recipient in self._registry.all()}
        for role in roles:
            if role.role not in present and role.owes_too_long(self._owed_days, now):
                self._raise(role)
            else:
                self._health.over(CODE, about=role.role)

    def _raise(self, role: RoleStatus) -> None:
        assert role.owed_since is not None, "it is owed something"
        cause = (
            f"the role {role.role} is away and has not got what was received on {role.owed_since:%Y-%m-%d} and after"
        )
        next_step = f"start its recipient, or take it off the bus with xbus recipient detach {quote(role.role)}"
        self._health.trouble(CODE, cause, next_step, about=role.role)
        if self._clock.monotonic() - self._told.get(role.role, -DAY_SECONDS) >= DAY_SECONDS:
            self._told[role.role] = self._clock.monotonic()
            log.warning("%s: %s", cause, next_step, extra={"action": CODE, "role": role.role, "lag": role.lag})
