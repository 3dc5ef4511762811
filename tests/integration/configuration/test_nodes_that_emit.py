"""Nodes that emit, in a real database: what the bus has of its own for them, and what is refused."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, select

from xbus import model
from xbus.admin import bus_file
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    detaching,
    logins_without_password,
    make_plan,
    pausing,
    read_stored,
    set_password,
)
from xbus.broker.journal.configuration.checked import find_table_problems
from xbus.broker.journal.log.catalog import Catalog, read_catalog, read_graph
from xbus.broker.journal.writes import PauseKind
from xbus.errors import ConfigurationError, Refused

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)

OWN = {"orders/priced": "priced", "orders/split/refunds": "refunds"}

BUS = BusSpec(
    event_types={
        "orders": EventTypeSpec(
            "orders",
            False,
            {
                "split": NodeSpec("split", "splitter", ("priced",), ("refunds",)),
                "priced": NodeSpec("priced", "", (), ("priced",)),
            },
        ),
        "priced": EventTypeSpec("priced", False, {}),
        "refunds": EventTypeSpec("refunds", False, {}),
    },
    services={"splitter": ServiceSpec("splitter", "worker")},
)


def change(connection: Connection, bus: BusSpec, *, prune: bool = False) -> None:
    apply(connection, make_plan(read_stored(connection), bus, prune=prune), NOON)


def problems(connection: Connection, bus: BusSpec) -> list[str]:
    return [problem.sentence for problem in make_plan(read_stored(connection), bus).problems]


def emitting(catalog: Catalog) -> dict[str, str]:
    """The type as which each role of the bus's own emits."""
    names = {entry.id: entry.name for entry in catalog.event_types.values()}
    return {role.login: names[role.emits] for role in catalog.roles.values() if role.emits is not None}


def type_of(name: str, *nodes: NodeSpec, immediate: bool = False) -> EventTypeSpec:
    return EventTypeSpec(name, immediate, {node.name: node for node in nodes})


def test_the_bus_has_a_role_and_an_emitter_of_its_own_for_each_node(connection: Connection) -> None:
    change(connection, BUS)

    catalog = read_catalog(connection)
    assert emitting(catalog) == OWN
    own = {entry.login: entry.event_types for entry in catalog.emitters.values() if entry.kind == "node"}
    assert own == {login: frozenset({name}) for login, name in OWN.items()}
    assert find_table_problems(connection) == []


def test_administrators_see_the_nodes_and_nothing_else(connection: Connection) -> None:
    change(connection, BUS)

    stored = read_stored(connection).in_use
    assert stored == BUS
    assert make_plan(read_stored(connection), BUS, prune=True).changes == ()
    assert bus_file.read(bus_file.write(stored).encode()).bus == BUS


def test_nobody_may_log_in_as_a_node(connection: Connection) -> None:
    change(connection, BUS)

    assert [*logins_without_password(connection)] == []
    for kind in ("emitter", "role"):
        with pytest.raises(ConfigurationError, match=r'there is no \w+ "orders/priced"'):
            set_password(connection, kind, "orders/priced", "a hash", NOON)


def test_only_a_worker_that_names_a_type_reaches_a_node_that_it_lists(connection: Connection) -> None:
    change(connection, BUS)

    graph = read_graph(connection, read_catalog(connection).event_types["orders"].graph_id)
    types = {entry.name: entry.id for entry in read_catalog(connection).event_types.values()}
    assert {name: node.aside for name, node in graph.nodes.items()} == {
        "split": False,
        "priced": False,
        "split/refunds": True,
    }
    outs = {types["priced"]: ("priced",), types["refunds"]: ("split/refunds",)}
    assert graph.nodes["split"].outs == outs
    # A part of the graph knows all ways still: what has no way in it is left out, and no mistake.
    part = graph.leading_to({"orders/priced"})
    assert (part.nodes["split"].children, part.nodes["split"].outs) == (("priced",), outs)


def test_a_worker_that_lists_one_type_and_leads_nowhere_else_sends_all_there(connection: Connection) -> None:
    node = NodeSpec("split", "splitter", (), ("refunds",))
    change(connection, replace(BUS, event_types={**BUS.event_types, "orders": type_of("orders", node)}))

    graph = read_graph(connection, read_catalog(connection).event_types["orders"].graph_id)
    assert (graph.nodes["split"].goes_on, graph.nodes["split/refunds"].aside) == (True, False)


def test_a_renamed_type_takes_along_what_the_bus_has_for_its_nodes(connection: Connection) -> None:
    change(connection, BUS)
    ids = {role.login: role.id for role in read_catalog(connection).roles.values()}
    sales = replace(BUS.event_types["orders"], name="sales", renamed_from="orders")

    change(connection, BusSpec(event_types={"sales": sales}))

    renamed = {role.login: role.id for role in read_catalog(connection).roles.values()}
    assert renamed == {login.replace("orders/", "sales/"): role_id for login, role_id in ids.items()}
    assert (
        make_plan(read_stored(connection), BusSpec(event_types={"sales": replace(sales, renamed_from=None)})).changes
        == ()
    )


