"""Slices of the log: however it is cut, each wanted item is read once and in order; on every database."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.test_overlays import correct
from tests.support.journal import NOW, Scribe, remove_segments
from tests.support.long_log import list_all, newest_graphs, put_log, undone
from tests.support.slices import whole_ring
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import BLOCK_POSITIONS
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.listing import EventLists
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, Stretch, ring_hash
from xbus.errors import JournalError
from xbus.headers import EventTags, pack_headers
from xbus.rpc.codec import pack_items, unpack_items

MANY = SliceBounds(10**6, 10**9)
END = Place(2**31)
ItemAt = tuple[Place, bytes]


# -- a log as hypothesis makes it, and what a reader of it must find ---------------------------------------------------


@dataclass(frozen=True)
class MadeEvent:
    """An event of a made log: its type, the items of each of its segments, and its partition key."""

    type_name: str
    segments: tuple[tuple[bytes, ...], ...]
    partition_key: str | None = None


@dataclass(frozen=True)
class MadeEnvelope:
    """An envelope of a made log; one that is for a role only, or was removed, is nobody's."""

    events: tuple[MadeEvent, ...]
    ordering_key: str | None = None
    gone: str = ""
    repeats: bool = False


SEGMENTS = st.lists(st.binary(max_size=300), min_size=1, max_size=5).map(tuple)
KEYS = st.none() | st.sampled_from(["", "a", "client 7", "ü"])
EVENTS = st.builds(
    MadeEvent,
    st.sampled_from(["notes", "flights", "fares"]),
    st.lists(SEGMENTS, max_size=4).map(tuple),
    KEYS,
)
ENVELOPES = st.builds(
    MadeEnvelope, st.lists(EVENTS, max_size=3).map(tuple), KEYS, st.sampled_from(["", "", "", "role", "pruned"])
)


