"""The tail of the log in memory: it gives what was added and nothing else, and takes no more memory than it may."""

import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.slices import whole_ring
from xbus.broker.back.log.tail import ENVELOPE_BYTES, LogTail
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.values import Place, SliceBounds
from xbus.broker.journal.writes import PutEnvelope, PutEvent, SealedEnvelope, SealReceipt
from xbus.envelope import EnvelopeHead
from xbus.rpc.codec import pack_items

NOW = datetime(2020, 2, 29, tzinfo=UTC)


def event_at(position: int, number: int) -> uuid.UUID:
    return uuid.UUID(int=position << 16 | number)


def content_at(position: int, *events: Sequence[bytes], key: str | None = None) -> PutEnvelope:
    """A whole envelope, each event with these items."""
    puts = [
        PutEvent(event_at(position, number), 1, "notes", 7, len(items), pack_items(list(items)))
        for number, items in enumerate(events)
    ]
    return PutEnvelope(uuid.UUID(int=position), 1, puts, NOW, EnvelopeHead(key))


def sealed(position: int, *events: Sequence[bytes], known: bool = True, key: str | None = None) -> SealedEnvelope:
    """What a commit tells of an envelope; of one that came in parts it knows no content."""
    items = sum(map(len, events))
    receipt = SealReceipt(uuid.UUID(int=position), position, len(events), items, 0, b"")
    return SealedEnvelope(receipt, content_at(position, *events, key=key) if known else None)


def found(tail: LogTail, after: int, limit: int = 1000) -> list[int]:
    return [envelope.position for envelope in tail.after(after, limit)[0]]


def test_it_gives_what_follows_a_position_as_the_log_has_it() -> None:
    tail = LogTail()
    tail.add([sealed(1, [b"a"]), sealed(2, [b"b"], [], key="k"), sealed(3, [b"c"])])
    assert found(tail, 0) == [1, 2, 3]
    assert found(tail, 1) == [2, 3]
    assert found(tail, 0, limit=2) == [1, 2]
    assert found(tail, 3) == []
    assert found(tail, 0, limit=0) == []
    (envelope, _), _ = tail.after(1, 10)
    assert (envelope.envelope_id, envelope.head.ordering_key) == (uuid.UUID(int=2), "k")
    assert [(event.event_id, event.type_name, event.graph_id, event.items) for event in envelope.events] == [
        (event_at(2, 0), "notes", 7, 1),
        (event_at(2, 1), "notes", 7, 0),
    ]


def test_segments_are_there_for_events_that_have_items() -> None:
    tail = LogTail()
    tail.add([sealed(1, [b"a", b"b"], [])])
    asked = [event_at(1, 0), event_at(1, 1), event_at(2, 0)]
    assert tail.segments(asked) == {event_at(1, 0): [Segment(0, 2, pack_items([b"a", b"b"]))]}


def test_what_lies_before_a_gap_goes() -> None:
    tail = LogTail()
    tail.add([sealed(1, [b"a"]), sealed(2, [b"b"])])
    tail.add([sealed(4, [b"d"])])
    assert found(tail, 0) == found(tail, 2) == []
    assert found(tail, 3) == [4]
    assert tail.segments([event_at(2, 0)]) == {}


def test_it_stops_before_one_whose_content_is_not_known() -> None:
    tail = LogTail()
    tail.add([sealed(1, [b"a"]), sealed(2, [b"b"], known=False), sealed(3, [b"c"])])
    assert found(tail, 0) == [1]
    assert found(tail, 1) == []
    assert found(tail, 2) == [3]


def test_the_oldest_go_when_it_is_full() -> None:
    tail = LogTail(max_bytes=2 * ENVELOPE_BYTES + 100)
    for position in range(1, 5):
        tail.add([sealed(position, [b"x"])])
    assert found(tail, 0) == found(tail, 1) == []
    assert found(tail, 2) == [3, 4]
    assert tail.segments([event_at(2, 0)]) == {}


