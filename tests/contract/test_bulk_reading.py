"""Segments read side by side, past the broker: the same on every database that others can read."""

import pickle
import uuid
from collections.abc import Sequence

import pytest

from tests.support.attempts import event_of, make_output
from tests.support.journal import NOW, Scribe
from xbus.broker.journal.bulk.segment_reader import LoggedSegment, SegmentReader, open_reader
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import GONE, SegmentRange, cut_event, cut_log, cut_output
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import ConfigurationError, JournalError, JournalUnavailable
from xbus.rpc.codec import unpack_items


async def put_in_segments(
    scribe: Scribe, *segments: Sequence[bytes], type_name: str = "flights"
) -> tuple[SealReceipt, uuid.UUID]:
    """An envelope with one event, each of these in a segment of its own."""
    envelope_id, started = scribe.start_envelope()
    await started
    event_id, started = scribe.start_event(envelope_id, 1, type_name)
    await started
    index = 0
    for items in segments:
        await scribe.append(envelope_id, event_id, index, items)
        index += len(items)
    await scribe.end_event(envelope_id, event_id, index)
    return await scribe.seal(envelope_id, 1, index), event_id


def items_of(segments: Sequence[LoggedSegment]) -> list[bytes]:
    return [item for segment in segments for item in unpack_items(segment.data, segment.items)]


def type_id(scribe: Scribe, name: str = "flights") -> int:
    return scribe.catalog.event_types[name].id


def log_of(reader: SegmentReader, scribe: Scribe, after: int, until: int, name: str = "flights") -> list[LoggedSegment]:
    return list(reader.log(type_id(scribe, name), after, until))


