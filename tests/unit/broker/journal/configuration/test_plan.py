"""What a change comes to and why it is refused: without a database."""

from dataclasses import replace

import pytest

from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    Plan,
    ProfileSpec,
    RoleSpec,
    Section,
    ServiceSpec,
    Stored,
    make_plan,
)
from xbus.broker.journal.configuration.writing import demo_bus

EMPTY = Stored(version=1, in_use=BusSpec(), removed=BusSpec())
DEMO = Stored(version=7, in_use=demo_bus(), removed=BusSpec())


def told(plan: Plan) -> list[str]:
    return [str(change) for change in plan.changes]


def refusals(plan: Plan) -> list[tuple[str, str]]:
    return [("/".join(problem.place), problem.sentence) for problem in plan.problems]


def event_type(*nodes: NodeSpec, immediate_reply: bool = False) -> BusSpec:
    return BusSpec(
        event_types={"flights": EventTypeSpec("flights", immediate_reply, {node.name: node for node in nodes})}
    )


SERVICES = BusSpec(services={"names": ServiceSpec("names", "worker"), "store": ServiceSpec("store", "consumer")})


def test_everything_is_new_to_an_empty_bus() -> None:
    plan = make_plan(EMPTY, demo_bus())
    assert plan.version == 1
    assert plan.problems == ()
    assert told(plan) == [
        'add event_type "test_event"',
        'add service "consumer_service"',
        'add service "worker_service"',
        'add role "consumer_role"',
        'add role "worker_role"',
        'add emitter_profile "test_profile"',
        'add emitter "test_emitter"',
    ]


def test_the_same_again_is_no_change() -> None:
    assert make_plan(DEMO, demo_bus()).changes == ()
    assert make_plan(DEMO, demo_bus(), prune=True).changes == ()


def test_the_order_of_nodes_is_no_change() -> None:
    test_event = demo_bus().event_types["test_event"]
    turned = replace(test_event, nodes=dict(reversed([*test_event.nodes.items()])))
    assert make_plan(DEMO, BusSpec(event_types={"test_event": turned})).changes == ()


def test_what_is_not_named_stays() -> None:
    assert make_plan(DEMO, BusSpec()).changes == ()


def test_what_is_not_named_is_pruned_on_demand() -> None:
    plan = make_plan(DEMO, BusSpec(), prune=True)
    assert plan.removals == plan.changes
    assert told(plan)[0] == 'remove event_type "test_event"'
    assert len(plan.removals) == 7


def test_a_change_tells_what_differs() -> None:
    wished = BusSpec(
        event_types={"test_event": EventTypeSpec("test_event", False, {})},
        profiles={"test_profile": ProfileSpec("test_profile", frozenset())},
    )
    assert told(make_plan(DEMO, wished)) == [
        'change event_type "test_event": nodes',
        'change emitter_profile "test_profile": event_types',
    ]


def test_what_a_file_does_not_say_is_as_it_is_by_default() -> None:
    bus = demo_bus()
    stubborn = ServiceSpec("consumer_service", "consumer", "own", attempts=9, jitter=0.5)
    picky = replace(bus.event_types["test_event"], bad_items="isolate", max_isolated=7)
    strict = RoleSpec("consumer_role", "consumer_service", ordered=True, absent_minutes=5, instances=4, standby=True)
    stored = replace(
        DEMO,
        in_use=bus.with_all(
            BusSpec(
                event_types={"test_event": picky},
                services={"consumer_service": stubborn},
                roles={"consumer_role": strict},
            )
        ),
    )
    assert told(make_plan(stored, bus)) == [
        'change event_type "test_event": bad_items, max_isolated',
        'change service "consumer_service": failures, attempts, jitter',
        'change role "consumer_role": ordered, absent_minutes, instances, standby',
    ]


def test_what_was_removed_comes_back() -> None:
    stored = Stored(version=9, in_use=BusSpec(), removed=demo_bus())
    assert {change.move for change in make_plan(stored, demo_bus()).changes} == {"restore"}


