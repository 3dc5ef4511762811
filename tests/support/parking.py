"""Envelopes that are parked and come again, as a journal has them."""

import sqlalchemy as sa

from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, read_log, read_segments
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, ProgressUpdate, SealReceipt
from xbus.rpc.codec import unpack_items
from xbus.states import DeliveryState


async def park(journal: Journal, receipt: SealReceipt, role_id: int) -> None:
    """Have a role refuse an envelope."""
    retry = DeliveryRow(role_id, receipt.envelope_id, receipt.position, DeliveryState.RETRY, 1, "lost", "it went away")
    parked = DeliveryRow(role_id, receipt.envelope_id, receipt.position, DeliveryState.PARKED, 1, "refused", "too old")
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, retry)]))
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(DeliveryState.RETRY, parked)]))


async def states(journal: Journal) -> list[str]:
    """The states of all deliveries that have a row."""
    wanted = sa.select(model.delivery.c.state)
    return await journal.read(lambda connection: list(connection.execute(wanted).scalars()))


async def log(journal: Journal) -> list[LogEnvelope]:
    """What is sealed, in its order."""
    return await journal.read(read_log, 0, 100)


async def items_of(journal: Journal, envelope: LogEnvelope) -> list[list[bytes]]:
    """The items of an envelope, by event."""
    found = []
    for event in envelope.events:
        segments = await journal.read(read_segments, event.segments_id, 0, 1_000_000)
        found.append([item for segment in segments for item in unpack_items(segment.data, segment.items)])
    return found
