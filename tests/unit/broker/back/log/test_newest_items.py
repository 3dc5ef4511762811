"""Items in memory that were stored last: they are as they were stored, and take no more memory than they may."""

import uuid
from collections.abc import Sequence

from xbus.broker.back.log.tail import SEGMENT_BYTES, NewestItems
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import Append
from xbus.rpc.codec import pack_items

ENVELOPE = uuid.UUID(int=1)
FIRST, SECOND = uuid.UUID(int=2), uuid.UUID(int=3)
PAGE = 1_000_000


def append(event_id: uuid.UUID, first_index: int, items: Sequence[bytes]) -> Append:
    return Append(ENVELOPE, event_id, first_index, len(items), pack_items(items))


def test_items_follow_each_other_from_any_batch_on() -> None:
    newest = NewestItems()
    newest.add([append(FIRST, 0, [b"a", b"b"]), append(SECOND, 0, [b"x"])])
    newest.add([append(FIRST, 2, [b"c"])])
    first, second = Segment(0, 2, pack_items([b"a", b"b"])), Segment(2, 1, pack_items([b"c"]))
    assert newest.following(FIRST, 0, PAGE) == [first, second]
    assert newest.following(FIRST, 2, PAGE) == [second]
    assert newest.following(FIRST, 3, PAGE) == []
    assert newest.following(FIRST, 1, PAGE) == []
    assert newest.following(SECOND, 0, PAGE) == [Segment(0, 1, pack_items([b"x"]))]


def test_a_page_ends_where_it_is_full() -> None:
    newest = NewestItems()
    newest.add([append(FIRST, index, [b"12345678"]) for index in range(5)])
    assert [segment.first_index for segment in newest.following(FIRST, 1, 15)] == [1, 2]
    assert [segment.first_index for segment in newest.following(FIRST, 1, 1)] == [1]


def test_the_oldest_go_where_all_take_too_much() -> None:
    batch = append(FIRST, 0, [b"1234"])
    newest = NewestItems(2 * (SEGMENT_BYTES + len(batch.data)))
    newest.add([append(FIRST, index, [b"1234"]) for index in range(3)])
    assert newest.following(FIRST, 0, PAGE) == []
    assert [segment.first_index for segment in newest.following(FIRST, 1, PAGE)] == [1, 2]
    assert newest.size == 2 * (SEGMENT_BYTES + len(batch.data))


def test_what_is_larger_than_all_is_not_kept() -> None:
    newest = NewestItems(SEGMENT_BYTES)
    newest.add([append(FIRST, 0, [b"1234"])])
    assert newest.following(FIRST, 0, PAGE) == []
    assert newest.size == 0


def test_items_that_are_stored_anew_count_once() -> None:
    newest = NewestItems()
    newest.add([append(FIRST, 0, [b"old"])])
    size = newest.size
    newest.add([append(FIRST, 0, [b"new"])])
    assert newest.following(FIRST, 0, PAGE) == [Segment(0, 1, pack_items([b"new"]))]
    assert newest.size == size
