"""Tells a person what the back knows in its memory alone: who has an envelope in hand, what it waits for, and the
figures that metrics show.

It reads no database and changes nothing. Its answer is of one moment, and may be over when it arrives.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from xbus.broker.back.progress import ConsumerRoles, RoleCounts
from xbus.broker.back.recipients import CircuitBreakers, RecipientProxy, Registry, Slots
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.log.event_states import DONE
from xbus.clock import Clock
from xbus.rpc.messages import CallInHand, DeliveredToRole, GraceLeft, Insight, RoleInsight
from xbus.states import ConsumerState


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """The figures at one moment.

    Args:
        counts: by the login of a role, what came of the deliveries to it; None stands for all further roles.
        in_groups: how many of the committed envelopes were handed over in one call with others.
        in_flight: by the id of a role, how many envelopes are being brought to it.
        bundled_bytes: the bytes of small envelopes that wait for their recipients.
        tail_bytes: the bytes of the envelopes that were sealed last, and are kept so that nobody reads them back.
        head: the position of the last envelope.
    """

    counts: Mapping[str | None, RoleCounts]
    in_groups: int
    in_flight: Mapping[int, int]
    bundled_bytes: int
    tail_bytes: int
    head: int

    def delivered(self, roles: Iterable[RoleEntry]) -> Iterator[DeliveredToRole]:
        """Tell how much each role has committed; a role that is not counted apart is left out."""
        for role in roles:
            counts = self.counts.get(role.login)
            if counts is not None:
                yield {"role": role.id, "envelopes": counts.results[DONE], "items": counts.items}
            elif None not in self.counts:
                yield {"role": role.id, "envelopes": 0, "items": 0}


MOST_IN_FLIGHT = 1000
"""So many positions of envelopes in flight are told of a role: more than its programs have slots."""


class BackInsight:
    """The memory of the back, for ``xbus why``.

    Args:
        registry: knows who is there.
        slots: know who is free.
        roles: the consumer roles.
        breakers: know which roles are in trouble.
        catalog: has the roles.
        clock: dates what began a while ago.
        grace: for how many seconds an envelope waits in its turn for an absent worker.
    """

    def __init__(
        self,
        registry: Registry,
        slots: Slots[RecipientProxy],
        roles: ConsumerRoles,
        breakers: CircuitBreakers,
        catalog: Callable[[], Catalog],
        clock: Clock,
        grace: float,
    ) -> None:
        self._registry = registry
        self._slots = slots
        self._roles = roles
        self._breakers = breakers
        self._catalog = catalog
        self._clock = clock
        self._grace = grace

    def tell(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight:
        """Describe some roles, and what is being done with an envelope.

        Args:
            role_ids: which roles; one that is not in use is left out. Logins are no affair of whoever asks without one.
            envelope_id: which envelope; None for none.
            position: its position; None for none.
        """
        known = self._catalog().roles
        roles = [known[role_id] for role_id in role_ids if role_id in known]
        return {
            "roles": [self._role(role, position) for role in roles],
            "in_hand": [] if envelope_id is None else [*self._in_hand(envelope_id)],
            "graces": [*self._graces()],
            "busy": sorted(self._busy()),
        }

    def _role(self, role: RoleEntry, position: int | None) -> RoleInsight:
        breaker = self._breakers[role.id]
        serving = self._registry.serving(role.id)
        consumer = None if role.worker else self._roles[role.id]
        cursor = None if consumer is None else consumer.cursor
        lane = None if consumer is None else consumer.lane
        beside = [] if lane is None else [each for each in lane.recipients() if each.role.id != role.id]
        return {
            "role": role.id,
            "state": self._state(role).value,
            "programs": len(serving),
            "is_free": any(self._slots.is_free(program) for program in serving),
            "trouble_since": None if breaker.since is None else breaker.since.isoformat(),
            "probe_seconds": breaker.seconds_to_probe() if breaker.is_tripped else None,
            "lane_at": None if lane is None else lane.position,
            "held_up_by": [each.role.id for each in beside if not self._slots.is_free(each)],
            "in_flight": [] if consumer is None else sorted(consumer.in_flight.positions)[:MOST_IN_FLIGHT],
            "is_settled": position is not None and cursor is not None and cursor.is_settled(position),
        }

    def _state(self, role: RoleEntry) -> ConsumerState:
        """Give the state of a consumer role, and of a worker role by the same names."""
        if not role.worker:
            return self._roles[role.id].state
        if not self._registry.serving(role.id):
            return ConsumerState.ABSENT
        if self._registry.get(role.id) is None:
            return ConsumerState.PAUSED
        return ConsumerState.TRIPPED if self._breakers.is_troubled(role.id) else ConsumerState.READING

    def _in_hand(self, envelope_id: UUID) -> Iterator[CallInHand]:
        """Describe who has an envelope in hand, and the last call about it."""
        now = self._clock.now()
        for recipient in self._registry.connected():
            bringing = recipient.bringing.get(envelope_id.bytes)
            if bringing is not None:
                since = _ago(now, recipient.seconds_since(bringing.since))
                yield {"role": recipient.role.id, "verb": bringing.verb, "since": since}

    def _graces(self) -> Iterator[GraceLeft]:
        """Describe the worker services that envelopes wait for in their turn, as they went a moment ago."""
        catalog = self._catalog()
        for service in sorted({role.service for role in catalog.roles.values() if role.worker}):
            left = self._grace - self._registry.absent_for(service)
            if 0 < left < self._grace and catalog.pause_of_service(service) is None:
                yield {"service": service, "seconds": left}

    def _busy(self) -> Iterator[str]:
        """Name the worker services that are served, and by nobody who takes another event now."""
        takers: dict[str, bool] = {}
        for served in self._registry.all():
            if served.role.worker:
                is_free = any(self._slots.is_free(each) and each.readiness.is_ready for each in served.instances)
                takers[served.role.service] = takers.get(served.role.service, False) or is_free
        return (service for service, is_free in takers.items() if not is_free)


def _ago(now: datetime, seconds: float) -> str:
    return (now - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