class MadeLog:
    """Puts envelopes into the database, and knows what each slice must hold."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.graphs = newest_graphs(connection)
        rows = connection.execute(sa.select(model.event_type.c.name, model.event_type.c.id))
        self.types: dict[str, int] = dict(rows.all())
        self.items: list[tuple[str, int, ItemAt]] = []
        """Type, hash and item of all that a reader may want, in order."""

    def put(self, envelopes: Sequence[MadeEnvelope]) -> None:
        head = read_head(self.connection)
        ids = put_log(self.connection, [[self.graphs[event.type_name] for event in each.events] for each in envelopes])
        for position, (envelope_id, made) in enumerate(zip(ids, envelopes, strict=True), head + 1):
            self._finish(position, envelope_id, made)

    def _finish(self, position: int, envelope_id: uuid.UUID, made: MadeEnvelope) -> None:
        envelope, event = model.envelope, model.event
        values: dict[str, object] = {"ordering_key": made.ordering_key}
        if made.gone == "pruned":
            values["pruned_at"] = NOW
        if made.gone == "role":
            values["origin_id"] = uuid.uuid4()
            role_id = self.connection.execute(sa.select(model.role.c.id).limit(1)).scalar_one()
            named = {"envelope_id": envelope_id, "role_id": role_id}
            self.connection.execute(sa.insert(model.envelope_role).values(named))
        self.connection.execute(sa.update(envelope).where(envelope.c.id == envelope_id).values(values))
        rows = self.connection.execute(
            sa.select(event.c.id).where(event.c.envelope_id == envelope_id).order_by(event.c.number)
        )
        size = 0
        for index, (event_id, made_event) in enumerate(zip(rows.scalars().all(), made.events, strict=True)):
            hashed = ring_hash(made_event.partition_key, made.ordering_key, str(event_id))
            items = self._put_segments(event_id, made_event)
            size += len(pack_items(items))
            if not made.gone:
                places = [(Place(position, index, item), data) for item, data in enumerate(items)]
                self.items += [(made_event.type_name, hashed, found) for found in places]

        self.connection.execute(sa.update(envelope).where(envelope.c.id == envelope_id).values(bytes=size))

    def _put_segments(self, event_id: uuid.UUID, made: MadeEvent) -> list[bytes]:
        items: list[bytes] = []
        for of_segment in made.segments:
            row = {"event_id": event_id, "first_index": len(items), "items": len(of_segment)}
            data = pack_items(of_segment)
            self.connection.execute(sa.insert(model.segment).values(**row, data=data, hash=sha256(data).digest()))
            items += of_segment
        about = {"items": len(items), "partition_key": made.partition_key}
        self.connection.execute(sa.update(model.event).where(model.event.c.id == event_id).values(about))
        return items

    def type_ids(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset(self.types[name] for name in names)

    def wanted(self, names: Sequence[str], stretches: Sequence[Stretch]) -> list[ItemAt]:
        """What is to be read, as a person would say it."""
        return [
            item
            for name, hashed, item in self.items
            for each in stretches
            if name in names
            and hashed in each
            and each.position <= item[0]
            and (not each.until or item[0] < each.until)
        ]


def items_of(found: Slice) -> list[ItemAt]:
    return [
        (event.facts.place._replace(item=index), item)
        for event in found.events
        for index, item in enumerate(unpack_items(event.data, event.items), event.first_index)
    ]


def walk(
    connection: sa.Connection, types: frozenset[int], stretches: Sequence[Stretch], bounds: SliceBounds
) -> Iterator[tuple[Sequence[Stretch], Slice]]:
    """All slices up to the head of the log, each with the stretches from whose places it was read."""
    lists, head = EventLists(), read_head(connection)
    while min(stretch.position for stretch in stretches) <= Place(head, 2**31):
        found = read_slice(connection, types, stretches, bounds, lists.page)
        yield stretches, found
        stretches = [Stretch(each.first, each.last, max(each.position, found.to)) for each in stretches]


NAMES = st.sampled_from([("notes",), ("fares", "notes"), ("flights",), ("fares", "flights", "notes")])
BOUNDS = st.builds(SliceBounds, st.integers(1, 20), st.integers(1, 2000)) | st.just(MANY)
PLACES = st.builds(Place, st.integers(0, 12), st.integers(0, 3), st.integers(0, 6))


@st.composite
def rings(draw: st.DrawFn) -> list[Stretch]:
    """Stretches beside each other, each at a place of its own; sometimes all of the ring."""
    cuts = sorted(draw(st.sets(st.integers(1, LAST_HASH), max_size=4)))
    edges = [0, *cuts, LAST_HASH + 1]
    return [Stretch(first, end - 1, draw(PLACES | st.just(Place(0)))) for first, end in pairwise(edges)]


EACH = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(st.lists(ENVELOPES, max_size=8), NAMES, rings(), BOUNDS, st.sampled_from([0, 0, 1, BLOCK_POSITIONS + 3]))
@EACH
def test_each_wanted_item_is_read_once_and_in_order(
    engine: sa.Engine,
    envelopes: list[MadeEnvelope],
    names: tuple[str, ...],
    stretches: list[Stretch],
    bounds: SliceBounds,
    filling: int,
) -> None:
    with undone(engine) as connection:
        made = MadeLog(connection)
        made.put(envelopes)
        put_log(connection, [[made.graphs["wishes"]]] * filling)
        made.put(envelopes[:3])
        list_all(connection)
        types = made.type_ids(names)
        slices = list(walk(connection, types, stretches, bounds))

        found = [item for _, each in slices for item in items_of(each)]
        assert found == made.wanted(names, stretches)
        for before, each in slices:
            assert sum(max(event.items, 1) for event in each.events) <= bounds.items
            fixed = [Stretch(s.first, s.last, s.position, max(s.position, each.to)) for s in before]
            again = read_slice(connection, types, fixed, SliceBounds(1, 1))
            assert items_of(again) == items_of(each)
            halves = [half for s in fixed for half in split(s)]
            parts = [items_of(read_slice(connection, types, [half], bounds)) for half in halves]
            assert sorted(item for part in parts for item in part) == items_of(each)


def split(stretch: Stretch) -> list[Stretch]:
    middle = (stretch.first + stretch.last) // 2
    lower = Stretch(stretch.first, middle, stretch.position, stretch.until)
    upper = Stretch(middle + 1, stretch.last, stretch.position, stretch.until)
    return [lower, upper] if middle < stretch.last else [stretch]


@given(st.lists(ENVELOPES, min_size=1, max_size=6), st.lists(st.tuples(PLACES, PLACES), min_size=2, max_size=2))
@EACH
def test_a_merged_range_reads_exactly_what_was_out(
    engine: sa.Engine, envelopes: list[MadeEnvelope], places: list[tuple[Place, Place]]
) -> None:
    middle = LAST_HASH // 2
    (low_a, high_a), (low_b, high_b) = (sorted(pair) for pair in places)
    stretches = [Stretch(0, middle, low_a, high_a), Stretch(middle + 1, LAST_HASH, low_b, high_b)]
    with undone(engine) as connection:
        made = MadeLog(connection)
        made.put(envelopes)
        found = read_slice(connection, made.type_ids(["notes", "fares"]), stretches, SliceBounds(1, 1))
        assert items_of(found) == made.wanted(["notes", "fares"], stretches)
        assert found.to == max(high_a, high_b)


# -- single cases ------------------------------------------------------------------------------------------------------


async def read(journal: Journal, scribe: Scribe, *stretches: Stretch, bounds: SliceBounds = MANY) -> Slice:
    types = frozenset([scribe.catalog.event_types["notes"].id])
    return await journal.read(read_slice, types, stretches or (whole_ring(Place(0)),), bounds)


async def test_a_slice_tells_the_facts_of_each_event(journal: Journal, scribe: Scribe) -> None:
    of_envelope, of_event = pack_headers({"source": "shop"}), pack_headers({"urgent": True})
    tags = EventTags(of_event, "client 7")
    receipt = await scribe.put([b"a", b"b"], ordering_key="k", headers=of_envelope, tags=[tags])
    found = await read(journal, scribe)
    (event,) = found.events
    assert found.to == Place(2)
    assert (event.first_index, event.items, event.data) == (0, 2, pack_items([b"a", b"b"]))
    facts = event.facts
    assert facts.envelope_id == str(receipt.envelope_id)
    assert (facts.type_name, facts.position, facts.event, facts.emitter) == ("notes", 1, 0, "north")
    assert (facts.sealed_at, facts.key) == (NOW, None)
    assert (facts.ordering_key, facts.partition_key) == ("k", "client 7")
    assert (facts.headers, facts.event_headers) == (of_envelope, of_event)


async def test_corrections_for_all_are_laid_over_also_in_repeats(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    receipt = await scribe.put([b"a", b"b", b"c"])
    await journal.write(await scribe.again(receipt.envelope_id))
    first = (await read(journal, scribe)).events[0].facts.event_id
    correct(engine, None, uuid.UUID(first), 1, b"B" * 300)
    correct(engine, scribe.role_id(), uuid.UUID(first), 2, b"of one role only")
    found = [item for _, item in items_of(await read(journal, scribe))]
    assert found == [b"a", b"B" * 300, b"c"] * 2
    (cut,) = (await read(journal, scribe, whole_ring(Place(1, 0, 1)), bounds=SliceBounds(1, 1000))).events
    assert (cut.first_index, unpack_items(cut.data, cut.items)) == (1, [b"B" * 300])


async def test_an_event_without_items_is_read_too(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([], [b"a"])
    one, other = (await read(journal, scribe)).events
    assert (one.items, one.data, other.items) == (0, b"", 1)
    stopped = await read(journal, scribe, bounds=SliceBounds(1, 1000))
    assert (stopped.to, len(stopped.events)) == (Place(1, 1), 1)


async def test_bytes_end_a_slice_between_segments_and_a_large_segment_is_cut(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x" * 998] * 10)
    cut = await read(journal, scribe, bounds=SliceBounds(1000, 4000 + 256))
    assert cut.to == Place(1, 0, 3)
    await scribe.put([b"y"], [b"z" * 998] * 10)
    whole = await read(journal, scribe, whole_ring(Place(2)), bounds=SliceBounds(1000, 4000))
    assert whole.to == Place(2, 1)


async def test_a_place_beyond_the_head_holds_nothing(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    assert await read(journal, scribe, whole_ring(Place(7))) == Slice(Place(7), ends_log=True)
    assert await read(journal, scribe, whole_ring(Place(2))) == Slice(Place(2), ends_log=True)


async def test_items_that_are_missing_are_an_error_and_removed_ones_are_passed(
    journal: Journal, engine: sa.Engine, scribe: Scribe
) -> None:
    await scribe.put([b"a", b"b"])
    await scribe.put([b"c"])
    lists = EventLists()
    types = frozenset([scribe.catalog.event_types["notes"].id])
    await journal.read(lists.page, types, Place(0))
    with engine.begin() as connection:
        event_id = connection.execute(
            sa.select(model.event.c.id).join(model.envelope).where(model.envelope.c.position == 1)
        ).scalar_one()
        remove_segments(connection, [event_id])
    with pytest.raises(JournalError, match="misses items"):
        await journal.read(read_slice, types, [whole_ring(Place(0))], MANY, lists.page)
    with engine.begin() as connection:
        connection.execute(sa.update(model.envelope).where(model.envelope.c.position == 1).values(pruned_at=NOW))
    found = await journal.read(read_slice, types, [whole_ring(Place(0))], MANY, lists.page)
    assert [item for _, item in items_of(found)] == [b"c"]


@pytest.mark.long
async def test_a_rare_type_costs_no_look_at_what_lies_between(journal: Journal, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        made = MadeLog(connection)
        rare = MadeEnvelope((MadeEvent("fares", ((b"x",),)),))
        made.put([rare])
        put_log(connection, [[made.graphs["notes"]]] * (30 * BLOCK_POSITIONS))
        made.put([rare])
        list_all(connection)
    found = await journal.read(read_slice, made.type_ids(["fares"]), [whole_ring(Place(0))], MANY)
    assert items_of(found) == made.wanted(["fares"], [whole_ring(Place(0))])
    assert found.to == Place(30 * BLOCK_POSITIONS + 3)
