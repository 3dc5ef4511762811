"""Items as one role gets them: compared with what a naive reading of the overlay says."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.log.batch import RunBatch
from xbus.broker.back.run.context import overlaid
from xbus.broker.journal.log.overlays import EventOverlay
from xbus.rpc.codec import pack_items

SEGMENTS = st.lists(st.lists(st.binary(max_size=4), min_size=1, max_size=5), max_size=5)
INDICES = st.integers(0, 30)
OVERLAYS = st.builds(EventOverlay, st.dictionaries(INDICES, st.binary(max_size=9)), st.frozensets(INDICES))


def batches_of(segments: Sequence[Sequence[bytes]]) -> list[RunBatch]:
    batches, index = [], 0
    for items in segments:
        batches.append(RunBatch(index, len(items), pack_items(list(items))))
        index += len(items)
    return batches


def through(overlay: EventOverlay, batches: Sequence[RunBatch]) -> list[RunBatch]:
    async def flowing() -> AsyncIterator[RunBatch]:
        for batch in batches:
            yield batch

    async def collect() -> list[RunBatch]:
        return [batch async for batch in overlaid(flowing(), overlay)]

    return asyncio.run(collect())


@given(SEGMENTS, OVERLAYS)
def test_each_item_is_as_the_overlay_says(segments: list[list[bytes]], overlay: EventOverlay) -> None:
    items = [item for segment in segments for item in segment]
    expected = [
        ([index], overlay.corrected.get(index, item))
        for index, item in enumerate(items)
        if index not in overlay.left_out
    ]
    batches = through(overlay, batches_of(segments))
    assert [single for batch in batches for single in batch.singly()] == expected
    assert all(batch.items for batch in batches)


def test_what_is_not_touched_is_forwarded_as_it_is() -> None:
    first, second = batches_of([[b"a", b"b"], [b"c", b"d"]])
    passed, changed = through(EventOverlay({2: b"C"}, frozenset()), [first, second])
    assert passed is first
    assert changed == RunBatch(2, 2, pack_items([b"C", b"d"]))


def test_what_stands_behind_an_item_that_is_left_out_keeps_its_index() -> None:
    (batch,) = through(EventOverlay({}, frozenset({1})), batches_of([[b"a", b"b", b"c"]]))
    assert batch == RunBatch(0, 2, pack_items([b"a", b"c"]), [[0], [2]])


def test_items_at_the_edges_leave_a_batch_that_counts_up() -> None:
    (batch,) = through(EventOverlay({}, frozenset({0, 3})), batches_of([[b"a", b"b", b"c", b"d"]]))
    assert batch == RunBatch(1, 2, pack_items([b"b", b"c"]))
