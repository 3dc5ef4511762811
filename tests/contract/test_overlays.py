"""What a role gets otherwise than it was sent, on every database."""

import uuid

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.overlays import EventOverlay, read_overlays
from xbus.broker.journal.log.reading import read_log


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
