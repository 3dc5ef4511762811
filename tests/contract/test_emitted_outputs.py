"""What a node emits of a bulk worker's output: the database copies it, once, whatever an earlier delivery left."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.attempts import make_output
from tests.support.clock import StandingClock
from tests.support.journal import Scribe, looking
from xbus import model
from xbus.broker.back.chaining.emission import Emission, derive
from xbus.broker.back.log import RunBatch
from xbus.broker.journal.bulk.outputs import BEGINNING, read_output_page
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.fsck.content import check_content
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, read_log, read_segments
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.envelope import EnvelopeHead
from xbus.errors import JournalError
from xbus.headers import EventTags, pack_headers
from xbus.rpc.codec import pack_items, unpack_items

SOURCE, EVENT = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
PARTS: Sequence[Sequence[Sequence[bytes]]] = (
    [[b"a", b"b"], [], [b"c" * 500]],
    [],
    [[b"%d" % number for number in range(40)], [b"d"]],
)
ITEMS = [item for part in PARTS for segment in part for item in segment]
SEGMENTS = [2, 1, 40, 1]
PAGE_BYTES = 300


class Node:
    """A node that emits notes, behind an output that is ready."""

    def __init__(self, url: str, journal: Journal, scribe: Scribe, attempt_id: uuid.UUID) -> None:
        self.url = url
        self.journal = journal
        self.scribe = scribe
        self.attempt_id = attempt_id
        self.derivation = derive(SOURCE, scribe.emitter_id(), None, {})
        self.may_emit = True

    def emission(self) -> Emission:
        emission = Emission(self.journal, StandingClock(), self.derivation, 0.01, lambda: self.may_emit)
        emission.start_event(EVENT, self.scribe.catalog.event_types["notes"], EventTags(None, "client 7"))
        return emission

    async def pages(self) -> list[OutputPage]:
        found: list[OutputPage] = []
        after = BEGINNING
        while page := await self.journal.read(read_output_page, self.attempt_id, after, PAGE_BYTES):
            found.append(page)
            after = page.last
        return found

    async def emit(self, emission: Emission, pages: int | None = None) -> None:
        """Give it some pages, all where none are named, and then have it seal."""
        for page in (await self.pages())[:pages]:
            await emission.append(EVENT, page)
        if pages is None:
            await emission.seal()

    async def log(self) -> list[LogEnvelope]:
        """What was sealed, behind the event of which the output was made."""
        return (await self.journal.read(read_log, 0, 10))[1:]

    async def segments(self, envelope: LogEnvelope) -> list[list[bytes]]:
        (event,) = envelope.events
        segments = await self.journal.read(read_segments, event.segments_id, 0, 10_000_000)
        return [unpack_items(segment.data, segment.items) for segment in segments]

    async def states(self) -> list[str]:
        envelope = model.envelope.c
        wanted = sa.select(envelope.state).where(envelope.idempotency_key == SOURCE).order_by(envelope.state)
        return await self.journal.read(lambda connection: list(connection.execute(wanted).scalars()))

    def execute(self, statement: sa.Executable) -> None:
        with looking(self.url) as connection:
            connection.execute(statement)

    def faults(self) -> list[object]:
        with connected(self.url) as connection:
            return [*check_content(connection, lambda rows: None)]


@pytest.fixture
async def node(shared_url: str, shared_journal: Journal, shared_scribe: Scribe, event_id: uuid.UUID) -> Node:
    attempt_id = await make_output(shared_journal, shared_scribe, shared_url, event_id, *PARTS)
    return Node(shared_url, shared_journal, shared_scribe, attempt_id)


async def test_an_output_is_emitted_as_it_lies(node: Node) -> None:
    before = node.journal.stored_bytes
    assert len(await node.pages()) == 3
    await node.emit(node.emission())

    (made,) = await node.log()
    (event,) = made.events
    assert (made.envelope_id, made.head.key, event.items) == (node.derivation.envelope_id, SOURCE, len(ITEMS))
    assert event.tags == EventTags(None, "client 7")
    segments = await node.segments(made)
    assert [len(segment) for segment in segments] == SEGMENTS
    assert [item for segment in segments for item in segment] == ITEMS
    assert node.journal.stored_bytes - before == sum(page.data_bytes for page in await node.pages())
    assert node.faults() == []


async def test_headers_and_ordering_key_go_along(node: Node) -> None:
    packed = pack_headers({"correlation_id": "import 7"})
    node.derivation = replace(node.derivation, head=EnvelopeHead("client 7", SOURCE, packed))
    await node.emit(node.emission())

    (made,) = await node.log()
    assert (made.head.headers, made.head.ordering_key) == (packed, "client 7")
    assert node.faults() == []


@pytest.mark.parametrize("pages", [0, 1, 3], ids=["before", "amid", "behind"])
async def test_what_a_crash_left_open_is_cancelled_and_made_anew(node: Node, pages: int) -> None:
    left = node.emission()
    left.hold(EVENT, RunBatch(0, 1, pack_items([b"x" * 100_000])))
    await left.flush()
    await node.emit(left, pages)
    assert await node.states() == ["open"]
    await node.emit(node.emission())

    (made,) = await node.log()
    assert made.envelope_id == replace(node.derivation, generation=1).envelope_id
    assert [item for segment in await node.segments(made) for item in segment] == ITEMS
    assert await node.states() == ["cancelled", "received"]


async def test_a_repeat_after_a_crash_behind_the_seal_changes_nothing(node: Node) -> None:
    await node.emit(node.emission())
    (made,) = await node.log()
    again = node.emission()
    await node.emit(again)
    await again.stop()

    assert await node.log() == [made]
    assert await node.states() == ["received"]


async def test_items_that_were_sent_go_before_and_behind(node: Node) -> None:
    """As below a merge of a bulk worker and another."""
    first, *others = await node.pages()
    emission = node.emission()
    emission.hold(EVENT, RunBatch(0, 1, pack_items([b"first"])))
    await emission.append(EVENT, first)
    emission.hold(EVENT, RunBatch(0, 2, pack_items([b"x", b"y"])))
    for page in others:
        await emission.append(EVENT, page)
    emission.hold(EVENT, RunBatch(0, 1, pack_items([b"last"])))
    await emission.seal()

    (made,) = await node.log()
    found = [item for segment in await node.segments(made) for item in segment]
    assert found == [b"first", *ITEMS[: first.items], b"x", b"y", *ITEMS[first.items :], b"last"]
    assert node.faults() == []


async def test_segments_that_were_removed_meanwhile_are_no_part_of_it(node: Node) -> None:
    first, second, _ = await node.pages()
    emission = node.emission()
    await emission.append(EVENT, first)
    node.execute(sa.delete(model.bulk_segment).where(model.bulk_segment.c.number == 2))
    with pytest.raises(JournalError) as caught:
        await emission.append(EVENT, second)
    assert caught.value.code == "output_lost"
    await emission.stop()

    assert await node.states() == ["cancelled"]


async def test_a_call_that_comes_behind_the_end_of_a_delivery_opens_nothing(node: Node) -> None:
    page, *_ = await node.pages()
    emission = node.emission()
    await emission.stop()
    with pytest.raises(JournalError) as caught:
        await emission.append(EVENT, page)
    assert caught.value.code == "envelope_stopped"
    assert await node.states() == []


async def test_a_full_journal_takes_nothing_until_it_has_room(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    async def waits() -> None:
        while "the journal is full" not in caplog.text:
            await asyncio.sleep(0)

    node.may_emit = False
    emitting = asyncio.ensure_future(node.emit(node.emission()))
    await asyncio.wait_for(waits(), 30)
    assert await node.states() == []

    node.may_emit = True
    await asyncio.wait_for(emitting, 30)
    assert await node.states() == ["received"]
