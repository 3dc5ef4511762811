"""History that is sent again to one role, on every database."""

from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.parking import items_of, log, park
from xbus import model
from xbus.broker.journal import configuration
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    NodeSpec,
    RoleSpec,
    ServiceSpec,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.decisions import Owed, decide
from xbus.broker.journal.configuration.detaching import detach
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import repeats
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.broker.journal.replay import (
    FoundEnvelope,
    NoWay,
    Part,
    Sent,
    Unreached,
    count_removed,
    find_target,
    find_unreached,
    note_replay,
    read_page,
    read_sent,
    send,
    unreached_graphs,
)
from xbus.errors import Refused

LAST = 1_000


def send_all(
    connection: sa.Connection, login: str = "store_1", type_name: str = "notes", after: int = 0, replay: str = "first"
) -> Sent:
    target = find_target(connection, type_name, login)
    page = read_page(connection, Part(after, LAST, target.type_id), after)
    return send(connection, target, replay, page.envelopes, NOW)


def found(
    connection: sa.Connection, type_name: str = "notes", after: int = 0, until: int = LAST
) -> list[FoundEnvelope]:
    type_id = connection.execute(sa.select(model.event_type.c.id).where(model.event_type.c.name == type_name))
    return [*read_page(connection, Part(after, until, type_id.scalar_one()), after).envelopes]


def edit(
    connection: sa.Connection, services: Sequence[str] = (), roles: Sequence[RoleSpec] = (), type_name: str = "notes"
) -> configuration.Plan:
    """Have a type lead to these consumer services, and add roles."""
    nodes = {name: NodeSpec(name, name) for name in services}
    bus = BusSpec(
        event_types={type_name: EventTypeSpec(type_name, False, nodes)},
        services={name: ServiceSpec(name, "consumer") for name in {*services, *(role.service for role in roles)}},
        roles={role.login: role for role in roles},
    )
    plan = make_plan(read_stored(connection), bus)
    assert not plan.problems
    configuration.apply(connection, plan, NOW)
    return plan


async def test_what_is_sent_again_is_for_one_role_and_holds_the_same_items(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"a", b"b"], [], ordering_key="client 7")
    second = await scribe.put([b"c"])
    assert await journal.run(send_all) == Sent(2, 3, 3, 0)
    logged = await log(journal)
    assert [(entry.position, entry.only_roles, entry.head.ordering_key) for entry in logged[2:]] == [
        (3, frozenset({scribe.role_id()}), "client 7"),
        (4, frozenset({scribe.role_id()}), None),
    ]
    assert [await items_of(journal, entry) for entry in logged[2:]] == [[[b"a", b"b"], []], [[b"c"]]]
    wanted = sa.select(model.envelope.c.origin_id, model.envelope.c["bytes"], model.envelope.c.hash)
    rows = await journal.read(
        lambda c: c.execute(wanted.where(model.envelope.c.position > 2).order_by("position")).all()
    )
    assert [tuple(row) for row in rows] == [
        (receipt.envelope_id, receipt.data_bytes, receipt.hash) for receipt in (first, second)
    ]
    assert (
        await journal.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(model.log_segment)).scalar()) == 2
    )


async def test_under_one_name_nothing_is_sent_twice(journal: Journal, scribe: Scribe) -> None:
    for number in range(3):
        await scribe.put([b"%d" % number])
    assert (await journal.run(lambda c: send_all(c, after=1))).envelopes == 2
    assert await journal.run(send_all) == Sent(1, 1, 1, 0)
    assert await journal.run(send_all) == Sent(0, 0, 0, 0)
    # Another role, and another name, are another matter.
    assert (await journal.run(lambda c: send_all(c, "store_2"))).envelopes == 3
    assert (await journal.run(lambda c: send_all(c, replay="once more"))).envelopes == 3
    positions = [entry.position for entry in await log(journal)]
    assert positions == list(range(1, 13))
    sent = await journal.read(lambda c: read_sent(c, find_target(c, "notes", "store_1"), "once more", found(c)))
    assert len(sent) == 3


