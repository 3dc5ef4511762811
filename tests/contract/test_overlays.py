"""What is handed over otherwise than it was sent, for a role or for all, on every database."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.database.engine import is_memory
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.overlays import EventOverlay, OverlaidItem, list_overlaid, read_overlays
from xbus.broker.journal.log.reading import LogEnvelope, read_ends, read_log
from xbus.broker.journal.operations.corrections import (
    add_correction,
    hold_sealed,
    read_corrected_events,
    read_corrected_item,
    read_corrections,
)

DECISION = RepairDecision("ada", "no name", NOW)
LATER = RepairDecision("lou", "another", NOW + timedelta(hours=1))


def correct(
    engine: sa.Engine, role_id: int | None, event_id: uuid.UUID, index: int, after: bytes, by: RepairDecision = DECISION
) -> None:
    with engine.begin() as connection:
        add_correction(connection, role_id, event_id, index, b"as sent", after, by)


async def repeated(journal: Journal, scribe: Scribe, *items: bytes) -> tuple[LogEnvelope, LogEnvelope]:
    """An envelope, and a repeat of it."""
    receipt = await scribe.put(list(items))
    await journal.write(await scribe.again(receipt.envelope_id))
    first, again = await journal.read(read_log, 0, 10)
    return first, again


async def test_the_last_correction_of_an_item_stands(journal: Journal, engine: sa.Engine, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a", b"b"], [b"c"], [b"d"])
    role_id, other_id = scribe.role_id("store_1"), scribe.role_id("store_2")
    (envelope,) = await journal.read(read_log, 0, 10)
    first, second, _ = (event.event_id for event in envelope.events)
    common = {"before": b"", "at": NOW, "reason": "ada: no name"}
    corrections = [(role_id, first, 1, b"B1"), (role_id, first, 1, b"B2"), (other_id, first, 1, b"other")]
    parked = [(role_id, first, 0, "parked"), (role_id, second, 0, "resumed"), (other_id, second, 0, "dropped")]
    with engine.begin() as connection:
        for of_role, event_id, index, after in corrections:
            row = {"role_id": of_role, "event_id": event_id, "item_index": index, "after": after}
            connection.execute(sa.insert(model.correction).values(**row, **common))
        for of_role, event_id, index, state in parked:
            row = {"role_id": of_role, "event_id": event_id, "item_index": index, "state": state}
            told = {"envelope_id": receipt.envelope_id, "code": "refused", "cause": "no", "changed_at": NOW}
            connection.execute(sa.insert(model.parked_item).values(**row, **told))

    assert await journal.read(read_overlays, role_id, receipt.envelope_id) == {
        first: EventOverlay({1: b"B2"}, frozenset({0})),
        second: EventOverlay({}, frozenset({0})),
    }
    assert await journal.read(read_overlays, other_id, receipt.envelope_id) == {
        first: EventOverlay({1: b"other"}, frozenset()),
        second: EventOverlay({}, frozenset({0})),
    }
    assert await journal.read(read_overlays, role_id, uuid.uuid4()) == {}


async def test_a_correction_for_all_is_read_for_every_role_and_for_none(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    receipt = await scribe.put([b"a", b"b"])
    role_id, other_id = scribe.role_id("store_1"), scribe.role_id("store_2")
    (envelope,) = await journal.read(read_log, 0, 10)
    (event,) = envelope.events
    corrected = {event.event_id: EventOverlay({1: b"B"}, frozenset())}

    correct(engine, role_id, event.event_id, 0, b"only one")
    assert await journal.read(read_overlays, None, receipt.envelope_id) == {}

    correct(engine, None, event.event_id, 1, b"B")
    assert await journal.read(read_overlays, None, receipt.envelope_id) == corrected
    assert await journal.read(read_overlays, other_id, receipt.envelope_id) == corrected
    own = EventOverlay({0: b"only one", 1: b"B"}, frozenset())
    assert await journal.read(read_overlays, role_id, receipt.envelope_id) == {event.event_id: own}


async def test_of_corrections_for_a_role_and_for_all_the_newest_counts(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    await scribe.put([b"a"])
    role_id = scribe.role_id("store_1")
    (envelope,) = await journal.read(read_log, 0, 10)
    event_id = envelope.events[0].event_id

    async def counting() -> list[Any]:
        overlays = [await journal.read(read_overlays, each, envelope.envelope_id) for each in (role_id, None)]
        return [found[event_id].corrected[0] for found in overlays if found]

    with engine.connect() as connection:
        assert read_corrected_item(connection, event_id, 0) == {}
    correct(engine, role_id, event_id, 0, b"1")
    assert await counting() == [b"1"]
    correct(engine, None, event_id, 0, b"2")
    assert await counting() == [b"2", b"2"]
    correct(engine, role_id, event_id, 0, b"3", LATER)
    assert await counting() == [b"3", b"2"]
    with engine.connect() as connection:
        assert read_corrected_item(connection, event_id, 0) == {None: b"2", role_id: b"3"}
        kept = [(row.role, row.after) for row in read_corrections(connection, envelope.envelope_id)]
    assert kept == [("store_1", b"1"), (None, b"2"), ("store_1", b"3")]


async def test_all_envelopes_over_the_same_segments_carry_a_correction_for_all(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    first, again = await repeated(journal, scribe, b"a", b"b")
    role_id = scribe.role_id("store_1")
    # For one role it is of the envelope that is parked only.
    correct(engine, role_id, again.events[0].event_id, 0, b"A")
    correct(engine, None, again.events[0].segments_id, 1, b"B")
    for envelope in (first, again):
        (event,) = envelope.events
        assert await journal.read(read_overlays, None, envelope.envelope_id) == {
            event.event_id: EventOverlay({1: b"B"}, frozenset())
        }
    assert set(await journal.read(read_overlays, role_id, first.envelope_id)) == {first.events[0].event_id}
    of_role = await journal.read(read_overlays, role_id, again.envelope_id)
    assert of_role[again.events[0].event_id].corrected == {0: b"A", 1: b"B"}
    with engine.connect() as connection:
        assert [row.event_id for row in read_corrections(connection, again.envelope_id)] == [
            again.events[0].event_id,
        ] * 2
        assert read_corrected_item(connection, again.events[0].event_id, 1) == {None: b"B"}


async def test_what_is_corrected_is_listed_with_whom_it_is_for_and_when(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    _, again = await repeated(journal, scribe, b"a", b"b")
    event = again.events[0]
    correct(engine, None, event.segments_id, 1, b"B")
    correct(engine, scribe.role_id("store_1"), event.event_id, 0, b"A")
    correct(engine, None, event.segments_id, 1, b"as sent", LATER)
    with engine.connect() as connection:
        assert list_overlaid(connection, again.envelope_id, 10) == [
            OverlaidItem("store_1", 1, 0, "corrected", NOW, "ada: no name"),
            OverlaidItem(None, 1, 1, "corrected", NOW, "ada: no name"),
            OverlaidItem(None, 1, 1, "as_sent", LATER.at, "lou: another"),
        ]


async def test_the_end_of_the_log_tells_of_new_corrections_for_all(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    ends = await journal.read(read_ends)
    assert (ends.position, ends.correction) == (0, 0)
    await scribe.put([b"a"])
    (envelope,) = await journal.read(read_log, 0, 10)
    event_id = envelope.events[0].event_id
    correct(engine, scribe.role_id("store_1"), event_id, 0, b"A")
    ends = await journal.read(read_ends)
    assert (ends.position, ends.correction) == (1, 0)
    correct(engine, None, event_id, 0, b"A")
    first = (await journal.read(read_ends)).correction
    assert await journal.read(read_corrected_events, 0) == [(first, event_id)]
    # Also where the newest was removed meanwhile.
    with engine.begin() as connection:
        connection.execute(sa.delete(model.correction))
    ends = await journal.read(read_ends)
    assert (ends.position, ends.correction) == (1, 0)
    correct(engine, None, event_id, 0, b"B")
    newest = (await journal.read(read_ends)).correction
    assert newest > first
    assert await journal.read(read_corrected_events, first) == [(newest, event_id)]


async def test_corrections_for_all_get_their_ids_in_the_order_of_their_commits(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    if is_memory(engine):
        return
    await scribe.put([b"a"], [b"b"])
    (envelope,) = await journal.read(read_log, 0, 10)
    first, second = (event.event_id for event in envelope.events)
    with engine.begin() as connection:
        add_correction(connection, None, first, 0, b"a", b"A", DECISION)
        other = asyncio.create_task(asyncio.to_thread(correct, engine, None, second, 0, b"B"))
        # It is not there before the first is committed, however long that takes.
        done, _ = await asyncio.wait([other], timeout=0.3)
        assert not done
    await other
    found = await journal.read(read_corrected_events, 0)
    assert [event_id for _, event_id in found] == [first, second]


async def test_what_was_removed_is_not_held(journal: Journal, engine: sa.Engine, scribe: Scribe) -> None:
    _, again = await repeated(journal, scribe, b"a")
    place = again.envelope_id, again.events[0].segments_id
    with engine.begin() as connection:
        assert hold_sealed(connection, *place)
        assert not hold_sealed(connection, uuid.uuid4(), place[1])
        connection.execute(sa.update(model.envelope).values(pruned_at=NOW))
        assert not hold_sealed(connection, *place)
