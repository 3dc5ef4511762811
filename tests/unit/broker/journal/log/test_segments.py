"""Gathering appends, hashing content, and PostgreSQL's binary format: bytes only."""

import hashlib
import json
import struct
import uuid

from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.journal.database.binary_copy import END, HEADER
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, copy_rows, gather
from xbus.broker.journal.writes import Append
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import pack_items, unpack_items

ENVELOPE = uuid.UUID(int=7)
EVENTS = [uuid.UUID(int=number) for number in range(3)]


def append(event: int, first_index: int, *items: bytes) -> Append:
    return Append(ENVELOPE, EVENTS[event], first_index, len(items), pack_items(items))


def items_of(row: SegmentRow) -> list[bytes]:
    return unpack_items(row.data, row.items)


def test_what_follows_each_other_becomes_one_segment() -> None:
    (row,) = gather([append(0, 0, b"a"), append(0, 1, b"b", b"c"), append(0, 3, b"d")], 1000)
    assert (row.event_id, row.first_index, row.items) == (EVENTS[0], 0, 4)
    assert items_of(row) == [b"a", b"b", b"c", b"d"]
    assert row.hash == hashlib.sha256(row.data).digest()
    assert row.indices is None


def test_events_are_kept_apart() -> None:
    rows = gather([append(0, 0, b"a"), append(1, 0, b"x"), append(0, 1, b"b"), append(1, 1, b"y")], 1000)
    assert [(row.event_id, items_of(row)) for row in rows] == [(EVENTS[0], [b"a", b"b"]), (EVENTS[1], [b"x", b"y"])]


def test_what_does_not_follow_is_not_joined() -> None:
    rows = gather([append(0, 0, b"a"), append(0, 5, b"b")], 1000)
    assert [row.first_index for row in rows] == [0, 5]


def test_nothing_makes_nothing() -> None:
    assert gather([], 1000) == []


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.binary(max_size=20), min_size=1, max_size=5)), max_size=30),
    st.integers(1, 200),
)
def test_no_item_is_lost_and_no_segment_is_too_large(calls: list[tuple[int, list[bytes]]], max_bytes: int) -> None:
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    appends = []
    for event, items in calls:
        appends.append(append(event, len(sent[event]), *items))
        sent[event] += items
    rows = gather(appends, max_bytes)
    for event, items in sent.items():
        of_event = [row for row in rows if row.event_id == EVENTS[event]]
        assert [item for row in of_event for item in items_of(row)] == items
        assert [row.first_index for row in of_event] == [
            sum(row.items for row in of_event[:place]) for place in range(len(of_event))
        ]
    single = {len(call.data) for call in appends}
    assert all(len(row.data) <= max_bytes or len(row.data) in single for row in rows)


def test_the_content_hash_is_as_the_model_tells() -> None:
    expected = hashlib.sha256(b"notes\0" + struct.pack(">Q", 2) + b"1" * 32 + b"2" * 32 + b"other\0" + bytes(8))
    events = [Content("notes", 2, [b"1" * 32, b"2" * 32]), Content("other", 0, [])]
    assert content_hash(events) == expected.digest()


def test_the_content_hash_of_version_2_covers_headers_and_partition_keys() -> None:
    expected = hashlib.sha256(
        b"\0\2" + struct.pack(">I", 2) + b"EH"
        # Events in order: name, items, headers, partition key, hashes.
        + b"notes\0" + struct.pack(">QI", 2, 1) + b"H" + struct.pack(">I", 3) + "k\u00e9".encode()
        + struct.pack(">I", 2) + b"1" * 32 + b"2" * 32
        + b"other\0" + struct.pack(">QIII", 0, 0, 0, 0)
    )  # fmt: skip
    events = [
        Content("notes", 2, [b"1" * 32, b"2" * 32], EventTags(b"H", "k\u00e9")),
        Content("other", 0, []),
    ]
    assert content_hash(events, b"EH") == expected.digest()


@given(
    st.lists(
        st.tuples(
            st.tuples(st.sampled_from(["notes", "other"]), st.integers(0, 3)),
            st.none() | st.binary(min_size=1, max_size=4),
            st.none() | st.text(min_size=1, max_size=3),
        ),
        max_size=4,
    ),
    st.none() | st.binary(min_size=1, max_size=4),
)
def test_whatever_is_added_to_an_envelope_changes_its_hash(
    given_events: list[tuple[tuple[str, int], bytes | None, str | None]], headers: bytes | None
) -> None:
    events = [Content(name, items, (), EventTags(packed, key)) for (name, items), packed, key in given_events]
    bare = [event._replace(tags=NO_TAGS) for event in events]
    is_bare = events == bare and headers is None
    assert (content_hash(events, headers) == content_hash(bare)) == is_bare
    assert content_hash(events, (headers or b"") + b"x") != content_hash(events, headers)
    for number, event in enumerate(events):
        key = (event.tags.partition_key or "") + "x"
        other = [*events[:number], event._replace(tags=event.tags._replace(partition_key=key)), *events[number + 1 :]]
        assert content_hash(other, headers) != content_hash(events, headers)


def test_the_content_hash_depends_on_the_order_of_events() -> None:
    events = [Content("notes", 0, []), Content("other", 0, [])]
    assert content_hash(events) != content_hash(events[::-1])


def parse_copy(data: bytes) -> list[list[bytes | None]]:
    """Read PostgreSQL's binary format by the words of its documentation."""
    assert data[:11] == b"PGCOPY\n\xff\r\n\0"
    flags, extension = struct.unpack_from("!ii", data, 11)
    assert (flags, extension) == (0, 0)
    place, rows = 19, []
    while (fields := struct.unpack_from("!h", data, place)[0]) != -1:
        place += 2
        row: list[bytes | None] = []
        for _ in range(fields):
            (length,) = struct.unpack_from("!i", data, place)
            place += 4
            row.append(None if length == -1 else data[place : place + length])
            place += max(length, 0)
        rows.append(row)
    assert place + 2 == len(data)
    return rows


SEGMENTS = st.builds(
    SegmentRow,
    st.uuids(),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=50),
    st.binary(min_size=32, max_size=32),
    st.one_of(st.none(), st.lists(st.lists(st.integers(0, 2**40), max_size=3), max_size=3)),
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
)


@given(st.lists(SEGMENTS, max_size=5))
def test_rows_in_binary_are_what_postgresql_reads(rows: list[SegmentRow]) -> None:
    for row, fields in zip(rows, parse_copy(b"".join((HEADER, *copy_rows(rows), END))), strict=True):
        event_id, first_index, items, data, content, indices, *numbers = fields
        assert event_id == row.event_id.bytes
        assert first_index == struct.pack("!q", row.first_index)
        assert items == struct.pack("!i", row.items)
        assert (data, content) == (row.data, row.hash)
        assert (None if indices is None else json.loads(indices)) == row.indices
        wanted = (row.plain_bytes, row.store_id)
        assert numbers == [None if number is None else struct.pack("!i", number) for number in wanted]
