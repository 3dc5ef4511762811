"""Counts the last events for each role, on the bus as it is and as it would be; pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from xbus.admin.rehearsal.routing import Stop, Way, may_send, ways
from xbus.broker.journal.configuration import BusSpec
from xbus.broker.journal.operations.traffic.recent import SentEvents

MOST_EXAMPLES = 3
"""Envelopes that are named for each difference."""


@dataclass(slots=True)
class Tally:
    """The events of a type on both buses.

    Args:
        now: how many arrive on the bus as it is.
        then: how many arrive on the bus as it would be.
        examples: the newest envelopes for which that differs.
    """

    now: int = 0
    then: int = 0
    examples: list[UUID] = field(default_factory=list)

    def add(self, sent: SentEvents, *, now: bool, then: bool, differs: bool) -> None:
        """Count the events of an envelope."""
        self.now += sent.events if now else 0
        self.then += sent.events if then else 0
        if differs and len(self.examples) < MOST_EXAMPLES:
            self.examples.append(sent.envelope_id)


@dataclass(frozen=True, slots=True)
class Route:
    """A role, or a service without one, and the events of a type that it would have got.

    Args:
        now: the way there on the bus as it is; None for none, and so is ``then``.
    """

    service: str
    role: str | None
    now: Way | None
    then: Way | None
    tally: Tally

    @property
    def kind(self) -> str:
        """Say whether the service is a ``worker`` or a ``consumer``."""
        way = self.then or self.now
        return "" if way is None else way.kind

    @property
    def is_changed(self) -> bool:
        """True if the role gets other events, or gets them on another way."""
        return self.tally.now != self.tally.then or self.now != self.then


@dataclass(frozen=True, slots=True)
class TypeComparison:
    """The last events of a type on both buses.

    Args:
        type: its name on the bus as it would be, or the present one if it would go.
        events: how many events were looked at.
        since: when the oldest of them was sealed; None without any.
        routes: the roles, consumers first.
        senders: how many events of each emitter may be sent, for emitters for which that differs.
    """

    type: str
    events: int
    since: datetime | None
    routes: tuple[Route, ...]
    senders: tuple[tuple[str, Tally], ...]

    @property
    def is_changed(self) -> bool:
        """True if anything differs."""
        return bool(self.senders) or any(route.is_changed for route in self.routes)

    @property
    def examples(self) -> list[UUID]:
        """All envelopes that it names."""
        tallies = [*(route.tally for route in self.routes), *(tally for _, tally in self.senders)]
        return [envelope_id for tally in tallies for envelope_id in tally.examples]


def compare(type_name: str, before: BusSpec, after: BusSpec, sent: Iterable[SentEvents]) -> TypeComparison:
    """Compare where two buses lead events of a type.

    Args:
        before: the bus as it is, by the names of ``after``.
        after: the bus as it would be.
        sent: the events, newest first; the memory that this takes does not grow with them.
    """
    now, then = ways(before, type_name), ways(after, type_name)
    stops: dict[Stop, Tally] = {stop: Tally() for stop in {**now, **then}}
    senders: defaultdict[str, Tally] = defaultdict(Tally)
    allowed: dict[str, tuple[bool, bool]] = {}
    events, since = 0, None
    for each in sent:
        events, since = events + each.events, each.sealed_at
        may = allowed.get(each.emitter)
        if may is None:
            may = may_send(before, each.emitter, type_name), may_send(after, each.emitter, type_name)
            allowed[each.emitter] = may
        if may[0] != may[1]:
            senders[each.emitter].add(each, now=may[0], then=may[1], differs=True)
        for stop, tally in stops.items():
            arrives = may[0] and stop in now, may[1] and stop in then
            differs = arrives[0] != arrives[1] or (all(arrives) and now[stop] != then[stop])
            tally.add(each, now=arrives[0], then=arrives[1], differs=differs)
    routes = [Route(*stop, now.get(stop), then.get(stop), tally) for stop, tally in stops.items()]
    routes.sort(key=lambda route: (route.kind, route.service, route.role or ""))
    return TypeComparison(type_name, events, since, tuple(routes), tuple(sorted(senders.items())))