async def test_ranges_of_an_event_hold_all_of_it(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    segments = [[b"%d" % number] * (number % 3 + 1) for number in range(10)]
    _, event_id = await put_in_segments(shared_scribe, *segments)
    ranges = await shared_journal.read(cut_event, event_id, 4)
    assert len(ranges) == 4
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    with open_reader(shared_url) as reader:
        found = [segment for wanted in ranges for segment in reader.segments(wanted)]
    assert [unpack_items(segment.data, segment.items) for segment in found] == segments
    assert [segment.first_index for segment in found] == [sum(map(len, segments[:n])) for n in range(10)]
    assert [segment.items for segment in found] == [len(items) for items in segments]
    assert {segment.sources for segment in found} == {None}


async def test_a_repeat_is_read_from_its_origin(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    receipt, event_id = await put_in_segments(shared_scribe, [b"a"], [b"b"])
    again: SealReceipt = await shared_journal.write(await shared_scribe.again(receipt.envelope_id))
    ranges = await shared_journal.read(cut_event, await event_of(shared_journal, again), 1)
    assert ranges == [SegmentRange(event_id, False, 0, 1, 2)]
    with open_reader(shared_url) as reader:
        found = log_of(reader, shared_scribe, receipt.position, again.position)
    assert items_of(found) == [b"a", b"b"]
    assert {(segment.envelope_id, segment.position) for segment in found} == {(again.envelope_id, again.position)}


async def test_an_event_without_items_has_no_ranges(shared_journal: Journal, shared_scribe: Scribe) -> None:
    _, event_id = await put_in_segments(shared_scribe)
    assert await shared_journal.read(cut_event, event_id, 4) == []


async def test_an_event_that_is_open_or_unknown_is_not_cut(shared_journal: Journal, shared_scribe: Scribe) -> None:
    envelope_id, _ = shared_scribe.start_envelope()
    event_id, started = shared_scribe.start_event(envelope_id)
    await started
    for wanted in (event_id, uuid.uuid4()):
        with pytest.raises(JournalError) as refused:
            await shared_journal.read(cut_event, wanted, 2)
        assert refused.value.code == GONE


async def test_what_was_removed_meanwhile_is_told(shared_url: str, shared_scribe: Scribe) -> None:
    _, event_id = await put_in_segments(shared_scribe, [b"a"], [b"b"])
    with open_reader(shared_url) as reader:
        with pytest.raises(JournalError) as told:
            list(reader.segments(SegmentRange(event_id, False, 0, 5, 3)))
    assert told.value.code == GONE


async def test_an_output_is_read_by_parts(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> None:
    _, event_id = await put_in_segments(shared_scribe, [b"a"])
    parts = [[[b"a", b"b"], [b"c"]], [], [[b"d"]], [[b"e"], [b"f"]]]
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, *parts)
    ranges = await shared_journal.read(cut_output, attempt_id, 3)
    assert [(wanted.first, wanted.last, wanted.items) for wanted in ranges] == [(0, 0, 3), (2, 2, 1), (3, 3, 2)]
    with open_reader(shared_url) as reader:
        found = [unpack_items(segment.data, segment.items) for wanted in ranges for segment in reader.segments(wanted)]
    assert found == [segment for part in parts for segment in part]


async def test_pages_are_bounded_and_lose_nothing(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    segments = [[b"%03d" % number * size] for number, size in enumerate([1, 90, 30, 1, 1, 200, 1, 40, 40])]
    receipt, event_id = await put_in_segments(shared_scribe, *segments)
    attempt_id = await make_output(
        shared_journal, shared_scribe, shared_url, event_id, segments[:4], segments[4:5], segments[5:]
    )
    whole = [item for items in segments for item in items]
    with open_reader(shared_url, page_bytes=250) as reader:
        for wanted in (
            *await shared_journal.read(cut_event, event_id, 1),
            *await shared_journal.read(cut_output, attempt_id, 1),
        ):
            assert [
                item for segment in reader.segments(wanted) for item in unpack_items(segment.data, segment.items)
            ] == whole
        assert items_of(log_of(reader, shared_scribe, 0, receipt.position)) == whole


async def test_the_log_of_a_type_comes_in_order(shared_url: str, shared_scribe: Scribe) -> None:
    receipts = []
    for number in range(8):
        sizes = (3, 1, 0, 40 if number == 4 else 2)
        events = [[b"%d-%d-%d" % (number, event, n) for n in range(size)] for event, size in enumerate(sizes)]
        receipts.append(await shared_scribe.put(*events, type_name="notes" if number == 2 else "flights"))
    with open_reader(shared_url, page_bytes=100) as reader:
        found = log_of(reader, shared_scribe, receipts[0].position, receipts[6].position)
    expected = [
        b"%d-%d-%d" % (number, event, n)
        for number in (1, 3, 4, 5, 6)
        for event, size in enumerate((3, 1, 0, 40 if number == 4 else 2))
        for n in range(size)
    ]
    assert items_of(found) == expected
    assert [segment.position for segment in found] == sorted(segment.position for segment in found)
    assert {segment.emitter for segment in found} == {"north"}
    assert {segment.sealed_at for segment in found} == {NOW}
    assert {segment.envelope_id for segment in found} == {receipts[number].envelope_id for number in (1, 3, 4, 5, 6)}


async def test_what_is_not_wanted_is_not_read(shared_url: str, shared_scribe: Scribe) -> None:
    await put_in_segments(shared_scribe, [b"a"], [b"b", b"c"])
    with open_reader(shared_url) as reader:
        found = list(reader.log(type_id(shared_scribe), 0, 1, columns=("position", "index")))
    assert [(segment.first_index, segment.items, segment.data) for segment in found] == [(0, 1, b""), (1, 2, b"")]


async def test_parts_of_a_large_event_are_read_apart(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    segments = [[b"%d" % n for n in range(start, start + 5_000)] for start in range(0, 30_000, 5_000)]
    await put_in_segments(shared_scribe, [b"small"])
    await put_in_segments(shared_scribe, *segments)
    await put_in_segments(shared_scribe, [b"last"])
    ranges = await shared_journal.read(cut_log, type_id(shared_scribe), 0, 3, 3)
    assert len(ranges) == 5
    with open_reader(shared_url) as reader:
        found = [segment for wanted in ranges for segment in reader.log_range(wanted)]
        bare = [segment for wanted in ranges for segment in reader.log_range(wanted, columns=())]
    assert items_of(found) == [b"small", *(item for items in segments for item in items), b"last"]
    assert sum(segment.items for segment in bare) == 30_002


async def test_a_database_out_of_reach_is_told_as_the_journals_error() -> None:
    with pytest.raises(JournalUnavailable):
        with open_reader("postgresql+psycopg2://nobody:nothing@127.0.0.1:9/none"):
            pass
    with pytest.raises(ConfigurationError):
        with open_reader("sqlite://"):
            pass
