"""Envelopes that come as a whole: the same in the journal as those that come in parts, on every database."""

import asyncio
import uuid
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.faults import Faults, commits_of
from tests.support.groups import a_front
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_head, read_log, read_segments
from xbus.broker.journal.writes import PutEnvelope, PutEvent, Sealed, SealedEnvelope, SealReceipt
from xbus.envelope import EnvelopeHead
from xbus.errors import EnvelopeIdTaken, EventIdTaken, JournalUnavailable
from xbus.rpc.codec import pack_items
from xbus.rpc.deferred import Promise, awaited

AWKWARD = "a \"key\", {with} \\ all 'signs' NULL and é"

IDS = ("id", "envelope_id", "event_id", "segments_id", "position")
"""Columns in which two envelopes with the same content differ."""


def whole(scribe: Scribe, *events: list[bytes], **options: Any) -> PutEnvelope:
    """A whole envelope of notes, each event with these items."""
    kind = scribe.catalog.event_types["notes"]
    puts = [
        PutEvent(uuid.uuid4(), kind.id, kind.name, kind.graph_id, len(items), pack_items(items)) for items in events
    ]
    return PutEnvelope(uuid.uuid4(), scribe.emitter_id(), puts, NOW, EnvelopeHead(**options))


def rows_of(connection: sa.Connection, envelope_id: uuid.UUID) -> list[dict[str, object]]:
    """All that the tables hold of an envelope, but for what differs from one to the next."""
    of_event = sa.select(model.event.c.id).where(model.event.c.envelope_id == envelope_id)
    statements = (
        sa.select(model.envelope).where(model.envelope.c.id == envelope_id),
        sa.select(model.log_event)
        .where(model.log_event.c.envelope_id == envelope_id)
        .order_by(model.log_event.c.number),
        sa.select(model.log_segment)
        .where(model.log_segment.c.event_id.in_(of_event))
        .order_by(model.log_segment.c.hash),
    )
    rows = [dict(row) for statement in statements for row in connection.execute(statement).mappings()]
    return [{name: value for name, value in row.items() if name not in (*IDS, "estimate")} for row in rows]


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
async def test_it_is_kept_as_if_it_came_in_parts(journal: Journal, scribe: Scribe, size: int) -> None:
    events = [[b"a" * size, b"bc"], [], [b"d\\\0\xff"]]
    in_parts = await scribe.put(*events, ordering_key=AWKWARD)
    at_once = await journal.write(whole(scribe, *events, ordering_key=AWKWARD))
    assert at_once.position == in_parts.position + 1 == 2
    assert at_once._replace(envelope_id=in_parts.envelope_id, position=1) == in_parts
    assert await journal.read(rows_of, at_once.envelope_id) == await journal.read(rows_of, in_parts.envelope_id)


@pytest.mark.parametrize(
    "items",
    [[b"a"], [], [b"a", b"bc", b""], [bytes(1_000)] * 4],
    ids=["one", "none", "three sent ahead", "too large for a row"],
)
async def test_an_old_client_leaves_the_rows_of_a_put(journal: Journal, scribe: Scribe, items: list[bytes]) -> None:
    emitter_id, (old_id, event_id, new_id) = scribe.emitter_id(), [uuid.uuid4() for _ in range(3)]
    async with a_front(journal) as front:
        front.start_envelope(emitter_id, old_id, is_new=True)
        front.start_event(emitter_id, old_id, event_id, "notes", 0)
        # Items that are sent ahead share a commit, and so are one segment.
        sent = [front.append_item(emitter_id, old_id, event_id, item) for item in items]
        ended = front.end_event(emitter_id, old_id, event_id, None)
        assert [await awaited(each) for each in sent] == [*range(1, len(items) + 1)]
        assert (await awaited(ended)).items == len(items)
        old = await awaited(front.end_envelope(emitter_id, old_id, None))
        event = NewEvent(uuid.uuid4(), "notes", len(items), pack_items(items))
        new = await awaited(front.put_envelope(emitter_id, new_id, [event]))
    assert old._replace(envelope_id=new_id, position=2) == new
    assert await journal.read(rows_of, old_id) == await journal.read(rows_of, new_id)


async def test_what_arrived_meanwhile_is_kept_by_one_commit(journal: Journal, scribe: Scribe) -> None:
    puts = [whole(scribe, [b"%d" % number], ordering_key=f"key {number}") for number in range(100)]
    receipts = await asyncio.gather(*map(journal.write, puts))
    assert [receipt.position for receipt in receipts] == list(range(1, 101))
    log = await journal.read(read_log, 0, 200)
    assert [(found.envelope_id, found.head) for found in log] == [(put.envelope_id, put.head) for put in puts]
    (segment,) = await journal.read(read_segments, log[41].events[0].event_id, 0, 1000)
    assert segment.data == puts[41].events[0].data


