"""Compressed segments: nobody outside the journal tells them from plain ones."""

import uuid
from collections.abc import Sequence
from typing import cast

import pytest
import sqlalchemy as sa

from tests.contract.test_put import whole
from tests.support.fsck import examined
from tests.support.journal import Scribe, change_segments, remove_segments
from tests.support.slices import whole_ring
from xbus import model
from xbus.broker.back.log import LogReader
from xbus.broker.back.log.small import SMALL_BYTES
from xbus.broker.journal.archive.records import put_rows, read_rows
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.database.compression import DAMAGED, LEAST_BYTES
from xbus.broker.journal.fsck.faults import FaultCode
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.planning import cut_event
from xbus.broker.journal.log.reading import read_segments, read_small_events
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.values import Place, SliceBounds
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes import Append, PutEnvelope
from xbus.errors import JournalError
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack_items

LARGE = [b"invoice %d, to be paid by friday" % number for number in range(1_000)]
SMALL = [b"invoice 7"]
DATA = pack_items(LARGE)


def put_of(scribe: Scribe, *events: Sequence[bytes], compress: bool = True) -> PutEnvelope:
    put = whole(scribe, *map(list, events))
    return PutEnvelope(
        put.envelope_id, put.emitter_id, [event._replace(compress=compress) for event in put.events], put.at
    )


async def stored(journal: Journal) -> list[tuple[int, int | None]]:
    """The bytes of each segment as it is stored, and those of its plain data, the largest first."""
    segment = model.log_segment.c
    size = sa.func.length(segment.data)
    statement = sa.select(size, segment.plain_bytes).order_by(segment["items"].desc())
    return [tuple(row) for row in await journal.run(lambda connection: connection.execute(statement).all())]


async def damage(journal: Journal, **values: object) -> None:
    """Change all segments that are compressed."""
    compressed = sa.select(model.log_segment.c.event_id).where(model.log_segment.c.plain_bytes.is_not(None))
    await journal.run(
        lambda connection: change_segments(connection, connection.execute(compressed).scalars(), **values)
    )


async def test_large_segments_take_less_and_read_the_same(journal: Journal, scribe: Scribe) -> None:
    put = put_of(scribe, LARGE, SMALL)
    plain = await journal.write(put_of(scribe, LARGE, SMALL, compress=False))
    receipt = await journal.write(put)
    assert (receipt.hash, receipt.data_bytes, receipt.items) == (plain.hash, plain.data_bytes, plain.items)
    sizes = await stored(journal)
    assert (len(DATA), None) in sizes
    assert [(size < len(DATA) / 4, plain_bytes) for size, plain_bytes in sizes if plain_bytes] == [(True, len(DATA))]
    large, small = (event.event_id for event in put.events)
    assert await journal.read(read_segments, large, 7, 10**6) == [Segment(0, len(LARGE), DATA)]
    found = await journal.read(read_small_events, [large, small])
    assert found == {large: [Segment(0, len(LARGE), DATA)], small: [Segment(0, 1, pack_items(SMALL))]}


async def test_an_envelope_is_small_by_its_plain_bytes(journal: Journal, scribe: Scribe) -> None:
    log = LogReader(journal, cast(Bell, None))
    envelopes = [put_of(scribe, LARGE), put_of(scribe, LARGE * 3), put_of(scribe, SMALL)]
    positions = [(await journal.write(put)).position for put in envelopes]
    # What this process has not sealed is read.
    bare = LogReader(journal, cast(Bell, None))
    listed = await bare.at(positions)
    assert [envelope.size for envelope in listed] == [len(DATA), 3 * len(DATA), len(pack_items(SMALL))]
    assert len(DATA) < SMALL_BYTES < 3 * len(DATA)
    for reader in (log, bare):
        assert set(await reader.small(listed)) == {positions[0], positions[2]}


