"""The log read with the tail in memory and from the database alone: the same, on every database."""

import asyncio
import uuid
from random import Random
from typing import cast

import pytest

from tests.support.journal import NOW, Scribe, remove_segments
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, read_log
from xbus.broker.journal.writes import Append, PutEnvelope, PutEvent, SealReceipt
from xbus.envelope import EnvelopeHead
from xbus.errors import JournalError
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack_items


def put_of(scribe: Scribe, random: Random) -> PutEnvelope:
    """A whole envelope of up to three events."""
    events = []
    for _ in range(random.randint(1, 3)):
        kind = scribe.catalog.event_types[random.choice(["notes", "flights"])]
        items = [random.randbytes(random.choice([0, 3, 30_000])) for _ in range(random.randint(0, 3))]
        events.append(PutEvent(uuid.uuid4(), kind.id, kind.name, kind.graph_id, len(items), pack_items(items)))
    key = random.choice([None, "key"])
    return PutEnvelope(uuid.uuid4(), scribe.emitter_id(), events, NOW, EnvelopeHead(key))


async def envelopes_of(log: LogReader) -> list[LogEnvelope]:
    found: list[LogEnvelope] = []
    while page := (await log.page(found[-1].position if found else 0, ())).envelopes:
        found += page
    return found


async def contents_of(log: LogReader, envelopes: list[LogEnvelope]) -> list[list[bytes]]:
    """The items of each event, read one by one."""
    return [
        [item async for batch in log.items(event) for _, item in batch.singly()]
        for envelope in envelopes
        for event in envelope.events
    ]


def in_words(small: SmallEnvelope) -> object:
    items = [[single for batch in batches for single in batch.singly()] for batches in small.batches]
    return small.envelope, items, small.size


async def test_it_makes_no_difference_who_sealed_what(journal: Journal, scribe: Scribe) -> None:
    fed = LogReader(journal, cast(Bell, None))
    random = Random(7)
    receipts: list[SealReceipt] = []
    for _ in range(40):
        way = random.choice(["put", "put", "put", "stream", "repeat"])
        if way == "stream":
            items = [random.randbytes(3) for _ in range(random.randint(0, 3))]
            receipts.append(await scribe.put(items, [b"more"], ordering_key=random.choice([None, "key"])))
        elif way == "repeat" and receipts:
            origin = random.choice(receipts)
            receipts.append(await journal.write(await scribe.again(origin.envelope_id)))
        else:
            receipts.append(await journal.write(put_of(scribe, random)))
    bare = LogReader(journal, cast(Bell, None))
    # Behind a repeat the fed one looks too, as when it is rung.
    await asyncio.gather(fed.refresh(), bare.refresh())
    assert fed.head == bare.head == len(receipts)
    from_tail, from_database = await envelopes_of(fed), await envelopes_of(bare)
    assert from_tail == from_database == await journal.read(read_log, 0, 1000)
    assert [envelope.position for envelope in from_tail] == list(range(1, len(receipts) + 1))
    assert await contents_of(fed, from_tail) == await contents_of(bare, from_database)
    small, bare_small = await fed.small(from_tail), await bare.small(from_database)
    assert {position: in_words(each) for position, each in small.items()} == {
        position: in_words(each) for position, each in bare_small.items()
    }
    assert 0 < len(small) <= len(receipts)


async def test_items_that_came_in_parts_are_not_read_back(journal: Journal, scribe: Scribe) -> None:
    fed = LogReader(journal, cast(Bell, None))
    items = [b"%d" % number for number in range(9)]
    await scribe.put(items, [b"more"])
    bare = LogReader(journal, cast(Bell, None))
    await asyncio.gather(fed.refresh(), bare.refresh())
    envelopes = await envelopes_of(fed)
    assert await contents_of(bare, envelopes) == [items, [b"more"]]
    await journal.run(remove_segments)
    assert await contents_of(fed, envelopes) == [items, [b"more"]]
    with pytest.raises(JournalError, match="misses its items"):
        await contents_of(bare, envelopes)


async def test_items_that_could_not_be_stored_are_told_to_nobody(journal: Journal, scribe: Scribe) -> None:
    stored: list[Append] = []
    journal.on_stored(stored.extend)
    with pytest.raises(JournalError):
        await journal.write(Append(uuid.uuid4(), uuid.uuid4(), 0, 1, pack_items([b"of no event"])))
    assert stored == []
    await scribe.put([b"a", b"b"])
    assert sum(append.items for append in stored) == 2
