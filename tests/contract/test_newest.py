"""What was sealed just now is read in memory: each slice is the one that the database gives."""

import uuid
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.slices import whole_ring
from xbus import model
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.log.tail import LogTail
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, Stretch
from xbus.broker.journal.writes import PutEnvelope, PutEvent, Sealed, SealedEnvelope
from xbus.envelope import EnvelopeHead
from xbus.headers import NO_TAGS, EventTags, pack_headers
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack_items

MANY = SliceBounds(10**6, 10**9)

LONG = 3_600.0
"""Seconds for which an envelope is fresh: longer than any test takes."""


class ReadingJournal:
    """A journal that counts the slices that are read from the database."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.slices = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def read(self, statement: object, *arguments: object) -> object:
        self.slices += statement is read_slice
        return await self._journal.read(statement, *arguments)  # type: ignore[arg-type]


async def types_of(journal: Journal, *names: str) -> frozenset[int]:
    def read(connection: sa.Connection) -> frozenset[int]:
        wanted = sa.select(model.event_type.c.id).where(model.event_type.c.name.in_(names))
        return frozenset(connection.execute(wanted).scalars())

    return await journal.read(read)


def whole(scribe: Scribe, *events: tuple[str, list[bytes], EventTags], **options: Any) -> PutEnvelope:
    """Make an envelope that comes in one call: of each event the type, the items and the tags."""
    puts = []
    for type_name, items, tags in events:
        kind = scribe.catalog.event_types[type_name]
        data = pack_items(items)
        puts.append(PutEvent(uuid.uuid4(), kind.id, kind.name, kind.graph_id, len(items), data, tags=tags))
    return PutEnvelope(uuid.uuid4(), scribe.emitter_id(), puts, NOW, EnvelopeHead(**options))


async def put_some(scribe: Scribe) -> None:
    """Put envelopes of all forms: keys, headers, several events, several items, none, and other types."""
    headers = pack_headers({"trace": "7"})
    write = scribe.journal.write
    await write(whole(scribe, ("notes", [b"a", b"bb", b"ccc"], NO_TAGS)))
    await write(whole(scribe, ("fares", [b"d" * 300], EventTags(headers, "client 7"))))
    await write(whole(scribe, ("notes", [], NO_TAGS), ordering_key="client 7"))
    several = (("notes", [b"e", b"f"], NO_TAGS), ("flights", [b"g"], NO_TAGS), ("notes", [b"h" * 40], NO_TAGS))
    await write(whole(scribe, *several, key="once", headers=headers))
    await write(whole(scribe, ("flights", [b"i" * 70_000, b"k", b"l"], EventTags(headers, None))))
    await write(whole(scribe, ("notes", [b"m"], NO_TAGS)))


@pytest.mark.parametrize("names", [("notes",), ("notes", "fares"), ("flights",)])
async def test_a_slice_in_memory_is_that_of_the_database(
    journal: Journal, scribe: Scribe, names: tuple[str, ...]
) -> None:
    counting = cast(Journal, reading := ReadingJournal(journal))
    log = LogReader(counting, cast(Bell, None), LogTail(fresh_seconds=LONG))
    slices = LogSlices(log)
    await log.refresh()
    await put_some(scribe)
    types = await types_of(journal, *names)
    half = LAST_HASH // 2
    asked = [
        ([whole_ring(Place(position, event, item))], SliceBounds(items, size))
        for position in range(1, 7)
        for event in (0, 1)
        for item in (0, 1)
        for items in (1, 4, 100)
        for size in (1, 600, 10**6)
    ]
    asked += [([Stretch(0, half, Place(1)), Stretch(half + 1, LAST_HASH, Place(4))], MANY)]
    for stretches, bounds in asked:
        found = await slices.read(types, stretches, bounds)
        assert found == await journal.read(read_slice, types, stretches, bounds), (stretches, bounds)
    assert reading.slices == 0


async def test_what_is_read_again_comes_from_the_database(journal: Journal, scribe: Scribe) -> None:
    counting = cast(Journal, reading := ReadingJournal(journal))
    slices = LogSlices(LogReader(counting, cast(Bell, None), LogTail(fresh_seconds=LONG)))
    await put_some(scribe)
    types = await types_of(journal, "notes")
    found = await slices.read(types, [whole_ring(Place(1), Place(4))], MANY)
    assert [event.facts.position for event in found.events] == [1, 3]
    assert reading.slices == 1


async def test_an_envelope_that_came_in_parts_is_read_from_the_database(journal: Journal, scribe: Scribe) -> None:
    counting = cast(Journal, reading := ReadingJournal(journal))
    slices = LogSlices(LogReader(counting, cast(Bell, None), LogTail(fresh_seconds=LONG)))
    await journal.write(whole(scribe, ("notes", [b"a"], NO_TAGS)))
    await scribe.put([b"b"], type_name="notes")
    await journal.write(whole(scribe, ("notes", [b"c"], NO_TAGS)))
    types = await types_of(journal, "notes")
    found = await slices.read(types, [whole_ring(Place(1))], MANY)
    assert [event.facts.position for event in found.events] == [1, 2, 3]
    assert reading.slices == 1
    newest = await slices.read(types, [whole_ring(Place(3))], MANY)
    assert [event.facts.position for event in newest.events] == [3]
    assert reading.slices == 1


async def test_what_is_not_fresh_or_too_much_is_forgotten(journal: Journal, scribe: Scribe) -> None:
    sealed: list[Sealed] = []
    journal.on_sealed(sealed.extend)
    for _ in range(4):
        await journal.write(whole(scribe, ("notes", [b"a"], NO_TAGS)))
    types = await types_of(journal, "notes")
    logins: dict[int, str | None] = {
        cast(PutEnvelope, cast(SealedEnvelope, each).content).emitter_id: "north" for each in sealed
    }
    newest = LogTail(fresh_seconds=1.0, most_fresh=2)

    def read(position: int, now: float) -> Slice | None:
        return newest.slice(types, [whole_ring(Place(position))], MANY, now, logins)

    newest.add(sealed[:1], now=10.0)
    assert read(1, 10.5) is not None
    assert read(1, 11.5) is None
    newest.add(sealed[1:], now=12.0)
    assert [read(position, 12.0) is not None for position in (1, 2, 3, 4, 5)] == [False, False, True, True, False]
    logins.clear()
    assert read(3, 12.0) is None, "nobody knows who sent it"