async def test_of_an_envelope_only_the_events_of_the_type_come_again(journal: Journal, scribe: Scribe) -> None:
    envelope_id, started = scribe.start_envelope()
    await started
    for number, (type_name, items) in enumerate(
        [("flights", [b"f"]), ("notes", [b"n", b"m"]), ("flights", [b"g"]), ("notes", [])], start=1
    ):
        event_id, started = scribe.start_event(envelope_id, number, type_name)
        await started
        if items:
            await scribe.append(envelope_id, event_id, 0, items)
        await scribe.end_event(envelope_id, event_id, len(items))
    await scribe.seal(envelope_id, 4, 4)
    assert await journal.run(send_all) == Sent(1, 2, 2, 0)
    whole, part = await log(journal)
    assert await items_of(journal, part) == [[b"n", b"m"], []]
    hashes = await journal.read(
        lambda c: list(
            c.execute(
                sa.select(model.log_segment.c.hash).where(model.log_segment.c.event_id == whole.events[1].event_id)
            ).scalars()
        )
    )
    stored = await journal.read(
        lambda c: c.execute(sa.select(model.envelope).where(model.envelope.c.id == part.envelope_id)).one()
    )
    expected = content_hash([Content("notes", 2, [bytes(each) for each in hashes]), Content("notes", 0)])
    assert (stored.events, stored.items, stored.bytes, bytes(stored.hash)) == (2, 2, 6, expected)
    # Nobody takes it for a retry of the whole envelope.
    assert await journal.read(repeats.read_retries, envelope_id) == {}


