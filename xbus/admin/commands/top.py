"""``xbus top``: counts become rates per second, and one look at the bus becomes lines for a screen."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import click

from xbus.admin.output import CAUSE, STATE, Form, Output, age, counted, moment, name_column
from xbus.admin.progress import show_again
from xbus.admin.signatures import CommandBus, command
from xbus.admin.why.inquiry import RunningBroker
from xbus.broker.journal.operations.event_types import TypeCounts, count_types
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.broker.journal.samples.sample import Delivered
from xbus.rpc.messages import HealthReport

WINDOW_SECONDS = 10.0
"""Seconds over which a rate is taken. More make it steadier, and it follows later."""


class Rates:
    """The rates of counts that grow.

    Args:
        seconds: over which a rate is taken, at the least between two looks.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, Mapping[str, int]]] = deque()

    def note(self, at: float, counts: Mapping[str, int]) -> None:
        """Take a look: the counts by name, at a moment of a clock that only goes on."""
        self._looks.append((at, counts))
        while len(self._looks) > 2 and at - self._looks[1][0] >= self._seconds:
            self._looks.popleft()

    def rate(self, name: str) -> float | None:
        """Give a rate; None before the second look, and where a count fell, as after retention."""
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        if ended <= began or name not in first or last.get(name, 0) < first[name]:
            return None
        return (last[name] - first[name]) / (ended - began)


LOG = "log"
"""The name of the count of envelopes. Names of the counts of types and roles begin with another letter and a blank."""


@dataclass(frozen=True, slots=True)
class BusLook:
    """The bus at a moment.

    Args:
        now: the moment.
        types: the counts of each type.
        roles: the state of each role.
        sides: the health of front and back; None for one that can't be reached.
        delivered: how much roles have committed, by role id; without those of which the back tells nothing.
    """

    now: datetime
    types: TypeCounts
    roles: Sequence[RoleStatus]
    sides: Mapping[str, HealthReport | None]
    delivered: Mapping[int, Delivered] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Count all that grows, for :class:`Rates`."""
        events = {f"e {each.name}": each.events for each in self.types.types}
        items = {f"i {each.name}": each.items for each in self.types.types}
        brought = {_envelopes_to(role_id): number.envelopes for role_id, number in self.delivered.items()}
        within = {_items_to(role_id): number.items for role_id, number in self.delivered.items()}
        return {LOG: self.types.head, **events, **items, **brought, **within}


def overview(look: BusLook, rates: Rates, output: Output) -> Iterator[str]:
    """Write a look, with the rates since earlier ones."""
    lag = sum(role.lag or 0 for role in look.roles)
    parked = sum(role.parked for role in look.roles)
    yield (
        f"{moment(look.now)}  position {look.types.head:,}  {_rate(rates, LOG) or '-'} envelopes/s  "
        f"lag {lag:,}  parked {parked:,}"
    )
    yield from _health(look, output)
    types = [
        {
            name_column("TYPE"): each.name,
            "EVENTS/S": _rate(rates, f"e {each.name}"),
            "ITEMS/S": _rate(rates, f"i {each.name}"),
            "LAST HOUR": each.recent,
            "NEWEST": age(each.newest_at, look.now),
        }
        for each in look.types.types
    ]
    yield from ("", *output.table(types)) if types else ()
    roles = [
        {
            name_column("ROLE"): role.role,
            name_column("SERVICE"): role.service,
            "KIND": role.kind,
            STATE: role.state,
            "ITEMS/S": _rate(rates, _items_to(role.role_id)),
            "ENVELOPES/S": _rate(rates, _envelopes_to(role.role_id)),
            "LAG": role.lag,
            "LAG S": _seconds(role, look.now),
            "PARKED": _parked(role),
        }
        for role in look.roles
    ]
    yield from ("", *output.table(roles)) if roles else ()


def _health(look: BusLook, output: Output) -> Iterator[str]:
    away = [side for side, report in look.sides.items() if report is None]
    for side in away:
        yield f"The {side} can't be reached."
    # One process with both sides reports the same twice.
    reports = {report["name"]: report for report in look.sides.values() if report is not None}
    problems = [
        {
            name_column("CODE"): problem["code"],
            name_column("ABOUT"): problem.get("about") or None,
            CAUSE: problem["cause"],
        }
        for report in reports.values()
        for problem in report["problems"]
    ]
    if problems:
        yield from ("", *output.table(problems))
    elif not away:
        yield "The broker is healthy."


def _envelopes_to(role_id: int) -> str:
    """Name the count of envelopes that a role has committed."""
    return f"d {role_id}"


def _items_to(role_id: int) -> str:
    """Name the count of items in them."""
    return f"r {role_id}"


def _rate(rates: Rates, name: str) -> str | None:
    rate = rates.rate(name)
    return None if rate is None else f"{rate:,.1f}"


def _seconds(role: RoleStatus, now: datetime) -> int | None:
    """Give the age of the oldest envelope that a consumer lacks, in seconds."""
    if role.kind != "consumer":
        return None
    return 0 if role.owed_since is None else max(0, round((now - role.owed_since).total_seconds()))


def _parked(role: RoleStatus) -> str | int | None:
    if role.kind != "consumer":
        return None
    return f"{role.parked:,}, {counted(role.parked_items)}" if role.parked_items else role.parked


@command()
def top(bus: CommandBus) -> None:
    """Show the bus as it works: rates, lag, health, and what is parked.

    On a terminal the command shows it anew every 2 seconds, until you press Ctrl-C. Elsewhere it writes one look, which
    has no rates yet.
    """
    bus.check()
    broker, rates, clock = RunningBroker(bus.path), Rates(), bus.clock

    def show() -> None:
        now = clock.now()
        with bus.reading() as connection:
            types, roles = count_types(connection, now - timedelta(hours=1)), list_roles(connection)
        front, back = asyncio.run(broker.health_of_both())
        delivered = broker.delivered([role.role_id for role in roles if role.kind == "consumer"]) if back else None
        look = BusLook(now, types, roles, {"front": front, "back": back}, delivered or {})
        rates.note(clock.monotonic(), look.counts)
        click.echo("\n".join(overview(look, rates, Output.of(Form.USUAL))))

    if sys.stdout.isatty():
        show_again(show, sys.stdout, time.sleep)
    else:
        show()
