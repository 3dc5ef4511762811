"""What emitters' calls come to in the journal, and how it is read back: the same on every database."""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_graph
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.reading import digest_segments, read_at, read_head, read_log, read_segments
from xbus.broker.journal.log.segments import content_hash
from xbus.broker.journal.writes import Append, Cancel, EndEvent, Seal, StartEnvelope, StartEvent
from xbus.errors import EventIdTaken, JournalError, JournalUnavailable
from xbus.rpc.codec import pack_items, unpack_items
from xbus.states import EnvelopeState

SIZES = pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
"""A lone small segment may go to the database another way than large ones or many."""

# -- sealing ---------------------------------------------------------------------------------------------------------


async def test_a_seal_gives_the_first_position_and_a_receipt(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a", b"bc"], [])
    assert (receipt.position, receipt.events, receipt.items) == (1, 2, 2)
    assert receipt.data_bytes == len(pack_items([b"a", b"bc"]))
    assert await journal.read(read_head) == 1


async def test_positions_have_no_gap_under_concurrent_seals(journal: Journal, scribe: Scribe) -> None:
    receipts = await asyncio.gather(*(scribe.put([b"%d" % number]) for number in range(50)))
    assert sorted(receipt.position for receipt in receipts) == list(range(1, 51))
    assert await journal.read(read_head) == 50


async def test_an_envelope_that_could_not_be_sealed_leaves_no_gap(journal: Journal, scribe: Scribe) -> None:
    unknown = scribe.seal(uuid.uuid4(), 0, 0)
    good = [scribe.put([b"x"]) for _ in range(3)]
    receipts = await asyncio.gather(*good)
    with pytest.raises(JournalError):
        await unknown
    assert sorted(receipt.position for receipt in receipts) == [1, 2, 3]


async def test_an_open_event_is_not_sealed(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [b"x"])
    with pytest.raises(JournalError, match="still open"):
        await scribe.seal(envelope_id, 1, 1)
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert stored.state is EnvelopeState.OPEN
    assert await journal.read(read_head) == 0


async def test_an_event_with_missing_items_is_not_sealed(scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    scribe.append(envelope_id, event_id, 0, [b"x"])
    await scribe.end_event(envelope_id, event_id, 2)
    with pytest.raises(JournalError, match="holds 1"):
        await scribe.seal(envelope_id, 1, 2)


@pytest.mark.parametrize(("events", "items"), [(0, 0), (2, 1), (1, 2)])
async def test_what_the_journal_holds_must_be_what_was_counted(scribe: Scribe, events: int, items: int) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    scribe.append(envelope_id, event_id, 0, [b"x"])
    await scribe.end_event(envelope_id, event_id, 1)
    with pytest.raises(JournalError, match="does not hold"):
        await scribe.seal(envelope_id, events, items)
    assert (await scribe.seal(envelope_id, 1, 1)).position == 1


async def test_a_sealed_envelope_is_not_sealed_again(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    with pytest.raises(JournalError):
        await scribe.seal(receipt.envelope_id, 1, 1)
    assert await journal.read(read_head) == 1


async def test_an_envelope_without_events_can_be_sealed(scribe: Scribe) -> None:
    receipt = await scribe.put()
    assert (receipt.events, receipt.items, receipt.hash) == (0, 0, content_hash([]))


async def test_the_hash_is_over_types_counts_and_content(scribe: Scribe) -> None:
    first = await scribe.put([b"x", b"y"])
    assert (await scribe.put([b"x", b"y"])).hash == first.hash
    assert (await scribe.put([b"x", b"z"])).hash != first.hash
    assert (await scribe.put([b"x", b"y"], [])).hash != first.hash
    assert (await scribe.put([b"x", b"y"], type_name="flights")).hash != first.hash


# -- cancelling ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_envelope_is_never_sealed(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    await journal.write(Cancel(envelope_id, NOW, "no longer wanted"))
    with pytest.raises(JournalError):
        await scribe.seal(envelope_id, 1, 1)
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert stored.state is EnvelopeState.CANCELLED
    assert stored.receipt is None


async def test_a_sealed_envelope_is_not_cancelled(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    with pytest.raises(JournalError):
        await journal.write(Cancel(receipt.envelope_id, NOW, "too late"))
    stored = await journal.read(read_envelope, receipt.envelope_id)
    assert stored is not None
    assert stored.receipt == receipt


# -- groups ----------------------------------------------------------------------------------------------------------


async def test_a_bad_call_fails_alone(journal: Journal, scribe: Scribe) -> None:
    envelope_id, started = scribe.start_envelope()
    again = journal.write(StartEnvelope(envelope_id, scribe.emitter_id(), NOW))
    receipt = await scribe.put([b"x"])
    await started
    with pytest.raises(JournalError) as caught:
        await again
    assert not isinstance(caught.value, JournalUnavailable)
    assert receipt.items == 1


async def test_an_id_that_an_event_of_another_envelope_has_is_told(journal: Journal, scribe: Scribe) -> None:
    """Also to all that was sent behind it without waiting, and to nobody else."""
    envelope_id, started = scribe.start_envelope()
    event_id, begun = scribe.start_event(envelope_id)
    await asyncio.gather(started, begun)

    other_id, other_started = scribe.start_envelope()
    event_type = scribe.catalog.event_types["notes"]
    taking = journal.write(StartEvent(event_id, other_id, 1, event_type.id, event_type.graph_id, 0))
    behind: list[Awaitable[object]] = [
        taking,
        scribe.append(other_id, event_id, 0, [b"x"]),
        scribe.seal(other_id, 1, 1),
    ]
    appended = scribe.append(envelope_id, event_id, 0, [b"y"])
    for answer in behind:
        with pytest.raises(EventIdTaken, match=str(event_id)):
            await answer
    await asyncio.gather(other_started, appended)
    # Another fault of the same envelope is told as what it is.
    with pytest.raises(JournalError) as caught:
        await scribe.seal(other_id, 7, 7)
    assert not isinstance(caught.value, EventIdTaken)


async def test_nothing_is_taken_behind_a_failure_whose_caller_is_not_told_yet(engine: sa.Engine) -> None:
    """Else items would go into the event of the other envelope, which may be sealed."""
    async with Journal(engine, "broker", max_pending_bytes=1) as journal:
        scribe = await Scribe.of(journal)
        attacked, started = scribe.start_envelope()
        event_id, begun = scribe.start_event(attacked)
        await asyncio.gather(started, begun)
        other_id, other_started = scribe.start_envelope()
        await other_started
        behind: list[asyncio.Future[None]] = []

        def send_on() -> None:
            if not behind:
                behind.append(scribe.append(other_id, event_id, 0, [b"x"]))

        # The writer says that there is room in the same turn of the loop in which it has the failure.
        journal.on_room(send_on)
        event_type = scribe.catalog.event_types["notes"]
        with pytest.raises(EventIdTaken):
            await journal.write(StartEvent(event_id, other_id, 1, event_type.id, event_type.graph_id, 0))
        with pytest.raises(EventIdTaken):
            await behind[0]
        await scribe.append(attacked, event_id, 0, [b"y"])


@SIZES
async def test_items_that_are_there_already_fail_alone(journal: Journal, scribe: Scribe, size: int) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [b"1" * size])
    doubled = scribe.append(envelope_id, event_id, 0, [b"2" * size])
    other = scribe.put([b"x"])
    assert (await other).items == 1
    with pytest.raises(JournalError):
        await doubled
    (segment,) = await journal.read(read_segments, event_id, 0, 1000)
    assert unpack_items(segment.data, 1) == [b"1" * size]


@SIZES
async def test_items_of_no_event_fail_alone(journal: Journal, scribe: Scribe, size: int) -> None:
    lost = scribe.append(uuid.uuid4(), uuid.uuid4(), 0, [b"x" * size])
    receipt = await scribe.put([b"x"])
    with pytest.raises(JournalError):
        await lost
    assert receipt.items == 1


async def test_a_number_that_the_database_can_not_hold_fails_alone(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_type = scribe.catalog.event_types["notes"]
    too_large = journal.write(
        StartEvent(uuid.uuid4(), envelope_id, 1, event_type.id, event_type.graph_id, estimate=2**64 - 1)
    )
    receipt = asyncio.ensure_future(scribe.put([b"x"]))
    async with asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(JournalError):
            await too_large
        assert (await receipt).items == 1


# -- an event's items ------------------------------------------------------------------------------------------------


async def test_an_event_of_another_envelope_takes_nothing(journal: Journal, scribe: Scribe) -> None:
    """An id that was used before must not lead into what others sent, and the new envelope is not sealed without it."""
    sealed = await scribe.put([b"x"])
    stored = await journal.read(read_envelope, sealed.envelope_id)
    assert stored is not None
    used = stored.events[0].event_id
    envelope_id, _ = scribe.start_envelope()
    event_type = scribe.catalog.event_types["notes"]
    calls: list[Awaitable[object]] = [
        journal.write(StartEvent(used, envelope_id, 1, event_type.id, event_type.graph_id, 0)),
        journal.write(Append(envelope_id, used, 0, 1, pack_items([b"y"]))),
        journal.write(Append(envelope_id, used, 1, 1, pack_items([b"z"]))),
        journal.write(EndEvent(envelope_id, used, 2)),
        journal.write(Seal(envelope_id, 1, 2, NOW)),
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, JournalError) for answer in answers)
    segments = await journal.read(read_segments, used, 0, 1000)
    assert [unpack_items(segment.data, segment.items) for segment in segments] == [[b"x"]]


async def test_items_that_came_one_by_one_become_one_segment(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    appends = [scribe.append(envelope_id, event_id, index, [b"%d" % index]) for index in range(20)]
    await asyncio.gather(*appends)
    segments = await journal.read(read_segments, event_id, 0, 1_000_000)
    assert sum(segment.items for segment in segments) == 20
    assert len(segments) < 20
    items = [item for segment in segments for item in unpack_items(segment.data, segment.items)]
    assert items == [b"%d" % index for index in range(20)]


@SIZES
async def test_any_bytes_come_back_as_they_were(journal: Journal, scribe: Scribe, size: int) -> None:
    items = [bytes(range(256)) + b"\\x\\N\t\n" + bytes(size), b"", b"\xff" * size]
    receipt = await scribe.put(items, [b"other"])
    (envelope,) = await journal.read(read_log, 0, 10)
    first, second = envelope.events
    assert [unpack_items(found.data, 3) for found in await journal.read(read_segments, first.event_id, 0, 1)] == [items]
    assert [found.items for found in await journal.read(read_segments, second.event_id, 0, 1)] == [1]
    assert receipt.data_bytes == len(pack_items(items)) + len(pack_items([b"other"]))


async def test_segments_are_read_page_by_page(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    for first_index in range(0, 50, 10):
        await scribe.append(envelope_id, event_id, first_index, [b"x" * 100] * 10)
    pages = []
    index = 0
    while segments := await journal.read(read_segments, event_id, index, 2500):
        pages.append([segment.first_index for segment in segments])
        index = segments[-1].first_index + segments[-1].items
    assert pages == [[0, 10], [20, 30], [40]]


async def test_a_segment_above_the_page_size_comes_alone(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [b"x" * 1000])
    await scribe.append(envelope_id, event_id, 1, [b"y"])
    (segment,) = await journal.read(read_segments, event_id, 0, 10)
    assert (segment.first_index, segment.items, segment.indices) == (0, 1, None)


async def test_reading_from_the_midst_of_a_segment_begins_with_it(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [b"a", b"b", b"c"])
    await scribe.append(envelope_id, event_id, 3, [b"d"])
    segments = await journal.read(read_segments, event_id, 1, 1000)
    assert [segment.first_index for segment in segments] == [0, 3]


async def test_an_event_says_how_much_it_holds_and_whether_items_are_missing(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    whole, _ = scribe.start_event(envelope_id, 1)
    damaged, _ = scribe.start_event(envelope_id, 2, "flights")
    scribe.append(envelope_id, whole, 0, [b"a", b"b"])
    scribe.end_event(envelope_id, whole, 2)
    await scribe.append(envelope_id, damaged, 1, [b"b"])
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    first, second = stored.events
    assert (first.number, first.type_name, first.items, first.data_bytes) == (1, "notes", 2, 6)
    assert (first.damaged, first.ended) == (False, True)
    assert (second.number, second.type_name, second.damaged, second.ended) == (2, "flights", True, False)


async def test_an_envelope_that_is_not_there(journal: Journal) -> None:
    assert await journal.read(read_envelope, uuid.uuid4()) is None


# -- the log ---------------------------------------------------------------------------------------------------------


async def test_the_log_is_read_in_position_order(journal: Journal, scribe: Scribe) -> None:
    receipts = await asyncio.gather(*(scribe.put([b"x"], [b"y"]) for _ in range(10)))
    scribe.start_envelope()
    expected = [receipt.envelope_id for receipt in sorted(receipts, key=lambda receipt: receipt.position)]
    read = await journal.read(read_log, 0, 100)
    assert [envelope.envelope_id for envelope in read] == expected
    assert [envelope.position for envelope in read] == list(range(1, 11))
    assert [envelope.position for envelope in await journal.read(read_log, 3, 4)] == [4, 5, 6, 7]
    assert [envelope.position for envelope in await journal.read(read_at, [9, 2, 77])] == [2, 9]


async def test_events_keep_the_order_in_which_they_were_started(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"], [b"a", b"b"], [b"a", b"b", b"c"])
    (envelope,) = await journal.read(read_log, 0, 10)
    assert [event.items for event in envelope.events] == [1, 2, 3]


async def test_an_event_brings_the_graph_it_was_started_with(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"], type_name="flights")
    (envelope,) = await journal.read(read_log, 0, 10)
    (event,) = envelope.events
    graph = await journal.read(read_graph, event.graph_id)
    assert event.type_name == "flights"
    assert graph.worker_services == {"names"}
    assert graph.nodes["names"].children == ("store",)


async def test_an_envelope_without_events_is_in_the_log_too(journal: Journal, scribe: Scribe) -> None:
    await scribe.put()
    (envelope,) = await journal.read(read_log, 0, 10)
    assert envelope.events == ()


async def test_an_envelope_keeps_its_keys_and_the_hash_of_its_content(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope(ordering_key="client 7", idempotency_key="invoice 17 \u00e9")
    event_id, _ = scribe.start_event(envelope_id)
    scribe.append(envelope_id, event_id, 0, [b"a", b"b"])
    scribe.end_event(envelope_id, event_id, 2)
    await journal.write(Seal(envelope_id, 1, 2, NOW, content_hash=b"\0" * 32))
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert (stored.head.key, stored.content_hash, stored.pruned) == ("invoice 17 \u00e9", b"\0" * 32, False)


async def test_the_data_of_an_event_is_hashed_page_by_page(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    for index in range(5):
        await scribe.append(envelope_id, event_id, index, [b"%d" % index])
    digest, next_index = hashlib.sha256(), 0
    pages = 0
    while (after := await journal.read(digest_segments, event_id, next_index, 5, digest)) is not None:
        next_index, pages = after, pages + 1
    assert (next_index, pages > 1) == (5, True)
    assert digest.digest() == hashlib.sha256(pack_items([b"%d" % index for index in range(5)])).digest()
