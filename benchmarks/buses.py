"""Buses of other shapes than one emitter and one consumer."""

from dataclasses import replace
from typing import Literal

from benchmarks.bus import CONSUMER, EMITTER, EVENT_TYPE, ONE_CONSUMER
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.writes import SendingLimits

WORKER = "enricher"
RARE = "complaints"
"""An event type of which few come, and the role that takes them."""

NO_CONSUMER = BusSpec(
    event_types=ONE_CONSUMER.event_types,
    services=ONE_CONSUMER.services,
    profiles=ONE_CONSUMER.profiles,
    emitters=ONE_CONSUMER.emitters,
)
AT_HEAD = replace(ONE_CONSUMER, roles={CONSUMER: RoleSpec(CONSUMER, CONSUMER, start="head")})

ENRICHED = "enriched"
"""The event type of what the worker made."""

IDLE = "idle"
"""An event type that nobody sends, and the service of its consumers."""

WITH_IDLE = ONE_CONSUMER.with_all(
    BusSpec(
        event_types={IDLE: EventTypeSpec(IDLE, False, {IDLE: NodeSpec(IDLE, IDLE)})},
        services={IDLE: ServiceSpec(IDLE, "consumer")},
    )
)

WITH_WORKER = BusSpec(
    event_types={
        EVENT_TYPE: EventTypeSpec(
            EVENT_TYPE,
            False,
            {WORKER: NodeSpec(WORKER, WORKER, (CONSUMER,)), CONSUMER: NodeSpec(CONSUMER, CONSUMER)},
        )
    },
    services={WORKER: ServiceSpec(WORKER, "worker"), CONSUMER: ServiceSpec(CONSUMER, "consumer")},
    roles={WORKER: RoleSpec(WORKER, WORKER), CONSUMER: RoleSpec(CONSUMER, CONSUMER)},
    profiles=ONE_CONSUMER.profiles,
    emitters=ONE_CONSUMER.emitters,
)


CHAINED = WITH_WORKER.with_all(
    BusSpec(
        event_types={
            EVENT_TYPE: EventTypeSpec(
                EVENT_TYPE,
                False,
                {
                    WORKER: NodeSpec(WORKER, WORKER, ("enriched",)),
                    "enriched": NodeSpec("enriched", "", (), (ENRICHED,)),
                },
            ),
            ENRICHED: EventTypeSpec(ENRICHED, False, {CONSUMER: NodeSpec(CONSUMER, CONSUMER)}),
        }
    )
)
"""The same, with an event type between worker and consumer."""

ORDERED = replace(ONE_CONSUMER, roles={CONSUMER: RoleSpec(CONSUMER, CONSUMER, ordered=True)})


def fan_out(consumers: int, failures: Literal["shared", "own"] = "shared") -> BusSpec:
    """A bus whose events all go to each of so many consumers, which have services of their own.

    Args:
        failures: of each service.
    """
    names = [f"{CONSUMER}_{number}" for number in range(consumers)]
    return BusSpec(
        event_types={EVENT_TYPE: EventTypeSpec(EVENT_TYPE, False, {name: NodeSpec(name, name) for name in names})},
        services={name: ServiceSpec(name, "consumer", failures) for name in names},
        roles={name: RoleSpec(name, name) for name in names},
        profiles=ONE_CONSUMER.profiles,
        emitters=ONE_CONSUMER.emitters,
    )


OTHER_TYPE = "orders"
DECIDING = (f"{CONSUMER}_0", f"{CONSUMER}_1")
LAGGING, ABSENT = f"{CONSUMER}_lagging", f"{CONSUMER}_absent"

REAL = BusSpec(
    event_types={
        name: EventTypeSpec(name, False, {role: NodeSpec(role, role) for role in (*DECIDING, LAGGING, ABSENT)})
        for name in (EVENT_TYPE, OTHER_TYPE)
    },
    services={
        **{name: ServiceSpec(name, "consumer") for name in DECIDING},
        **{name: ServiceSpec(name, "consumer", "own") for name in (LAGGING, ABSENT)},
    },
    roles={name: RoleSpec(name, name) for name in (*DECIDING, LAGGING, ABSENT)},
    profiles={
        "shops": ProfileSpec(
            "shops", frozenset({EVENT_TYPE, OTHER_TYPE}), limits=SendingLimits(10_000_000, 10**10, 10_000, 100)
        )
    },
    emitters=ONE_CONSUMER.emitters,
)
"""The duties of a real bus: two types go to four roles. Two of them decide together. One lags
and one is absent, both with failures of their own. The emitters have limits."""


def with_rare(has_consumer: bool) -> BusSpec:
    """A bus with an event type of which few come, and maybe a consumer that begins at the oldest of them."""
    role = {RARE: RoleSpec(RARE, RARE, start="oldest")} if has_consumer else {}
    rare = BusSpec(
        event_types={RARE: EventTypeSpec(RARE, False, {RARE: NodeSpec(RARE, RARE)})},
        services={RARE: ServiceSpec(RARE, "consumer")},
        roles=role,
        profiles={"shops": ProfileSpec("shops", frozenset({EVENT_TYPE, RARE}))},
        emitters={EMITTER: EmitterSpec(EMITTER, "shops")},
    )
    return ONE_CONSUMER.with_all(rare)
