"""The families of the back: deliveries and recipients."""

from collections.abc import Iterable, Iterator

from xbus.broker.back.back import Back
from xbus.broker.back.monitoring import DeliveryFigures
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.log.event_states import DONE
from xbus.broker.metrics.families import Family, Labels, counter, gauge, one
from xbus.broker.metrics.of_process import queue_bytes
from xbus.states import DeliveryState

EXPECTED = (DONE, DeliveryState.RETRY.value, DeliveryState.PARKED.value)
"""Results that are shown before the first of them: Prometheus sees a rise only from a number that was there."""


def delivery_families(back: Back, catalog: Catalog) -> Iterator[Family]:
    """Show what was delivered since this process began, and the recipients of this moment."""
    figures = back.figures
    roles = sorted(catalog.roles.values(), key=lambda role: role.id)
    yield counter("xbus_deliveries", "Attempts to deliver an envelope, by what came of them", _results(figures, roles))
    yield counter("xbus_delivered_items", "Items of the envelopes that a role has committed", _items(figures, roles))
    yield counter(
        "xbus_deliveries_in_groups",
        "Envelopes that were delivered in groups, in one call with others",
        one(figures.in_groups),
    )
    yield gauge(
        "xbus_deliveries_in_flight",
        "Envelopes that are being brought to a role, or wait in its bundle",
        [({"role": role.login}, figures.in_flight.get(role.id, 0)) for role in roles if not role.worker],
    )
    yield gauge(
        "xbus_recipients_up",
        "Recipients that serve a role",
        [({"role": role.login}, len(back.registry.serving(role.id))) for role in roles],
    )
    yield gauge(
        "xbus_breaker_tripped",
        "1 while one envelope after the other fails at a role, so that the broker only probes it",
        [({"role": role.login}, back.breakers.is_troubled(role.id)) for role in roles],
    )
    yield gauge(
        "xbus_role_paused",
        "1 while an operator has paused a role or its service",
        [({"role": role.login}, role.pause is not None) for role in roles],
    )
    yield queue_bytes({"bundles": figures.bundled_bytes, "tail": figures.tail_bytes})
    yield gauge("xbus_log_position", "Position of the newest envelope that the back knows of", one(figures.head))


def _results(figures: DeliveryFigures, roles: Iterable[RoleEntry]) -> list[tuple[Labels, float]]:
    results = {(role.login, result): 0 for role in roles if not role.worker for result in EXPECTED}
    for login, counts in figures.counts.items():
        results |= {(login or "", result): number for result, number in counts.results.items()}
    return [({"role": login, "result": result}, number) for (login, result), number in results.items()]


def _items(figures: DeliveryFigures, roles: Iterable[RoleEntry]) -> list[tuple[Labels, float]]:
    items = {role.login: 0 for role in roles if not role.worker}
    items |= {login or "": counts.items for login, counts in figures.counts.items()}
    return [({"role": login}, number) for login, number in items.items()]