def test_a_node_that_goes_keeps_its_role_for_what_is_owed_still(connection: Connection) -> None:
    change(connection, BUS)
    change(connection, BusSpec(event_types={"orders": type_of("orders")}))

    assert emitting(read_catalog(connection)) == OWN


def test_a_node_emits_one_type_for_good(connection: Connection) -> None:
    change(connection, BUS)
    orders = type_of("orders", NodeSpec("priced", "", (), ("refunds",)))

    (problem,) = problems(connection, BusSpec(event_types={"orders": orders}))
    assert problem.startswith('node "priced" emits "priced" for good')

    change(connection, BusSpec(event_types={"orders": type_of("orders")}))
    with pytest.raises(ConfigurationError) as refused:
        change(connection, BusSpec(event_types={"orders": orders}))
    assert refused.value.code == "node_emits_other"


@pytest.mark.parametrize(
    ("bus", "sentence"),
    [
        (
            BusSpec(event_types={"priced": type_of("priced", NodeSpec("back", "", (), ("orders",)))}),
            'event types lead back to themselves: "orders" to "priced" to "orders"',
        ),
        (
            BusSpec(event_types={"priced": type_of("priced", NodeSpec("back", "", (), ("priced",)))}),
            'event types lead back to themselves: "priced" to "priced"',
        ),
        (
            BusSpec(event_types={"refunds": type_of("refunds", immediate=True), "orders": BUS.event_types["orders"]}),
            'event type "refunds" has immediate replies, and nobody would wait for one',
        ),
        (
            BusSpec(event_types={"new": type_of("new", NodeSpec("x", "", (), ("nothing",)))}),
            'there is no event_type "nothing"',
        ),
        (BusSpec(event_types={"new": type_of("new", NodeSpec("x", ""))}), "a node has a service, or emits"),
        (
            BusSpec(event_types={"new": type_of("new", NodeSpec("x", "", (), ("priced", "refunds")))}),
            "a node without a service emits one type, and this one 2: take a node for each",
        ),
        (
            BusSpec(event_types={"new": type_of("new", NodeSpec("a/b", "", (), ("priced",)))}),
            'the name of a node that emits has no "/"',
        ),
        (
            BusSpec(
                event_types={"new": type_of("new", NodeSpec("x", "store", (), ("priced",)))},
                services={"store": ServiceSpec("store", "consumer")},
            ),
            'service "store" is a consumer, which answers nothing that could be emitted',
        ),
        (
            BusSpec(
                event_types={"new": type_of("new", NodeSpec("x", "", (), ("priced",)))},
                services={"splitter": BUS.services["splitter"]},
                roles={"new/x": RoleSpec("new/x", "splitter")},
            ),
            'role "new/x" has the name that the bus needs for this node',
        ),
    ],
)
def test_what_can_not_be_is_refused(connection: Connection, bus: BusSpec, sentence: str) -> None:
    change(connection, BUS)

    assert sentence in problems(connection, bus)


def test_a_type_that_gets_immediate_replies_later_is_refused_too(connection: Connection) -> None:
    change(connection, BUS)
    wished = BusSpec(event_types={"refunds": type_of("refunds", immediate=True)})

    assert problems(connection, wished) == [
        'event type "refunds" has immediate replies, and nobody would wait for one: '
        'node "split/refunds" of "orders" emits it'
    ]


def test_an_emitter_of_a_program_can_not_take_the_name_of_a_node(connection: Connection) -> None:
    change(connection, BUS)
    wished = BusSpec(
        profiles={"p": ProfileSpec("p", frozenset())},
        emitters={"orders/priced": EmitterSpec("orders/priced", "p")},
    )

    assert any("orders/priced" in sentence for sentence in problems(connection, wished))
    assert (
        connection.execute(select(model.emitter.c.kind).where(model.emitter.c.login == "orders/priced")).scalar_one()
        == "node"
    )


def test_a_node_is_detached_only_while_it_is_paused(connection: Connection) -> None:
    change(connection, BUS)
    with pytest.raises(Refused) as refused:
        detaching.detach(connection, "orders/priced", "gone", NOON)
    assert refused.value.code == "role_served"

    pausing.pause(connection, PauseKind.ROLE, "orders/priced", RepairDecision("ada", "gone", NOON), None)
    detaching.detach(connection, "orders/priced", "gone", NOON)
    assert [role.login for role in read_catalog(connection).roles.values() if role.detached] == ["orders/priced"]


def test_a_pause_of_the_type_pauses_the_node_that_emits_it(connection: Connection) -> None:
    change(connection, BUS)
    pausing.pause(connection, PauseKind.TYPE, "refunds", RepairDecision("ada", "mended", NOON), None)

    paused = {role.login for role in read_catalog(connection).roles.values() if role.pause is not None}
    assert paused == {"orders/split/refunds"}
