"""Envelopes that nodes make: each once, whatever an earlier delivery left, on every database."""

import asyncio
import uuid
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import Scribe
from xbus import model
from xbus.broker.back.chaining.emission import Derivation, Emission, derive
from xbus.broker.back.log import DeliveryNote, RunBatch
from xbus.broker.journal.fsck.content import check_content
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, read_log, read_segments
from xbus.envelope import PLAIN_HEAD
from xbus.errors import JournalError
from xbus.headers import NO_TAGS, EventTags, pack_headers, unpack_headers
from xbus.rpc.codec import pack_items, unpack_items

SOURCE = str(uuid.UUID(int=7))
EVENT, OTHER_EVENT = str(uuid.UUID(int=8)), str(uuid.UUID(int=9))
LARGE = [b"%d" % number + b"x" * 1000 for number in range(200)]


class Node:
    """What a node gets, and what the journal has of it."""

    def __init__(self, journal: Journal, scribe: Scribe) -> None:
        self.journal = journal
        self._scribe = scribe
        self.derivation = derive(SOURCE, scribe.emitter_id(), None, {})

        self.has_space = True

    def emission(self, source_id: str = SOURCE) -> Emission:
        derivation = derive(source_id, self._scribe.emitter_id(), None, {})
        return Emission(self.journal, StandingClock(), derivation, 0.01, lambda: self.has_space)

    async def give(
        self, emission: Emission, items: list[bytes], event_id: str = EVENT, tags: EventTags = NO_TAGS
    ) -> None:
        emission.start_event(event_id, self._scribe.catalog.event_types["notes"], tags)
        for start in range(0, len(items), 50):
            some = items[start : start + 50]
            emission.hold(event_id, RunBatch(0, len(some), pack_items(some), [[index] for index in range(len(some))]))
            await emission.flush()

    async def log(self) -> list[LogEnvelope]:
        return await self.journal.read(read_log, 0, 100)

    async def items(self, envelope: LogEnvelope) -> list[list[bytes]]:
        found = []
        for event in envelope.events:
            segments = await self.journal.read(read_segments, event.segments_id, 0, 10_000_000)
            found.append([item for segment in segments for item in unpack_items(segment.data, segment.items)])
        return found

    def commits(self) -> int:
        """How many groups of writes the journal has committed."""
        return sum(self.journal.commits.writes.counts)

    async def states(self) -> list[str]:
        def read(connection: sa.Connection) -> list[str]:
            return list(connection.execute(sa.select(model.envelope.c.state)).scalars())

        return sorted(await self.journal.read(read))


@pytest.fixture
def node(journal: Journal, scribe: Scribe) -> Node:
    return Node(journal, scribe)


@pytest.mark.parametrize("items", [[b"a", b"b"], LARGE], ids=["small", "large"])
async def test_a_repeat_makes_nothing_more(node: Node, items: list[bytes]) -> None:
    for repeated in (items, items[::-1], LARGE, [b"other"]):
        emission = node.emission()
        await node.give(emission, repeated)
        await emission.seal()
        await emission.stop()

    (made,) = await node.log()
    assert made.envelope_id == node.derivation.envelope_id
    assert made.head.key == SOURCE
    assert await node.items(made) == [items]
    assert await node.states() == ["received"]


@pytest.mark.parametrize("items", [[b"a", b"b"], LARGE], ids=["small", "large"])
async def test_a_full_journal_has_the_envelope_wait_and_loses_nothing(
    node: Node, caplog: pytest.LogCaptureFixture, items: list[bytes]
) -> None:
    node.has_space = False
    emission = node.emission()

    async def emit() -> None:
        await node.give(emission, items)
        await emission.seal()

    async def waits() -> None:
        while "the journal is full" not in caplog.text:
            await asyncio.sleep(0)

    before = node.commits()
    emitting = asyncio.ensure_future(emit())
    await asyncio.wait_for(waits(), 30)
    assert not emitting.done()
    assert (node.commits(), await node.states()) == (before, []), "nothing is written"

    node.has_space = True
    await asyncio.wait_for(emitting, 30)
    (made,) = await node.log()
    assert await node.items(made) == [items]


