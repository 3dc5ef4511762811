"""What an administrator decided about what is owed, carried out by a whole back over a journal in memory."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import NOW, small_bus
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
from xbus.broker.journal.configuration.decisions import Owed, decide, heirs
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog

STORE = {"store": NodeSpec("store", "store")}
AUDIT = BusSpec(services={"audit": ServiceSpec("audit", "consumer")}, roles={"audit_1": RoleSpec("audit_1", "audit")})


def graph(type_name: str, *nodes: NodeSpec) -> BusSpec:
    return BusSpec(event_types={type_name: EventTypeSpec(type_name, False, {node.name: node for node in nodes})})


async def change(
    broker: Broker, bus: BusSpec, owed: Owed = Owed.KEEP, to: str | None = None, prune: bool = False
) -> None:
    """What ``xbus apply`` does, and what the broker does when it notices."""

    def applied(connection: sa.Connection) -> None:
        plan = make_plan(read_stored(connection), bus, prune=prune)
        assert not plan.problems
        inherited = heirs(connection, plan, to) if owed is Owed.REROUTE else {}
        apply(connection, plan, NOW)
        decide(connection, plan, owed, inherited, NOW)

    # A database in memory is one connection, that of the journal.
    await broker.journal.read(applied)
    broker.scribe.catalog = await broker.journal.read(read_catalog)
    await broker.configuration.refresh()


def without(*logins: str) -> BusSpec:
    bus = small_bus()
    return replace(bus, roles={login: role for login, role in bus.roles.items() if login not in logins})


async def history(broker: Broker) -> list[tuple[str, str]]:
    def read(connection: sa.Connection) -> list[tuple[str, str]]:
        rows = connection.execute(sa.select(model.history).where(model.history.c.subject == "delivery"))
        return [(row.move, row.reason) for row in rows]

    return await broker.journal.read(read)


async def pending(broker: Broker) -> int:
    count = sa.select(sa.func.count()).select_from(model.decision)
    return await broker.journal.read(lambda connection: connection.execute(count).scalar_one())


async def until_done(broker: Broker) -> None:
    while await pending(broker):
        broker.ring()


async def until_reached(broker: Broker, position: int) -> None:
    """All decisions are carried out up to a position of the log."""
    lowest = sa.select(sa.func.min(model.decision.c.position))
    while await broker.journal.read(lambda connection: connection.execute(lowest).scalar_one()) < position:
        broker.ring()


# -- the first graph ---------------------------------------------------------------------------------------------------


async def test_what_came_before_its_type_had_a_consumer_is_kept_for_the_first_one(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"1", type_name="secrets")
        await broker.put(b"other")
        await broker.put(b"2", type_name="secrets")
        await broker.until(lambda: broker.items("store_1") == [b"other"])
        while await broker.cursor() < 3:
            broker.ring()
        await change(broker, graph("secrets", *STORE.values()))
        await broker.until(lambda: broker.items("store_1") == [b"other", b"1", b"2"])
        await broker.put(b"3", type_name="secrets")
        await broker.until(lambda: broker.items("store_1") == [b"other", b"1", b"2", b"3"])
        await broker.register("store_2")
        await broker.until(lambda: sorted(broker.items("store_2")) == [b"1", b"2", b"3", b"other"])
    assert await broker.rows() == {}


async def test_a_straggler_that_was_started_with_the_empty_graph_takes_the_first_one_too(journal: Journal) -> None:
    async with running(journal) as broker:
        old = broker.scribe.catalog
        await broker.register("store_1")
        await change(broker, graph("secrets", *STORE.values()))
        broker.scribe.catalog = old
        await broker.put(b"late", type_name="secrets")
        await broker.until(lambda: broker.items("store_1") == [b"late"])


async def test_a_new_service_gets_what_waited_for_the_first_graph(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        for number in range(3):
            await broker.put(b"%d" % number, type_name="secrets")
        while await broker.cursor() < 3:
            broker.ring()
        await change(broker, graph("secrets", NodeSpec("audit", "audit")).with_all(AUDIT))
        await broker.register("audit_1")
        await broker.until(lambda: broker.items("audit_1") == [b"0", b"1", b"2"])
        assert broker.items("store_1") == []


async def test_who_had_an_envelope_for_another_of_its_events_does_not_get_it_again(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        envelope_id, started = broker.scribe.start_envelope()
        await started
        for number, type_name in enumerate(("notes", "secrets"), start=1):
            event_id, started = broker.scribe.start_event(envelope_id, number, type_name)
            broker.scribe.append(envelope_id, event_id, 0, [type_name.encode()])
            broker.scribe.end_event(envelope_id, event_id, 1)
        await broker.scribe.seal(envelope_id, 2, 2)
        broker.ring()
        await broker.until(lambda: broker.items("store_1") == [b"notes"])
        while await broker.cursor() < 1:
            await asyncio.sleep(0)
        await change(broker, graph("secrets", *STORE.values()))
        await broker.put(b"next")
        await broker.until(lambda: broker.items("store_1") == [b"notes", b"next"])
        # Who comes before that is done gets the envelope as it was.
        await until_reached(broker, 1)
        await broker.register("store_2")
        await broker.until(lambda: sorted(broker.items("store_2")) == [b"next", b"notes", b"secrets"])


# -- an edited graph ---------------------------------------------------------------------------------------------------


async def test_what_is_kept_goes_by_the_graph_that_it_was_started_with(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.put(b"old")
        await change(broker, graph("notes", NodeSpec("audit", "audit")).with_all(AUDIT))
        await broker.put(b"new")
        await broker.register("store_1")
        await broker.register("audit_1")
        await broker.until(lambda: broker.items("store_1") == [b"old"] and broker.items("audit_1") == [b"new"])
        assert await history(broker) == []


async def test_what_is_dropped_is_delivered_to_nobody_and_told(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"had")
        await broker.until(lambda: broker.items("store_1") == [b"had"])
        await broker.leave("store_1")
        await broker.put(b"dropped")
        await broker.put(b"other", type_name="flights")
        await change(broker, graph("notes", NodeSpec("audit", "audit")).with_all(AUDIT), Owed.DROP)
        await until_done(broker)
        await broker.register("names_1")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"had", b"other"])
        await broker.register("store_2")
        await broker.until(lambda: broker.items("store_2") == [b"other"])
    told = await history(broker)
    assert [move for move, _ in told] == ["dropped"] * 3
    assert told[0][1] == 'event_type "notes" leads no longer to "store", what was owed dropped'


async def test_what_is_rerouted_takes_the_new_graph_unless_all_had_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1")
        await broker.put(b"had")
        await broker.register("store_2")
        await broker.until(lambda: broker.items("store_1") == broker.items("store_2") == [b"had"])
        await broker.leave("store_1")
        await broker.put(b"had by one")
        await broker.until(lambda: broker.items("store_2") == [b"had", b"had by one"])
        await broker.leave("store_2")
        await broker.put(b"had by none")
        await change(broker, graph("notes", NodeSpec("audit", "audit")).with_all(AUDIT), Owed.REROUTE)
        await until_done(broker)
        for login in ("store_1", "store_2", "audit_1"):
            await broker.register(login)
        await broker.until(lambda: broker.items("audit_1") == [b"had by one", b"had by none"])
        assert broker.items("store_1") == [b"had"]
        assert broker.items("store_2") == [b"had", b"had by one"]
    assert [move for move, _ in await history(broker)] == ["rerouted"] * 3


async def test_what_waits_for_a_worker_of_the_old_way_goes_the_new_way_without_it(journal: Journal) -> None:
    both = (NodeSpec("names", "names", ("audit", "store")), NodeSpec("audit", "audit"), *STORE.values())
    async with running(journal) as broker:
        await change(broker, graph("flights", *both).with_all(AUDIT))
        await broker.register("store_1")
        await broker.put(b"x", type_name="flights")
        await broker.until_rows({"store_1": ("waiting", 0, "worker_absent")})
        await change(broker, graph("flights", *STORE.values()), Owed.REROUTE)
        await broker.until(lambda: broker.items("store_1") == [b"x"])
        await broker.register("store_2")
        await broker.until(lambda: broker.items("store_2") == [b"x"])
    assert await broker.rows() == {}


# -- a removed role ----------------------------------------------------------------------------------------------------


async def test_what_a_removed_role_was_owed_is_dropped(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_2")
        for number in range(3):
            await broker.put(b"%d" % number)
        await broker.until(lambda: broker.items("store_2") == [b"0", b"1", b"2"])
        await broker.put(b"for nobody", type_name="secrets")
        await change(broker, without("store_1"), Owed.DROP, prune=True)
        await until_done(broker)
        await change(broker, small_bus())
        assert await broker.cursor("store_1") == 4
        await broker.put(b"3")
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"3"])
    assert [move for move, _ in await history(broker)] == ["dropped"] * 3


async def test_what_a_removed_role_was_owed_goes_to_the_one_that_takes_its_place(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_2")
        for number in range(3):
            await broker.put(b"%d" % number)
        await broker.until(lambda: broker.items("store_2") == [b"0", b"1", b"2"])
        successor = BusSpec(roles={"store_3": RoleSpec("store_3", "store")})
        await change(broker, without("store_1").with_all(successor), Owed.REROUTE, to="store_3", prune=True)
        await until_done(broker)
        await broker.put(b"3")
        await broker.register("store_3")
        await broker.until(lambda: sorted(broker.items("store_3")) == [b"0", b"1", b"2", b"3"])
    assert [move for move, _ in await history(broker)] == ["rerouted"] * 3


async def test_a_role_that_was_owed_it_itself_does_not_get_it_twice(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_2")
        await broker.put(b"x")
        await broker.until(lambda: broker.items("store_2") == [b"x"])
        await change(broker, without("store_1"), Owed.REROUTE, prune=True)
        await until_done(broker)
        await broker.put(b"y")
        await broker.until(lambda: broker.items("store_2") == [b"x", b"y"])


# -- what dies in the midst --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owed", [Owed.DROP, Owed.REROUTE])
async def test_a_decision_outlives_the_broker(journal: Journal, owed: Owed) -> None:
    async with running(journal, clean=False) as broker:
        for number in range(3):
            await broker.put(b"%d" % number)
    async with running(journal) as broker:
        await change(broker, graph("notes", NodeSpec("audit", "audit")).with_all(AUDIT), owed)
    async with running(journal) as broker:
        await until_done(broker)
        await broker.register("store_1")
        await broker.register("audit_1")
        expected = [b"0", b"1", b"2"] if owed is Owed.REROUTE else []
        await broker.until(lambda: broker.items("audit_1") == expected)
        await broker.put(b"new")
        await broker.until(lambda: broker.items("audit_1") == [*expected, b"new"])
        assert broker.items("store_1") == []