async def test_a_replay_and_a_retry_of_one_envelope_are_told_apart(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"])
    role_id = scribe.role_id()
    await park(journal, first, role_id)
    assert (await journal.run(send_all)).envelopes == 1
    assert await journal.read(repeats.read_retries, first.envelope_id) == {}
    retry = await scribe.again(first.envelope_id, [role_id])
    await journal.write(retry)
    assert await journal.read(repeats.read_retries, first.envelope_id) == {role_id: retry.envelope_id}


async def test_what_repeats_others_and_what_is_being_removed_is_left_out(journal: Journal, scribe: Scribe) -> None:
    first, second = await scribe.put([b"x"]), await scribe.put([b"y"])
    await journal.write(await scribe.again(first.envelope_id))
    page = await journal.read(found)
    assert [each.envelope_id for each in page] == [first.envelope_id, second.envelope_id]
    of_first = sa.update(model.envelope).where(model.envelope.c.id == first.envelope_id)
    await journal.run(lambda c: c.execute(of_first.values(pruned_at=NOW)).rowcount)

    def send_what_was_found(connection: sa.Connection) -> Sent:
        return send(connection, find_target(connection, "notes", "store_1"), "first", page, NOW)

    assert await journal.run(send_what_was_found) == Sent(1, 1, 1, 1)
    assert [(each.position, each.here) for each in await journal.read(found)] == [(1, False), (2, True)]
    assert await journal.read(lambda c: count_removed(c, 0, 3)) == 1


async def test_pages_are_bounded_and_go_through_a_part_in_order(journal: Journal, scribe: Scribe) -> None:
    for number in range(5):
        await scribe.put(*[[b"x"]] * 700, type_name="flights" if number == 2 else "notes")
    pages = []
    type_id = scribe.catalog.event_types["notes"].id
    after = 0
    while after < 4:
        page = await journal.read(read_page, Part(0, 4, type_id), after)
        pages.append(([each.position for each in page.envelopes], page.upto))
        after = page.upto
    assert pages == [([1, 2], 2), ([4], 4)]
    assert await journal.read(lambda c: found(c, "fares")) == []


async def test_events_take_the_present_graph(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    before = scribe.catalog.event_types["notes"].graph_id
    await journal.run(lambda c: edit(c, ["store", "late"], [RoleSpec("late_1", "late", start="head")]))
    with pytest.raises(Refused) as refusal:
        await journal.read(lambda c: find_target(c, "flights", "late_1"))
    assert refusal.value.code == "role_not_reached"
    assert (await journal.run(lambda c: send_all(c, "late_1"))).envelopes == 1
    old, new = await log(journal)
    catalog = await journal.read(read_catalog)
    assert (old.events[0].graph_id, new.events[0].graph_id) == (before, catalog.event_types["notes"].graph_id)
    assert before != new.events[0].graph_id


@pytest.mark.parametrize(
    ("type_name", "login", "code"),
    [
        ("nothing", "store_1", "unknown_type"),
        ("notes", "nobody", "unknown_login"),
        ("notes", "names_1", "unknown_login"),
        ("wishes", "store_1", "reply_wanted"),
        ("secrets", "store_1", "role_not_reached"),
        ("notes", "store_2", "role_detached"),
    ],
)
async def test_who_can_not_be_reached_is_refused(
    journal: Journal, scribe: Scribe, type_name: str, login: str, code: str
) -> None:
    await scribe.put([b"x"])
    await journal.run(lambda c: detach(c, "store_2", "gone", NOW))
    with pytest.raises(Refused) as refusal:
        await journal.run(lambda c: send_all(c, login, type_name))
    assert refusal.value.code == code
    assert refusal.value.next_step
    assert len(await log(journal)) == 1


async def test_history_that_no_graph_brings_to_a_new_role_is_found(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await scribe.put([b"y"], type_name="flights")

    def add(connection: sa.Connection) -> list[Unreached | NoWay]:
        roles = [
            RoleSpec("late_1", "late", start="oldest"),
            RoleSpec("late_2", "late"),
            RoleSpec("late_3", "late", start="head"),
            RoleSpec("lost_1", "lost", start=1),
            RoleSpec("store_3", "store", start="oldest"),
            RoleSpec("late_4", "late", start=3),
        ]
        return find_unreached(connection, edit(connection, ["store", "late"], roles))

    assert await journal.run(add) == [
        Unreached("notes", "late_1", "late", 0, 2, wants_reply=False, rerouting=False),
        NoWay("lost_1", "lost", 0),
        # What is still open may lack the node, too.
        Unreached("notes", "late_4", "late", 2, 2, wants_reply=False, rerouting=False),
    ]


async def test_what_is_to_be_rerouted_is_not_taken_for_unreached(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])

    def reroute(connection: sa.Connection) -> list[Unreached | NoWay]:
        plan = edit(connection, ["late"], [RoleSpec("late_1", "late", start="oldest")])
        decide(connection, plan, Owed.REROUTE, {}, NOW)
        return find_unreached(connection, plan)

    assert await journal.run(reroute) == [Unreached("notes", "late_1", "late", 0, 1, wants_reply=False, rerouting=True)]


async def test_a_graph_without_nodes_counts_as_the_one_that_its_events_take(journal: Journal) -> None:
    """The types of this bus begin: notes with a node, secrets without any."""

    def unreached(connection: sa.Connection, type_name: str, service: str) -> list[int]:
        type_id = connection.execute(sa.select(model.event_type.c.id).where(model.event_type.c.name == type_name))
        service_id = connection.execute(sa.select(model.service.c.id).where(model.service.c.name == service))
        graph = model.graph.c
        found = unreached_graphs(connection, type_id.scalar_one(), service_id.scalar_one())
        numbers = sa.select(graph.number).where(graph.id.in_(found)).order_by(graph.number)
        return list(connection.execute(numbers).scalars())

    await journal.run(lambda c: edit(c, ["store"], type_name="secrets"))
    assert await journal.read(unreached, "secrets", "store") == []
    await journal.run(lambda c: edit(c, ["store", "late"], type_name="secrets"))
    assert await journal.read(unreached, "secrets", "store") == []
    assert await journal.read(unreached, "secrets", "late") == [1, 2]


async def test_the_history_keeps_who_sent_what_again(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    decision = RepairDecision("ada", "a disk was lost", NOW)
    await journal.run(lambda c: note_replay(c, find_target(c, "notes", "store_1"), "positions 1 to 1", decision))
    row = model.history.c
    kept = await journal.read(
        lambda c: c.execute(sa.select(row.subject, row.subject_id, row.reason).where(row.move == "replayed")).one()
    )
    assert tuple(kept) == ("role", "store_1", 'positions 1 to 1 of type "notes", by ada: a disk was lost')
