"""Decisions about what is owed: as they are stored, read and carried out by the journal."""

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, small_bus
from xbus import model
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    NodeSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.decisions import Owed, decide, heirs, read_arrears
from xbus.broker.journal.configuration.plan import Plan
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.backlog_changes import is_open, read_concerned, read_decisions
from xbus.broker.journal.writes import Decided, DeliveryMove, DeliveryRow, ProgressUpdate
from xbus.errors import ConfigurationError
from xbus.states import DeliveryState

AUDIT = BusSpec(services={"audit": ServiceSpec("audit", "consumer")}, roles={"audit_1": RoleSpec("audit_1", "audit")})


def notes_to_audit() -> BusSpec:
    return BusSpec(
        event_types={"notes": EventTypeSpec("notes", False, {"audit": NodeSpec("audit", "audit")})}
    ).with_all(AUDIT)


def without(login: str) -> BusSpec:
    bus = small_bus()
    return BusSpec(
        bus.event_types,
        bus.services,
        {name: role for name, role in bus.roles.items() if name != login},
        bus.profiles,
        bus.emitters,
    )


async def change(engine: sa.Engine, journal: Journal, bus: BusSpec, owed: Owed, *, prune: bool = False) -> None:
    def applied(connection: sa.Connection) -> None:
        plan = make_plan(read_stored(connection), bus, prune=prune)
        inherited = heirs(connection, plan, None) if owed is Owed.REROUTE else {}
        apply(connection, plan, NOW)
        decide(connection, plan, owed, inherited, NOW)

    if engine.url.database in (None, ":memory:"):
        # It is one connection, the journal's.
        await journal.read(applied)
    else:
        with engine.begin() as connection:
            applied(connection)


async def plan_for(journal: Journal, bus: BusSpec, *, prune: bool = False) -> Plan:
    return make_plan(await journal.read(read_stored), bus, prune=prune)


async def test_what_is_owed_is_told_with_its_place_and_age(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"x"]) for _ in range(3)]
    first, *_ = receipts
    parked = DeliveryRow(scribe.role_id(), first.envelope_id, 1, DeliveryState.RETRY, 1, "", "")
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, parked)]))
    edited = await journal.read(read_arrears, await plan_for(journal, notes_to_audit()))
    assert [(owed.role, owed.envelopes, owed.first, owed.last) for owed in edited] == [
        ("store_1", 3, 1, 3),
        ("store_2", 3, 1, 3),
    ]
    removed = await journal.read(read_arrears, await plan_for(journal, without("store_2"), prune=True))
    assert [str(owed) for owed in removed] == [
        'role "store_2" has not got 3 envelopes yet: positions 1 to 3, the oldest of 2020-02-29 12:00:00 UTC'
    ]


async def test_a_service_without_a_role_is_owed_what_waits_for_its_first_one(
    engine: sa.Engine, journal: Journal
) -> None:
    lonely = BusSpec(
        event_types={"notes": EventTypeSpec("notes", False, {"audit": NodeSpec("audit", "audit")})},
        services=AUDIT.services,
    )
    await change(engine, journal, lonely, Owed.KEEP)
    await (await Scribe.of(journal)).put([b"x"])
    back = BusSpec(event_types={"notes": small_bus().event_types["notes"]})
    (owed,) = await journal.read(read_arrears, await plan_for(journal, back))
    assert str(owed).startswith('service "audit", which has no role yet, has not got 1 envelope yet: position 1')


async def test_a_dropped_node_is_a_decision_up_to_the_head(engine: sa.Engine, journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    await scribe.put([b"y"], type_name="flights")
    await change(engine, journal, notes_to_audit(), Owed.DROP)
    (decision,) = await journal.read(read_decisions)
    assert (decision.move, decision.position, decision.until, decision.services) == (
        "dropped",
        0,
        2,
        frozenset({"store"}),
    )
    concerned = await journal.read(read_concerned, decision.graphs, 0, 2)
    assert [envelope.envelope_id for envelope in concerned.envelopes] == [receipt.envelope_id]
    assert concerned.roles[scribe.role_id()].service == "store"


async def test_a_step_is_one_transaction(engine: sa.Engine, journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    await change(engine, journal, notes_to_audit(), Owed.REROUTE)
    (decision,) = await journal.read(read_decisions)
    (envelope,) = (await journal.read(read_concerned, decision.graphs, 0, 1)).envelopes
    assert decision.graph_id is not None
    regraphed = [(event.event_id, decision.graph_id) for event in envelope.events]
    let_go = [(scribe.role_id(), receipt.envelope_id, "rerouted", "because")]
    await journal.write(ProgressUpdate(NOW, decided=[Decided(decision.id, 1, False, regraphed, let_go)]))
    (decision,) = await journal.read(read_decisions)
    assert decision.position == 1
    assert (await journal.read(read_concerned, decision.graphs, 0, 1)).envelopes == []
    await journal.write(ProgressUpdate(NOW, decided=[Decided(decision.id, 1, True)]))
    assert await journal.read(read_decisions) == []

    def told(connection: sa.Connection) -> list[tuple[str, str, str]]:
        history = model.history.c
        statement = sa.select(history.subject_id, history.move, history.reason).where(history.subject == "delivery")
        return [(row.subject_id, row.move, row.reason) for row in connection.execute(statement)]

    assert await journal.read(told) == [(f"{scribe.role_id()} {receipt.envelope_id}", "rerouted", "because")]


async def test_open_envelopes_take_the_first_graph_with_the_change_itself(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    envelope_id, started = scribe.start_envelope()
    _, event = scribe.start_event(envelope_id, type_name="secrets")
    await started
    await event
    graphs = frozenset({scribe.catalog.event_types["secrets"].graph_id})
    assert await journal.read(is_open, graphs)
    first = BusSpec(event_types={"secrets": EventTypeSpec("secrets", False, {"store": NodeSpec("store", "store")})})
    await change(engine, journal, first, Owed.KEEP)
    (decision,) = await journal.read(read_decisions)
    assert (decision.move, decision.until, decision.graphs) == ("first_graph", None, graphs)
    assert not await journal.read(is_open, graphs)


async def test_a_removed_role_leaves_what_it_is_owed_to_the_only_other_one(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    await scribe.put([b"x"])
    await change(engine, journal, without("store_1"), Owed.REROUTE, prune=True)
    (decision,) = await journal.read(read_decisions)
    assert (decision.role_id, decision.to_role_id) == (scribe.role_id("store_1"), scribe.role_id("store_2"))
    assert (decision.position, decision.until, decision.services) == (0, 1, frozenset({"store"}))
    with pytest.raises(ConfigurationError, match="to another role of its service"):
        await change(engine, journal, BusSpec(services=small_bus().services), Owed.REROUTE, prune=True)