async def test_those_in_parts_and_whole_ones_keep_their_order(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    answers = [journal.write(whole(scribe)), scribe.seal(envelope_id, 0, 0), journal.write(whole(scribe))]
    assert [receipt.position for receipt in await asyncio.gather(*answers)] == [1, 2, 3]


async def test_a_key_has_its_content_hashed(journal: Journal, scribe: Scribe) -> None:
    receipt = await journal.write(whole(scribe, [b"a"], key="order 1"))
    envelope, *_ = await journal.read(rows_of, receipt.envelope_id)
    assert (envelope["idempotency_key"], envelope["content_hash"]) == ("order 1", receipt.hash)


async def test_a_moment_of_another_time_zone_is_kept_in_utc(journal: Journal, scribe: Scribe) -> None:
    elsewhere = datetime(2020, 2, 29, 23, 0, 0, 1, tzinfo=timezone(timedelta(hours=11)))
    receipt = await journal.write(replace(whole(scribe), at=elsewhere))
    envelope, *_ = await journal.read(rows_of, receipt.envelope_id)
    assert envelope["opened_at"] == envelope["closed_at"] == NOW.replace(microsecond=1)


async def test_an_id_that_is_taken_is_told_to_its_caller_alone(journal: Journal, scribe: Scribe) -> None:
    first = whole(scribe, [b"a"])
    await journal.write(first)
    event_taken = replace(whole(scribe), events=first.events)
    outcomes = await asyncio.gather(
        *map(journal.write, [whole(scribe, [b"b"]), first, event_taken, whole(scribe, [b"c"])]), return_exceptions=True
    )
    assert [type(outcome).__name__ for outcome in outcomes] == [
        *("SealReceipt", EnvelopeIdTaken.__name__, EventIdTaken.__name__, "SealReceipt")
    ]
    assert [found.position for found in await journal.read(read_log, 0, 10)] == [1, 2, 3]
    assert await journal.read(read_head) == 3
    assert (await journal.write(whole(scribe))).position == 4


async def test_those_whose_ids_are_taken_leave_the_others_together(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    before = [whole(scribe, [b"before"]), whole(scribe, [b"too"])]
    await asyncio.gather(*map(journal.write, before))
    puts = [whole(scribe, [b"%d" % number]) for number in range(20)]
    puts[3] = replace(puts[3], envelope_id=before[0].envelope_id)
    puts[17] = replace(puts[17], events=before[1].events)
    puts[18] = before[1]
    stored = journal.stored_bytes
    commits = commits_of(engine)
    outcomes = await asyncio.gather(*map(journal.write, puts), return_exceptions=True)
    assert len(commits) == 1
    kinds = {3: EnvelopeIdTaken, 17: EventIdTaken, 18: EnvelopeIdTaken}
    assert {place: type(each) for place, each in enumerate(outcomes) if type(each) is not SealReceipt} == kinds
    assert [each.position for each in outcomes if type(each) is SealReceipt] == [*range(3, 20)]
    assert journal.stored_bytes - stored == sum(put.size for place, put in enumerate(puts) if place not in kinds)


async def test_the_taken_id_of_an_event_leaves_the_others_together(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    before = whole(scribe, [b"before"])
    await journal.write(before)
    puts = [whole(scribe, [b"%d" % number]) for number in range(20)]
    puts[17] = replace(puts[17], events=before.events)
    commits = commits_of(engine)
    outcomes = await asyncio.gather(*map(journal.write, puts), return_exceptions=True)
    assert len(commits) == 1
    assert [type(each) for each in outcomes] == [SealReceipt] * 17 + [EventIdTaken] + [SealReceipt] * 2


async def test_what_a_commit_sealed_is_told_with_its_content(
    journal: Journal, scribe: Scribe, engine: sa.Engine
) -> None:
    told: list[Sealed] = []
    journal.on_sealed(told.extend)
    envelope_id, _ = scribe.start_envelope()
    put, others = whole(scribe, [b"a"]), whole(scribe, [b"b"])
    receipts = await asyncio.gather(journal.write(put), scribe.seal(envelope_id, 0, 0), journal.write(others))
    assert told == [
        SealedEnvelope(receipts[0], put),
        SealedEnvelope(receipts[1], None),
        SealedEnvelope(receipts[2], others),
    ]
    with Faults(engine).before_commit(), pytest.raises(JournalUnavailable):
        await journal.write(whole(scribe))
    with Faults(engine).after_commit():
        found_out = await journal.write(whole(scribe))
    assert [sealed.receipt for sealed in told[3:]] == [found_out]


async def test_an_emitter_is_answered_before_recipients_are_called(journal: Journal, scribe: Scribe) -> None:
    order: list[str] = []
    journal.on_sealed(lambda _: order.append("told"))
    answer: Promise[SealReceipt] = Promise()
    answer.add_done_callback(lambda _: order.append("answered"))
    journal.submit(whole(scribe), answer)
    await answer
    assert order == ["answered", "told"], "whoever waits for the answer finds the envelope told"


async def test_what_promises_nothing_goes_along_with_what_does(
    journal: Journal, scribe: Scribe, engine: sa.Engine
) -> None:
    commits = commits_of(engine)
    alone = journal.write(whole(scribe), promises=False)
    await journal.write(whole(scribe))
    assert alone.done()
    assert len(commits) == 1
    # Where nothing follows it is written all the same.
    assert (await journal.write(whole(scribe), promises=False)).position == 3