def test_one_that_is_larger_than_all_it_may_take_is_not_kept() -> None:
    tail = LogTail(max_bytes=ENVELOPE_BYTES + 100)
    tail.add([sealed(1, [b"x" * 200])])
    assert found(tail, 0) == []
    tail.add([sealed(2, [b"y"])])
    assert found(tail, 1) == [2]


MANY = SliceBounds(10**6, 10**9)


def lines_of_slice(commits: int) -> int:
    """Count the lines that run for a slice of the last one of so many envelopes of the same second."""
    tail, lines = LogTail(fresh_seconds=1.0), 0
    for position in range(1, commits + 1):
        tail.add([sealed(position, [b"a"])], now=10 + position / 10_000)

    def count(frame: object, event: str, about: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        found = tail.slice(frozenset({1}), [whole_ring(Place(commits))], MANY, 10.5, {1: "north"})
    finally:
        sys.settrace(before)
    assert found is not None
    assert [event.facts.position for event in found.events] == [commits]
    return lines


def test_a_slice_costs_as_much_however_many_commits_are_fresh() -> None:
    assert lines_of_slice(1_000) == lines_of_slice(10)


def test_a_slice_needs_the_emitters_of_its_own_envelopes_alone() -> None:
    tail = LogTail(fresh_seconds=1.0)
    for position, emitter_id in ((1, 7), (2, 8), (3, 9)):
        each = sealed(position, [b"a"])
        assert each.content is not None
        tail.add([each._replace(content=replace(each.content, emitter_id=emitter_id))], now=10.0)
    found = tail.slice(frozenset({1}), [whole_ring(Place(2))], MANY, 10.5, {8: "north", 9: "south"})
    assert found is not None
    assert [event.facts.emitter for event in found.events] == ["north", "south"]
    assert tail.emitters(2, 10.5) == {8, 9}
    assert tail.emitters(2, 12.0) == set(), "readers read these in the database"


STEPS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 2, 5]),
        st.booleans(),
        st.lists(st.lists(st.binary(max_size=40), max_size=3), max_size=3),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 6 * ENVELOPE_BYTES), st.data())
def test_it_never_makes_up_or_skips_anything(
    steps: list[tuple[int, bool, list[list[bytes]]]], max_bytes: int, data: st.DataObject
) -> None:
    tail, position = LogTail(max_bytes), 0
    added: dict[int, SealedEnvelope] = {}
    group: list[SealedEnvelope] = []
    for step, known, events in steps:
        position += step
        added[position] = sealed(position, *events, known=known)
        group.append(added[position])
        if data.draw(st.booleans()):
            tail.add(group)
            group = []
            check(tail, added, position, max_bytes)
    tail.add(group)
    check(tail, added, position, max_bytes)


def check(tail: LogTail, added: dict[int, SealedEnvelope], last: int, max_bytes: int) -> None:
    kept: set[int] = set()
    for after in range(last + 2):
        got = found(tail, after)
        assert got == list(range(after + 1, after + 1 + len(got)))
        kept.update(got)
        for envelope in tail.after(after, 2)[0]:
            content = added[envelope.position].content
            assert content is not None
            assert envelope.envelope_id == content.envelope_id
            assert [(event.event_id, event.items) for event in envelope.events] == [
                (event.event_id, event.items) for event in content.events
            ]
            segments = tail.segments(event.event_id for event in envelope.events)
            assert {event_id: segment.data for event_id, (segment,) in segments.items()} == {
                event.event_id: event.data for event in content.events if event.items
            }
    contents = [added[position].content for position in kept]
    assert sum(ENVELOPE_BYTES + content.size for content in contents if content is not None) <= max_bytes
    for position, each in added.items():
        if position not in kept and each.content is not None:
            assert not tail.segments(event.event_id for event in each.content.events)