async def test_a_delivery_that_waits_for_space_can_be_broken_off(node: Node) -> None:
    node.has_space = False
    emission = node.emission()
    giving = asyncio.ensure_future(node.give(emission, [b"a"]))
    await asyncio.sleep(0)
    await emission.stop()
    with pytest.raises(JournalError) as caught:
        await asyncio.wait_for(giving, 30)
    assert caught.value.code == "envelope_stopped"
    assert await node.states() == []


async def test_what_was_broken_off_is_cancelled_and_made_anew(node: Node) -> None:
    left, stopped, sealed = node.emission(), node.emission(), node.emission()
    await node.give(left, LARGE)  # by a back that died
    await node.give(stopped, LARGE)
    await stopped.stop()
    await node.give(sealed, LARGE)
    await sealed.seal()

    (made,) = await node.log()
    assert made.envelope_id == replace(node.derivation, generation=2).envelope_id
    assert await node.items(made) == [LARGE]
    assert await node.states() == ["cancelled", "cancelled", "received"]

    again = node.emission()
    await node.give(again, [b"a"])
    await again.seal()
    assert await node.log() == [made]


async def test_an_event_without_items_makes_none(node: Node) -> None:
    emission = node.emission()
    await node.give(emission, [])
    await node.give(emission, [b"a"], OTHER_EVENT, EventTags(None, "client 7"))
    await emission.seal()
    nothing = Emission(node.journal, StandingClock(), derive(OTHER_EVENT, 1, None, {}), 0.01)
    await node.give(nothing, [])
    await nothing.seal()

    (made,) = await node.log()
    assert [(event.items, event.tags.partition_key) for event in made.events] == [(1, "client 7")]


async def test_several_events_stay_in_their_order(node: Node) -> None:
    emission = node.emission()
    await node.give(emission, [b"first"])
    await node.give(emission, LARGE, OTHER_EVENT)
    await emission.seal()

    (made,) = await node.log()
    assert await node.items(made) == [[b"first"], LARGE]


async def test_the_journal_is_whole(node: Node, engine: sa.Engine) -> None:
    for source, items in ((1, [b"a"]), (2, LARGE)):
        emission = node.emission(str(uuid.UUID(int=source)))
        await node.give(emission, items)
        await emission.seal()

    if engine.url.database != ":memory:":
        with engine.connect() as connection:
            assert [*check_content(connection, lambda rows: None)] == []


async def test_many_small_ones_share_a_commit(node: Node) -> None:
    before = node.commits()
    emissions = [node.emission(str(uuid.uuid4())) for _ in range(50)]
    for emission in emissions:
        await node.give(emission, [b"a"])
    await asyncio.gather(*(emission.seal() for emission in emissions))

    assert len(await node.log()) == 50
    assert (await node.states()).count("received") == 50
    assert node.commits() - before <= 2


@pytest.mark.parametrize(
    ("headers", "correlation_id"), [(None, SOURCE), ({"correlation_id": "import 7", "shard": 1}, "import 7")]
)
def test_headers_and_ordering_key_go_along(headers: dict[str, object] | None, correlation_id: str) -> None:
    note = DeliveryNote("shop", None, "client 7", 3, None, 1)
    packed = pack_headers(headers)
    made = derive(SOURCE, 1, note, {} if packed is None else {"envelope_headers": packed})

    assert made.head.ordering_key == "client 7"
    assert unpack_headers(made.head.headers) == {**(headers or {}), "correlation_id": correlation_id}


def test_headers_that_are_full_stay_as_they_are() -> None:
    full = pack_headers({"text": "x" * 4080})
    assert full is not None
    assert derive(SOURCE, 1, None, {"envelope_headers": full}).head.headers == full


def test_another_generation_has_another_id() -> None:
    made = Derivation(SOURCE, 1, PLAIN_HEAD)
    assert (
        len({made.envelope_id, replace(made, generation=1).envelope_id, replace(made, emitter_id=2).envelope_id}) == 3
    )