async def test_items_that_come_in_parts_are_compressed_too(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await journal.write(Append(envelope_id, event_id, 0, len(LARGE), DATA, True))
    await journal.write(Append(envelope_id, event_id, len(LARGE), 1, pack_items(SMALL), True))
    scribe.end_event(envelope_id, event_id, len(LARGE) + 1)
    receipt = await scribe.seal(envelope_id, 1, len(LARGE) + 1)
    plain = len(DATA) + len(pack_items(SMALL))
    assert receipt.data_bytes == plain
    assert [plain_bytes for _, plain_bytes in await stored(journal)] == [len(DATA), None]
    there = await journal.read(read_envelope, envelope_id)
    assert there is not None
    assert there.events[0].data_bytes == plain
    assert await journal.read(read_stored_bytes) == plain


async def test_data_that_does_not_shrink_stays_plain(journal: Journal, scribe: Scribe) -> None:
    noise = b"".join(uuid.uuid4().bytes for _ in range(LEAST_BYTES // 8))
    await journal.write(put_of(scribe, [noise]))
    assert [plain_bytes for _, plain_bytes in await stored(journal)] == [None]


async def test_slices_are_cut_out_of_compressed_segments(journal: Journal, scribe: Scribe) -> None:
    await journal.write(put_of(scribe, LARGE))
    type_id = scribe.catalog.event_types["notes"].id
    ring = [whole_ring(Place(0))]
    part = await journal.read(read_slice, frozenset({type_id}), ring, SliceBounds(10, 10**6))
    assert [event.data for event in part.events] == [pack_items(LARGE[:10])]


async def test_readers_past_the_broker_get_plain_data(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    put = put_of(shared_scribe, LARGE, SMALL)
    receipt = await shared_journal.write(put)
    (wanted,) = await shared_journal.read(cut_event, put.events[0].event_id, 1)
    type_id = shared_scribe.catalog.event_types["notes"].id
    for page_bytes in (10**6, 1):
        with open_reader(shared_url, page_bytes) as reader:
            assert [segment.data for segment in reader.segments(wanted)] == [DATA]
            log = list(reader.log(type_id, 0, receipt.position))
            assert [segment.data for segment in log] == [DATA, pack_items(SMALL)]
            bare = list(reader.log(type_id, 0, receipt.position, ()))
            assert [(segment.items, segment.data) for segment in bare] == [(len(LARGE), b""), (1, b"")]


async def test_what_was_archived_is_compressed_again(journal: Journal, scribe: Scribe) -> None:
    put = put_of(scribe, LARGE)
    await journal.write(put)
    compress = sa.update(model.event_type).values(compress="zstd")
    await journal.run(lambda connection: connection.execute(compress))
    rows = await journal.read(read_rows, put.events[0].event_id, 0, 10**6)
    assert [(row.data, row.plain_bytes) for row in rows] == [(DATA, None)]
    before = await stored(journal)
    await journal.run(remove_segments)
    await journal.run(lambda connection: put_rows(connection, rows))
    assert await stored(journal) == before
    assert await journal.read(read_segments, put.events[0].event_id, 0, 10**6) == [Segment(0, len(LARGE), DATA)]


async def test_the_catalog_says_which_types_are_compressed(journal: Journal) -> None:
    compress = sa.update(model.event_type).where(model.event_type.c.name == "flights").values(compress="zstd")
    await journal.run(lambda connection: connection.execute(compress))
    catalog = await journal.read(read_catalog)
    assert (catalog.event_types["flights"].compress, catalog.event_types["notes"].compress) == (True, False)


@pytest.mark.parametrize("values", [{"data": b"\x28\xb5\x2f\xfd broken"}, {"data": DATA}, {"plain_bytes": 2**31 - 1}])
async def test_damage_is_an_error_and_a_fault(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe, values: dict[str, object]
) -> None:
    put = put_of(shared_scribe, LARGE)
    await shared_journal.write(put)
    assert examined(shared_url) == []
    await damage(shared_journal, **values)
    with pytest.raises(JournalError) as caught:
        await shared_journal.read(read_segments, put.events[0].event_id, 0, 10**6)
    assert caught.value.code == DAMAGED
    assert FaultCode.SEGMENT_CHANGED in {fault.code for fault in examined(shared_url)}