@pytest.mark.parametrize(
    ("bus", "refusal"),
    [
        (
            BusSpec(roles={"x": RoleSpec("x", "nowhere")}),
            ("role/x/service", 'there is no service "nowhere"'),
        ),
        (
            BusSpec(emitters={"x": EmitterSpec("x", "nobody")}),
            ("emitter/x/profile", 'there is no emitter_profile "nobody"'),
        ),
        (
            BusSpec(profiles={"x": ProfileSpec("x", frozenset({"nothing"}))}),
            ("emitter_profile/x/event_types", 'there is no event_type "nothing"'),
        ),
        (
            event_type(NodeSpec("start", "nowhere")),
            ("event_type/flights/node/start/service", 'there is no service "nowhere"'),
        ),
        (
            BusSpec(services={"worker_service": ServiceSpec("worker_service", "consumer")}),
            (
                "service/worker_service/kind",
                'service "worker_service" is a worker and stays one; take another name for a consumer',
            ),
        ),
        (
            BusSpec(services={"worker_service": ServiceSpec("worker_service", "worker", attempts=3)}),
            (
                "service/worker_service/attempts",
                "attempts is of meaning for consumers only: they are what envelopes are tried again for",
            ),
        ),
        (
            BusSpec(roles={"worker_role": RoleSpec("worker_role", "worker_service", ordered=True)}),
            (
                "role/worker_role/ordered",
                "ordered is of meaning for consumers only: a worker gets events as its runs need it",
            ),
        ),
        (
            BusSpec(roles={"worker_role": RoleSpec("worker_role", "worker_service", parked_minutes=5)}),
            (
                "role/worker_role/parked_minutes",
                "parked_minutes is of meaning for consumers only: nothing is parked for a worker",
            ),
        ),
        (
            BusSpec(services={"x": ServiceSpec("x", "consumer", first_delay=60, longest_delay=2.5)}),
            ("service/x/first_delay", "first_delay (60 s) is longer than longest_delay (2.5 s)"),
        ),
        (
            BusSpec(roles={"worker_role": RoleSpec("worker_role", "consumer_service")}),
            (
                "role/worker_role/service",
                'role "worker_role" belongs to service "worker_service" for good; take another login',
            ),
        ),
        (
            event_type(NodeSpec("a", "worker_service", ("b",)), NodeSpec("b", "worker_service", ("a",))),
            ("event_type/flights", 'nodes lead back to themselves: "a", "b"'),
        ),
    ],
)
def test_a_refusal_says_where_and_why(bus: BusSpec, refusal: tuple[str, str]) -> None:
    assert refusal in refusals(make_plan(DEMO, bus))


def test_every_problem_is_told() -> None:
    bus = event_type(NodeSpec("a", "names"), NodeSpec("b", "store", ("a",))).with_all(SERVICES)
    bus = bus.with_all(BusSpec(roles={"x": RoleSpec("x", "nowhere")}, emitters={"y": EmitterSpec("y", "nobody")}))
    assert len(refusals(make_plan(EMPTY, bus))) == 4


def test_a_service_that_was_removed_keeps_its_kind() -> None:
    stored = Stored(version=9, in_use=BusSpec(), removed=demo_bus())
    plan = make_plan(stored, BusSpec(services={"worker_service": ServiceSpec("worker_service", "consumer")}))
    assert [place for place, _ in refusals(plan)] == ["service/worker_service/kind"]


def test_pruning_what_is_still_referred_to_is_refused() -> None:
    bus = replace(demo_bus(), services={"worker_service": ServiceSpec("worker_service", "worker")})
    plan = make_plan(DEMO, bus, prune=True)
    assert refusals(plan)[0] == (
        "event_type/test_event/node/consumer/service",
        'there is no service "consumer_service"',
    )


def test_a_reference_to_what_could_not_be_read_is_no_problem_of_its_own() -> None:
    bus = BusSpec(roles={"x": RoleSpec("x", "damaged")})
    assert make_plan(EMPTY, bus, unreadable=[(Section.SERVICE, "damaged")]).problems == ()
