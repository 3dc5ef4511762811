"""Events in thought, on the bus as it is and as it would be."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from tests.support.journal import NOW, small_bus
from xbus.admin.rehearsal import TypeComparison, compare, may_send, ways
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, NodeSpec, ProfileSpec, RoleSpec, ServiceSpec
from xbus.broker.journal.operations.envelopes.search import SentEvents

BUS = small_bus()


def sent(*emitters: str, events: int = 1) -> list[SentEvents]:
    """An envelope of each emitter, newest first."""
    top = len(emitters)
    return [SentEvents(top - n, UUID(int=top - n), emitter, events, NOW) for n, emitter in enumerate(emitters)]


def rerouted(type_name: str, *nodes: NodeSpec, services: Iterable[ServiceSpec] = ()) -> BusSpec:
    """The small bus with another graph of a type."""
    changed = EventTypeSpec(type_name, False, {node.name: node for node in nodes})
    return replace(
        BUS,
        event_types={**BUS.event_types, type_name: changed},
        services={**BUS.services, **{service.name: service for service in services}},
    )


def told(found: TypeComparison) -> dict[tuple[str, str | None], tuple[int, int, list[int]]]:
    """For each changed stop the events now and then, and the examples."""
    return {
        (route.service, route.role): (route.tally.now, route.tally.then, [each.int for each in route.tally.examples])
        for route in found.routes
        if route.is_changed
    }


def test_ways_lead_through_workers_to_each_role_of_a_service() -> None:
    found = ways(BUS, "fares")
    assert list(found) == [("names", "names_1"), ("prices", "prices_1"), ("store", "store_1"), ("store", "store_2")]
    assert found["store", "store_2"].through == ("names", "prices")
    assert (found["names", "names_1"].kind, found["names", "names_1"].through) == ("worker", ())
    assert (ways(BUS, "secrets"), ways(BUS, "nothing")) == ({}, {})


def test_emitters_may_send_what_their_profile_names() -> None:
    assert may_send(BUS, "north", "flights")
    assert not may_send(BUS, "south", "flights")
    assert not may_send(BUS, "nobody", "flights")


def test_the_same_bus_changes_nothing() -> None:
    found = compare("flights", BUS, BUS, sent("north", "north"))
    assert (found.is_changed, found.events, found.since) == (False, 2, NOW)
    assert [(route.role, route.tally.now, route.tally.then) for route in found.routes] == [
        ("store_1", 2, 2),
        ("store_2", 2, 2),
        ("names_1", 2, 2),
    ]


def test_a_role_that_comes_and_one_that_goes_are_counted_with_examples() -> None:
    roles = {login: role for login, role in BUS.roles.items() if login != "store_2"}
    after = replace(BUS, roles={**roles, "store_3": RoleSpec("store_3", "store")})
    found = compare("notes", BUS, after, sent(*["south"] * 5, events=2))
    assert found.events == 10
    assert told(found) == {("store", "store_2"): (10, 0, [5, 4, 3]), ("store", "store_3"): (0, 10, [5, 4, 3])}


def test_another_way_to_the_same_role_is_a_change() -> None:
    after = rerouted("flights", NodeSpec("store", "store"))
    found = compare("flights", BUS, after, sent("north"))
    assert told(found) == {
        ("names", "names_1"): (1, 0, [1]),
        ("store", "store_1"): (1, 1, [1]),
        ("store", "store_2"): (1, 1, [1]),
    }


def test_a_service_without_a_role_is_told() -> None:
    after = rerouted("notes", NodeSpec("audit", "audit"), services=[ServiceSpec("audit", "consumer")])
    found = compare("notes", BUS, after, sent("south"))
    assert told(found)["audit", None] == (0, 1, [1])


def test_who_may_not_send_any_more_is_told_and_nobody_gets_that() -> None:
    after = replace(BUS, profiles={**BUS.profiles, "notes only": ProfileSpec("notes only", frozenset())})
    found = compare("notes", BUS, after, sent("south", "north", "south"))
    ((login, tally),) = found.senders
    assert (login, tally.now, tally.then, [each.int for each in tally.examples]) == ("south", 2, 0, [3, 1])
    assert told(found)["store", "store_1"] == (3, 1, [3, 1])
    assert found.examples == [UUID(int=3), UUID(int=1)] * 3


def test_a_type_that_goes_leads_nowhere() -> None:
    after = replace(BUS, event_types={name: each for name, each in BUS.event_types.items() if name != "notes"})
    found = compare("notes", BUS, after, sent("south"))
    assert told(found) == {("store", "store_1"): (1, 0, [1]), ("store", "store_2"): (1, 0, [1])}
    assert [login for login, _ in found.senders] == ["south"]
