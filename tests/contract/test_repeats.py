"""Envelopes that come again, on every database: new rows, the same items."""

import asyncio
import uuid

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.parking import items_of, log, park, states
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import repeats
from xbus.broker.journal.log.deliveries import read_due_deliveries
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.writes import Repeat, SealReceipt
from xbus.errors import JournalError
from xbus.states import EnvelopeState


async def test_what_comes_again_keeps_its_ordering_key(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"a"], ordering_key="client 7")
    await journal.write(await scribe.again(first.envelope_id))
    wanted = sa.select(model.envelope.c.ordering_key)
    keys = await journal.read(lambda connection: list(connection.execute(wanted).scalars()))
    assert keys == ["client 7", "client 7"]


async def test_what_comes_again_is_received_with_the_same_content(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"a", b"bc"], [], [b"d"])
    repeat = await scribe.again(first.envelope_id)
    receipt = await journal.write(repeat)
    assert receipt == SealReceipt(repeat.envelope_id, 2, first.events, first.items, first.data_bytes, first.hash)
    assert await journal.read(read_head) == 2
    original, repeated = await log(journal)
    assert await items_of(journal, repeated) == await items_of(journal, original) == [[b"a", b"bc"], [], [b"d"]]
    assert [event.event_id for event in repeated.events] == [event.event_id for event in repeat.events]
    assert repeated.only_roles is None
    stored = await journal.read(read_envelope, repeat.envelope_id)
    assert stored is not None
    assert (stored.state, stored.receipt) == (EnvelopeState.RECEIVED, receipt)
    assert [(event.items, event.damaged, event.ended) for event in stored.events] == [
        *[(2, False, True), (0, False, True), (1, False, True)]
    ]
    assert sum(event.data_bytes for event in stored.events) == receipt.data_bytes


async def test_items_are_never_copied(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"a"])
    once = await scribe.again(first.envelope_id)
    await journal.write(once)
    twice = await scribe.again(once.envelope_id)
    await journal.write(twice)
    (event,) = twice.events
    assert event.origin_id == (await log(journal))[0].events[0].event_id
    assert (
        await journal.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(model.log_segment)).scalar()) == 1
    )
    past = await journal.read(repeats.read_past, twice.envelope_id)
    assert past is not None
    assert past.origin_id == once.envelope_id
    assert [await items_of(journal, envelope) for envelope in await log(journal)] == [[[b"a"]]] * 3


async def test_positions_have_no_gap_where_seals_and_repeats_meet(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"])
    again_and_again = [await scribe.again(first.envelope_id) for _ in range(5)]
    unknown = Repeat(uuid.uuid4(), uuid.uuid4(), [], None, NOW)
    written = [scribe.put([b"x"]), *(journal.write(repeat) for repeat in again_and_again), scribe.put([b"x"])]
    refused = journal.write(unknown)
    receipts = await asyncio.gather(*written)
    with pytest.raises(JournalError, match="not there to come again"):
        await refused
    assert sorted(receipt.position for receipt in receipts) == list(range(2, 9))


async def test_a_repeat_for_some_roles_settles_what_was_parked_for_them(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"])
    store_1, store_2 = scribe.role_id("store_1"), scribe.role_id("store_2")
    await park(journal, first, store_1)
    await park(journal, first, store_2)
    repeat = await scribe.again(first.envelope_id, [store_1])
    await journal.write(repeat)
    assert await states(journal) == ["parked"]
    assert (await log(journal))[1].only_roles == frozenset({store_1})
    assert await journal.read(repeats.read_retries, first.envelope_id) == {store_1: repeat.envelope_id}
    assert await journal.read(read_due_deliveries, store_1, (), 10, NOW) == []
    history = sa.select(model.history.c.subject_id, model.history.c.reason).where(model.history.c.move == "retried")
    assert await journal.read(lambda connection: connection.execute(history).all()) == [
        (f"{store_1} {first.envelope_id}", f"comes again as envelope {repeat.envelope_id}")
    ]


async def test_only_what_is_parked_is_settled(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"])
    store_1, store_2 = scribe.role_id("store_1"), scribe.role_id("store_2")
    await park(journal, first, store_1)
    with pytest.raises(JournalError, match="no longer parked"):
        await journal.write(await scribe.again(first.envelope_id, [store_1, store_2]))
    assert await states(journal) == ["parked"]
    assert await journal.read(read_head) == 1
    assert await journal.read(repeats.read_retries, first.envelope_id) == {}


async def test_of_two_that_repeat_the_same_one_is_refused(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"])
    role_id = scribe.role_id()
    await park(journal, first, role_id)
    both = [await scribe.again(first.envelope_id, [role_id]) for _ in range(2)]
    outcomes = await asyncio.gather(*map(journal.write, both), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SealReceipt, JournalError]
    assert await journal.read(read_head) == 2


async def test_what_is_not_received_does_not_come_again(journal: Journal, scribe: Scribe) -> None:
    envelope_id, started = scribe.start_envelope()
    await started
    with pytest.raises(JournalError, match="not there to come again"):
        await journal.write(await scribe.again(envelope_id))
    first = await scribe.put([b"x"], [b"y"])
    repeat = await scribe.again(first.envelope_id)
    with pytest.raises(JournalError, match="not there to come again"):
        await journal.write(Repeat(repeat.envelope_id, first.envelope_id, repeat.events[:1], None, NOW))
    with pytest.raises(JournalError):
        await journal.write(Repeat(first.envelope_id, first.envelope_id, repeat.events, None, NOW))
    assert await journal.read(read_head) == 1


async def test_where_an_envelope_stands(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put([b"x"], [b"y"])
    store_1, store_2 = scribe.role_id("store_1"), scribe.role_id("store_2")
    event_id = (await log(journal))[0].events[1].event_id
    for role_id in (store_2, store_1):
        await park(journal, first, role_id)
    standing = await journal.read(repeats.read_standing, event_id)
    assert standing is not None
    assert [(role.role_id, role.login, role.removed) for role in standing.parked] == [
        *[(store_1, "store_1", False), (store_2, "store_2", False)]
    ]
    assert standing.past.envelope_id == first.envelope_id
    repeated = [await scribe.again(first.envelope_id, [role_id]) for role_id in (store_2, store_1)]
    for repeat in repeated:
        await journal.write(repeat)
    standing = await journal.read(repeats.read_standing, event_id)
    assert standing is not None
    assert (standing.parked, list(standing.retries.items())) == (
        (),
        [(store_2, repeated[0].envelope_id), (store_1, repeated[1].envelope_id)],
    )
    newest = repeated[1]
    assert await journal.read(repeats.read_event_id, newest.envelope_id, 2) == newest.events[1].event_id
    assert await journal.read(repeats.read_standing, uuid.uuid4()) is None


async def test_which_consumers_a_graph_leads_to(journal: Journal, scribe: Scribe) -> None:
    types = scribe.catalog.event_types
    graphs = {types[name].graph_id for name in ("flights", "notes", "secrets")}
    services = await journal.read(repeats.read_consumer_services, graphs)
    (store,) = services[types["notes"].graph_id]
    assert services == {
        types["flights"].graph_id: {store},
        types["notes"].graph_id: {store},
        types["secrets"].graph_id: frozenset(),
    }
