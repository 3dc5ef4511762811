"""Readers in the journal: their configuration, their ranges, and what becomes of their places."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import Scribe
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import (
    BusSpec,
    EventTypeSpec,
    NodeSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.configuration.checked import find_table_problems
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.values import BadPlace, Place, Stretch
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.ranges import ReaderRange, read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import list_moves, list_readers
from xbus.broker.journal.readers.steps import ActNote, LeaseOf, ReaderAct, put_out, release, settle, take
from xbus.broker.journal.retention.needed import FOR_GOOD
from xbus.broker.journal.retention.pruning import note_skipped
from xbus.errors import Refused

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)

ORDERS = EventTypeSpec("orders", False, {})
REFUNDS = EventTypeSpec("refunds", False, {})
BILLING = ReaderSpec("billing", frozenset({"orders"}), ranges=3)
BILLING_1 = RoleSpec("billing_1", "billing")


def bus(*entries: object) -> BusSpec:
    return BusSpec(
        event_types={each.name: each for each in (ORDERS, REFUNDS)},
        services={each.name: each for each in entries if isinstance(each, ServiceSpec)},
        readers={each.name: each for each in entries if isinstance(each, ReaderSpec)},
        roles={each.login: each for each in entries if isinstance(each, RoleSpec)},
    )


def change(connection: sa.Connection, wished: BusSpec, *, prune: bool = False) -> list[str]:
    plan = make_plan(read_stored(connection), wished, prune=prune)
    if not plan.problems:
        apply(connection, plan, NOW)
    return [f"{'/'.join(each.place)}: {each.sentence}" for each in plan.problems] or [*map(str, plan.changes)]


def ranges(connection: sa.Connection) -> list[tuple[str, str, int]]:
    row = model.reader_stretch.c
    return list(connection.execute(sa.select(row.first, row.last, row.position).order_by(row.first)))


def test_a_reader_is_configured(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        told = change(connection, bus(BILLING, BILLING_1))
        assert told[-2:] == ['add reader "billing"', 'add role "billing_1"']
        stored = read_stored(connection)
        assert stored.in_use.readers == {"billing": BILLING}
        assert stored.in_use.roles["billing_1"] == BILLING_1
        assert change(connection, stored.in_use) == []
        assert ranges(connection) == [
            ("0" * 16, "5" * 15 + "4", 1),
            ("5" * 16, "a" * 15 + "9", 1),
            ("a" * 16, "f" * 16, 1),
        ]
        catalog = read_catalog(connection)
        assert [role.login for role in catalog.reader_roles.values()] == ["billing_1"]
        assert "billing_1" not in {role.login for role in catalog.roles.values()}
        (reader,) = read_readers(connection)
        assert (reader.name, len(reader.event_types), reader.lease) == ("billing", 1, 10.0)
        assert find_table_problems(connection) == []


def test_a_reader_is_changed_removed_and_brought_back_where_it_stood(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        change(connection, bus(BILLING))
        wider = ReaderSpec("billing", frozenset({"orders", "refunds"}), ranges=3, lease=3.0, keeps=False)
        assert change(connection, bus(wider)) == ['change reader "billing": event_types, lease, keeps']
        connection.execute(sa.update(model.reader_stretch).values(position=7))
        assert 'remove reader "billing"' in change(connection, bus(), prune=True)
        assert not read_readers(connection)
        assert change(connection, bus(BILLING)) == ['restore reader "billing"']
        assert {position for *_, position in ranges(connection)} == {7}
        renamed = ReaderSpec("invoicing", BILLING.event_types, ranges=3, renamed_from="billing")
        assert change(connection, bus(renamed)) == ['rename reader "billing" to "invoicing"']


@pytest.mark.parametrize(
    ("wished", "problem"),
    [
        (bus(ReaderSpec("a", frozenset())), "reader/a/event_types: name at least one event type"),
        (bus(ReaderSpec("a", frozenset({"no"}))), 'reader/a/event_types: there is no event_type "no"'),
        (bus(ServiceSpec("billing", "worker")), 'service/billing/name: there is a reader "billing": take another name'),
        (
            bus(ReaderSpec("store", frozenset({"orders"}))),
            'reader/store/name: there is a service "store": take another name',
        ),
        (
            bus(ReaderSpec("billing", frozenset({"orders"}), ranges=4)),
            "reader/billing/ranges: it began with 3 ranges, which ranges tells for good; "
            "xbus reader split and xbus reader merge change those that it has now",
        ),
        (
            bus(RoleSpec("billing_2", "billing", ordered=True)),
            "role/billing_2/ordered: ordered is of no meaning for a reader, whose programs share its ranges by "
            "themselves",
        ),
        (
            BusSpec(event_types={"orders": EventTypeSpec("orders", False, {"n": NodeSpec("n", "billing")})}),
            'event_type/orders/node/n/service: "billing" is a reader, which reads by itself: no node leads to it',
        ),
    ],
)
def test_what_readers_can_not_be_is_refused(engine: sa.Engine, wished: BusSpec, problem: str) -> None:
    with engine.begin() as connection:
        change(connection, bus(BILLING, BILLING_1))
        assert change(connection, wished) == [problem]


def test_settings_by_sql_are_checked(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        change(connection, bus(BILLING))
        version = read_catalog(connection).version
        connection.execute(sa.update(model.reader).values(lease=0))
        assert read_catalog(connection).version == version + 1
        (problem,) = find_table_problems(connection)
        assert problem.cause == "lease is 0.0, and has to be 1 or more"


FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
LATER = NOW + timedelta(seconds=10)
DECISION = RepairDecision("ada", "to try it", NOW)


def checkpoint(who: str = "billing_1") -> ActNote:
    return ActNote(uuid.uuid4(), NOW, who, ReaderAct.CHECKPOINT)


@pytest.fixture
def billing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """The reader with three ranges at position 1, and its role."""
    with engine.begin() as connection:
        change(connection, bus(BILLING, BILLING_1))
        yield connection


def present(connection: sa.Connection) -> list[ReaderRange]:
    return read_ranges(connection)


def role_id(connection: sa.Connection) -> int:
    found: int = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == "billing_1")).scalar_one()
    return found


def taken(connection: sa.Connection, number: int, program: uuid.UUID = FIRST) -> LeaseOf:
    """Have a program take the range at that place of the ring."""
    before = present(connection)[number]
    after = take(connection, LeaseOf(before.id, before.counter, program), role_id(connection), LATER)
    assert (after.owner, after.counter) == (program, before.counter + 1)
    return LeaseOf(after.id, after.counter, program)


def handed_out(connection: sa.Connection, number: int, to: Place, program: uuid.UUID = FIRST) -> LeaseOf:
    lease = taken(connection, number, program)
    put_out(connection, lease, to, LATER)
    return lease


def refused(step: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        step()
    return refusal.value.code


def test_the_bounds_of_a_batch_stay_until_it_is_settled(billing: sa.Connection) -> None:
    lease = handed_out(billing, 0, Place(5, 0, 3))
    other = taken(billing, 0, SECOND)
    found = present(billing)[0]
    assert (found.handed_out, found.place, found.batch_end) == (True, Place(1), Place(5, 0, 3))
    assert refused(lambda: settle(billing, lease, Place(5, 0, 3), checkpoint())) == "lease_lost"
    assert refused(lambda: put_out(billing, lease, Place(9), LATER)) == "lease_lost"
    assert present(billing)[0] == found
    assert settle(billing, other, Place(3), checkpoint()).stretches[0].until == Place(5, 0, 3)
    assert (present(billing)[0].handed_out, present(billing)[0].place) == (True, Place(3))
    assert refused(lambda: settle(billing, other, Place(2), checkpoint())) == "place_not_in_batch"
    assert refused(lambda: settle(billing, other, Place(5, 0, 4), checkpoint())) == "place_not_in_batch"
    settle(billing, other, Place(5, 0, 3), checkpoint())
    settle(billing, other, Place(5, 0, 3), checkpoint())
    assert (present(billing)[0].handed_out, present(billing)[0].place) == (False, Place(5, 0, 3))
    reader_id = read_readers(billing)[0].id
    moves = [(each.kind, str(each.before), str(each.after)) for each in list_moves(billing, reader_id, 10)]
    assert moves == [("checkpoint", "3", "5:0:3"), ("checkpoint", "1", "3")]


def test_a_range_is_taken_by_one_alone(billing: sa.Connection) -> None:
    before = present(billing)[0]
    taken(billing, 0)
    late = LeaseOf(before.id, before.counter, SECOND)
    assert refused(lambda: take(billing, late, role_id(billing), LATER)) == "lease_lost"
    assert present(billing)[0].owner == FIRST
    release(billing, [LeaseOf(before.id, 1, SECOND), LeaseOf(before.id, 1, FIRST)])
    assert present(billing)[0].owner is None


def test_halves_begin_with_their_part_of_the_batch_that_is_out(billing: sa.Connection) -> None:
    lease = handed_out(billing, 0, Place(5))
    parent = present(billing)[0]
    one, other = people.split(billing, "billing", parent.id, DECISION)
    assert (one.first, one.last + 1, other.last) == (parent.first, other.first, parent.last)
    assert [(each.place, each.batch_end, each.handed_out) for each in (one, other)] == [(Place(1), Place(5), True)] * 2
    assert refused(lambda: settle(billing, lease, Place(5), checkpoint())) == "lease_lost"
    assert [each.id for each in present(billing)][:2] == [one.id, other.id]
    assert [each.kind for each in list_moves(billing, one.service_id, 9)] == ["split"] * 2


def test_a_checkpoint_that_is_repeated_settles_nothing_more_of_a_merged_range(billing: sa.Connection) -> None:
    """A program repeats its call whose answer was lost, and meanwhile the next batch has been put out for it."""
    settle(billing, handed_out(billing, 0, Place(9)), Place(9), checkpoint())
    first, second, third = present(billing)
    (merged,) = people.merge(billing, "billing", [first.id, second.id], DECISION)
    lease = taken(billing, 0)
    assert put_out(billing, lease, Place(3), LATER).batch_end == Place(3), "who stands behind it has no part in it"
    settle(billing, lease, Place(3), checkpoint())
    put_out(billing, lease, Place(5), LATER)
    settle(billing, lease, Place(3), checkpoint())
    found = present(billing)[0]
    assert (found.handed_out, found.place, found.batch_end) == (True, Place(3), Place(5))

    # The batch that is out at a merge is in pieces: the next one may have the same end.
    settle(billing, lease, Place(5), checkpoint())
    put_out(billing, lease, Place(7), LATER)
    people.merge(billing, "billing", [merged.id, third.id], DECISION)
    lease = taken(billing, 0)
    after = settle(billing, lease, present(billing)[0].batch_end, checkpoint())
    assert sorted(each.position for each in after.stretches) == [Place(1), Place(7), Place(9)]
    next_one = LeaseOf(lease.range_id, after.counter, lease.program)
    put_out(billing, next_one, Place(7), LATER)
    assert refused(lambda: settle(billing, lease, Place(7), checkpoint())) == "lease_lost"
    assert present(billing)[0].place == Place(1)


def test_a_merged_range_goes_on_where_each_part_stood(billing: sa.Connection) -> None:
    lease = handed_out(billing, 0, Place(5))
    settle(billing, lease, Place(5), checkpoint())
    handed_out(billing, 1, Place(3))
    first, second, third = present(billing)
    assert refused(lambda: people.merge(billing, "billing", [first.id, third.id], DECISION)) == "ranges_apart"
    (merged,) = people.merge(billing, "billing", [second.id, first.id], DECISION)
    assert (merged.handed_out, merged.place, merged.batch_end) == (True, Place(1), Place(3))
    assert [(each.position, each.until) for each in merged.stretches] == [(Place(5), Place(5)), (Place(1), Place(3))]
    lease = taken(billing, 0)
    after = settle(billing, lease, Place(3), checkpoint())
    assert [(each.position, each.until) for each in after.stretches] == [(Place(5), None), (Place(3), None)]
    lease = LeaseOf(lease.range_id, after.counter, lease.program)
    put_out(billing, lease, Place(9), LATER)
    after = settle(billing, lease, Place(9), checkpoint())
    assert after.stretches == (Stretch(first.first, second.last, Place(9)),), "they have met"
    assert present(billing)[0] == after


def test_what_moved_no_place_is_not_undone_and_its_opposite_is_named(billing: sa.Connection) -> None:
    parent = present(billing)[0]
    one, other = people.split(billing, "billing", parent.id, DECISION)
    people.merge(billing, "billing", [one.id, other.id], DECISION)
    before = present(billing)
    moves = {each.kind: each.act for each in list_moves(billing, parent.service_id, 9)}
    for kind, opposite in (("split", "xbus reader merge"), ("merge", "xbus reader split")):
        with pytest.raises(Refused, match=opposite) as refusal:
            people.undo(billing, "billing", DECISION, moves[kind])
        assert refusal.value.code == "not_undoable"
    assert present(billing) == before


async def test_a_range_is_behind_by_events_of_its_types_alone(journal: Journal, scribe: Scribe) -> None:
    """Notes are counted from the place of each range on, and orders, which the reader does not read, never."""
    receipts = [await scribe.put([b"a"]) for _ in range(3)]
    both = [
        ReaderSpec(name, frozenset({of_type}), ranges=2, start="oldest")
        for name, of_type in (("audit", "notes"), ("billing", "orders"))
    ]
    wished = BusSpec(event_types={"orders": ORDERS}, readers={each.name: each for each in both})
    await journal.run(change, wished)

    def behind(connection: sa.Connection, name: str) -> list[int]:
        (status,) = list_readers(connection, name)
        return [each.behind for each in status.ranges]

    assert await journal.read(behind, "audit") == [3, 3]
    assert await journal.read(behind, "billing") == [0, 0]
    (first, _) = (await journal.read(list_readers, "audit"))[0].ranges
    await journal.run(people.move, "audit", Place(receipts[2].position), DECISION, first.range.id)
    assert await journal.read(behind, "audit") == [1, 3]


async def test_people_move_a_reader_and_undo_it(engine: sa.Engine, journal: Journal, scribe: Scribe) -> None:
    await journal.run(change, bus(BILLING, BILLING_1))
    lease = await journal.run(handed_out, 0, Place(1))
    await journal.run(settle, lease, Place(1), checkpoint())
    await scribe.put([b"a"])
    head = await journal.read(read_head)
    moves = await journal.run(people.move, "billing", "head", DECISION)
    assert [each.after.place for each in moves] == [Place(head + 1)] * 3
    with pytest.raises(Refused, match="another program now"):
        await journal.run(settle, lease, Place(1), checkpoint())
    with pytest.raises(BadPlace) as beyond:
        await journal.run(people.move, "billing", Place(head + 2), DECISION)
    assert beyond.value.code == "place_beyond_end"
    await journal.run(people.undo, "billing", DECISION)
    assert {each.place for each in await journal.read(read_ranges)} == {Place(1)}
    with pytest.raises(Refused) as nothing:
        await journal.run(people.undo, "billing", DECISION)
    assert nothing.value.code == "nothing_to_undo"
    for name, code in (("nobody", "unknown_name"), ("billing", "unknown_range")):
        with pytest.raises(Refused) as refusal:
            await journal.run(people.split, name, 10**6, DECISION)
        assert refusal.value.code == code
    (status,) = await journal.read(list_readers)
    assert (status.entry.name, status.event_types, status.programs, status.lag) == ("billing", ["orders"], 0, 0)
    told = await journal.read(lambda connection: connection.execute(sa.select(model.audit.c.action)).scalars().all())
    assert told[-2:] == ["moved", "move_undone"]


async def test_retention_waits_for_a_reader_that_keeps(journal: Journal, scribe: Scribe) -> None:
    """Notes of a reader that is behind stay; those that it has read, and those of a reader that does not keep, go."""
    receipts = [await scribe.put([b"a"]) for _ in range(3)]
    reader = ReaderSpec("audit", frozenset({"notes"}), ranges=1, start="oldest")

    def needed(connection: sa.Connection, keeps: bool) -> list[int]:
        change(connection, BusSpec(readers={"audit": replace(reader, keeps=keeps)}))
        connection.execute(sa.update(model.reader_stretch).values(position=receipts[1].position))
        ids = connection.execute(sa.select(model.envelope.c.id)).scalars().all()
        statement = sa.select(model.envelope.c.position).where(
            model.envelope.c.id.in_(connection.execute(FOR_GOOD[0], {"ids": ids}).scalars().all())
        )
        return sorted(connection.execute(statement).scalars())

    assert await journal.run(needed, True) == [receipts[1].position, receipts[2].position]
    assert await journal.run(needed, False) == []


async def test_a_reader_that_does_not_keep_is_told_what_it_missed(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a"])
    reader = ReaderSpec("audit", frozenset({"notes"}), ranges=1, keeps=False, start="oldest")
    await journal.run(change, BusSpec(readers={"audit": reader}))

    def miss(connection: sa.Connection) -> None:
        envelope = model.envelope.c
        wanted = sa.select(envelope.id).where(envelope.position == receipt.position)
        note_skipped(connection, [connection.execute(wanted).scalar_one()])

    await journal.run(miss)
    (status,) = await journal.read(list_readers)
    assert status.skipped == 1
