"""The front has the journal compress the items of types that say so, whichever way they come."""

import uuid

import sqlalchemy as sa

from tests.unit.broker.front.conftest import Desk
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.journal.journal import Journal
from xbus.rpc.codec import pack_items

ITEMS = [b"x" * 900] * 5


async def test_only_types_that_say_so_are_compressed(
    north: Desk, journal: Journal, configuration: Configuration
) -> None:
    compress = sa.update(model.event_type).where(model.event_type.c.name == "flights").values(compress="zstd")
    await journal.run(lambda connection: connection.execute(compress))
    await configuration.refresh()
    ids = {name: [await in_parts(north, name), await whole(north, name)] for name in ("flights", "notes")}
    statement = sa.select(model.log_segment.c.event_id).where(model.log_segment.c.plain_bytes.is_not(None))
    compressed = await journal.run(lambda connection: connection.execute(statement).scalars().all())
    assert set(compressed) == set(ids["flights"])


async def in_parts(north: Desk, type_name: str) -> uuid.UUID:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id, type_name=type_name)
    await north.append(envelope_id, event_id, 0, ITEMS)
    await north.end_event(envelope_id, event_id)
    await north.seal(envelope_id)
    return event_id


async def whole(north: Desk, type_name: str) -> uuid.UUID:
    event = NewEvent(uuid.uuid4(), type_name, len(ITEMS), pack_items(ITEMS))
    await north.put(uuid.uuid4(), event)
    return event.event_id
