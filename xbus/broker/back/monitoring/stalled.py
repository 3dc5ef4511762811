"""Tells health of deliveries that do not get on: their consumer or worker is away, or they are parked."""

import math
from collections.abc import Iterable
from datetime import datetime
from shlex import quote

from xbus.broker.back.recipients import Registry, ServedRole
from xbus.broker.configuration import Configuration
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.broker.journal.log.deliveries import WORKER_ABSENT
from xbus.broker.journal.operations.stalled import (
    Outline,
    RoleOutline,
    Stalled,
    add_up,
    count_owed_rows,
    count_parked,
    count_parked_items,
    count_waiting,
    find_owed_ahead,
    read_outline,
)
from xbus.clock import Clock
from xbus.config import HealthLimits
from xbus.supervision.health import Health, Problem

CONSUMER_ABSENT = "consumer_absent"
PARKED = "parked"
CODES = (CONSUMER_ABSENT, WORKER_ABSENT, PARKED)


class StalledDeliveries:
    """Reports deliveries without progress for longer than their role permits.

    A look begins with one read that finds the oldest of each kind. Only if that is too old does it count others.

    Args:
        journal: has the deliveries.
        configuration: says which roles exist, and how long they may be away.
        registry: knows who is there.
        health: shows the findings.
        clock: measures ages.
        limits: how long a role may be away that sets no limit of its own.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        registry: Registry,
        health: Health,
        clock: Clock,
        limits: HealthLimits,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._registry = registry
        self._health = health
        self._clock = clock
        self._limits = limits
        self._nothing_owed_to: dict[int, int] = {}
        """By the id of a role that is away the position up to which it is owed nothing: it is not read again."""
        self._version = -1

    def arrived(self, recipient: ServedRole) -> None:
        """End the problem of a role's absence at once."""
        self._health.over(CONSUMER_ABSENT, about=recipient.role.login)
        self._health.over(WORKER_ABSENT, about=recipient.role.shown_service)

    async def look(self) -> None:
        """Report to health all that makes no progress for too long, and nothing else.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        catalog = self._configuration.catalog
        if catalog.version != self._version:
            # Another graph may lead envelopes to the role that its cursor has passed.
            self._nothing_owed_to.clear()
            self._version = catalog.version
        now = self._clock.now()
        outline = await self._journal.read(read_outline)
        roles = [role for role in catalog.roles.values() if role.id in outline.roles]
        problems = [
            *await self._absent_consumers(outline, [role for role in roles if not role.worker], now),
            *await self._absent_workers(outline, [role for role in roles if role.worker], now),
            *await self._parked(outline, roles, now),
        ]
        # Recipients may have come while the journal was read.
        self._health.replace(CODES, [problem for problem in problems if not self._has_come(problem)])

    def _has_come(self, problem: Problem) -> bool:
        if problem.code == CONSUMER_ABSENT:
            return any(recipient.role.login == problem.about for recipient in self._registry.all())
        if problem.code == WORKER_ABSENT:
            return any(recipient.role.shown_service == problem.about for recipient in self._registry.all())
        return False

    async def _absent_consumers(self, outline: Outline, roles: Iterable[RoleEntry], now: datetime) -> list[Problem]:
        problems = []
        for role in roles:
            found = outline.roles[role.id]
            is_absent = self._registry.get(role.id) is None and (found.absent_since is not None or not found.was_seen)
            limit = self._absent_minutes(role)
            if role.pause is not None or not is_absent or not _is_over(found.absent_since, now, limit):
                continue
            owed = await self._owed(found, outline.head)
            # A recipient that was never seen has been away for at least as long as something waits.
            if owed is not None and _is_over(since := found.absent_since or owed.since, now, limit):
                problems.append(_consumer_absent(role, since, owed))
        return problems

    async def _owed(self, role: RoleOutline, head: int) -> Stalled | None:
        """Find the oldest delivery for an absent role: in rows of its own, and ahead of it in the log."""
        in_rows = await self._journal.read(count_owed_rows, role.role_id)
        if role.cursor is None:
            return in_rows
        after = max(role.cursor.position, self._nothing_owed_to.get(role.role_id, 0))
        if after >= head:
            return in_rows
        ahead, passed = await self._journal.read(find_owed_ahead, role.cursor, role.service_id, after)
        self._nothing_owed_to[role.role_id] = passed
        return add_up([in_rows, ahead])

    async def _absent_workers(self, outline: Outline, roles: Iterable[RoleEntry], now: datetime) -> list[Problem]:
        logins: dict[str, dict[str, float]] = {}
        for role in roles:
            logins.setdefault(role.service, {})[role.login] = self._absent_minutes(role)
        problems = []
        for service, since in outline.waiting.items():
            of_service = logins.get(service, {})
            limit = min(of_service.values(), default=self._limits.absent_minutes)
            is_paused = self._configuration.catalog.pause_of_service(service) is not None
            if is_paused or self._registry.is_served(service) or not _is_over(since, now, limit):
                continue
            waiting = await self._journal.read(count_waiting, service)
            if waiting is not None:
                name = self._configuration.catalog.service_name(service)
                problems.append(_worker_absent(name, sorted(of_service), waiting))
        return problems

    async def _parked(self, outline: Outline, roles: Iterable[RoleEntry], now: datetime) -> list[Problem]:
        problems = []
        for role in roles:
            found = outline.roles[role.id]
            limit = self._limits.parked_minutes if role.parked_minutes is None else role.parked_minutes
            since = min(filter(None, (found.parked_since, found.items_since)), default=None)
            if since is None or not _is_over(since, now, limit):
                continue
            envelopes = await self._journal.read(count_parked, role.id)
            items = await self._journal.read(count_parked_items, role.id)
            if envelopes is not None or items is not None:
                problems.append(_parked(role, envelopes, items))
        return problems

    def _absent_minutes(self, role: RoleEntry) -> float:
        return self._limits.absent_minutes if role.absent_minutes is None else role.absent_minutes


def _is_over(since: datetime | None, now: datetime, minutes: float) -> bool:
    """Check whether so many minutes have passed, or may have if the beginning is not known."""
    return not math.isinf(minutes) and (since is None or (now - since).total_seconds() >= 60 * minutes)


def _consumer_absent(role: RoleEntry, since: datetime, owed: Stalled) -> Problem:
    cause = (
        f"the role {role.login} is absent since {_moment(since)}, and {owed.told('envelope')} "
        f"{_verb(owed, 'waits', 'wait')} for it, the oldest since {_moment(owed.since)}"
    )
    next_step = f"start its recipient, or take it off the bus with xbus recipient detach {quote(role.login)}"
    return Problem(CONSUMER_ABSENT, role.login, cause, since, next_step)


def _worker_absent(service: str, logins: Iterable[str], waiting: Stalled) -> Problem:
    cause = (
        f"no worker of the service {service} is there, and {waiting.told('envelope')} "
        f"{_verb(waiting, 'waits', 'wait')} for one, the oldest since {_moment(waiting.since)}"
    )
    roles = ", ".join(logins)
    next_step = (
        f"start a worker for {roles}: xbus recipient list shows when it was last seen"
        if roles
        else "give the service a role with xbus apply, and start a worker for it"
    )
    return Problem(WORKER_ABSENT, service, cause, waiting.since, next_step)


def _parked(role: RoleEntry, envelopes: Stalled | None, items: Stalled | None) -> Problem:
    both = add_up([envelopes, items])
    assert both is not None, "something is parked"
    told = [found.told(what) for found, what in ((envelopes, "envelope"), (items, "item")) if found is not None]
    cause = (
        f"{' and '.join(told)} {_verb(both, 'is', 'are')} parked for the role {role.login}, "
        f"the oldest since {_moment(both.since)}"
    )
    listed = f"xbus parked list --role {quote(role.login)}"
    next_step = f"see why with {listed}, then use xbus parked resume, correct or drop"
    return Problem(PARKED, role.login, cause, both.since, next_step)


def _verb(found: Stalled, of_one: str, of_many: str) -> str:
    return of_one if found.number == 1 else of_many


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%SZ}"
