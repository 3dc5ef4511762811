"""Headers and partition keys in the journal, on every database: kept as they came, and covered by the hash."""

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from spark_worker.archive.restoring import restore
from spark_worker.archive.run import begun
from tests.contract.test_put import rows_of
from tests.contract.test_replay import send_all
from tests.support.archives import archive
from tests.support.journal import NOW, Scribe, looking, settle_all
from tests.support.parking import log
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.retention.pruning import prune_settled
from xbus.broker.journal.retention.rules import Rule, Rules, Scan
from xbus.broker.journal.writes import PutEnvelope, PutEvent, SealReceipt
from xbus.clock import SystemClock
from xbus.envelope import EnvelopeHead
from xbus.errors import JournalError
from xbus.headers import NO_TAGS, EventTags, pack_headers
from xbus.ids import Ids, keyed_envelope_id
from xbus.rpc.codec import pack_items

OF_ENVELOPE = pack_headers({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "shard": 7})
TAGS = [
    EventTags(pack_headers({"source_time": NOW, "awkward": "a \"key\", {with} \\ all 'signs'"}), 'client "7", {\\}'),
    NO_TAGS,
    EventTags(None, "NULL"),
]
ITEMS = [[b"a", b"bc"], [b"d"], []]


def told(envelope: LogEnvelope) -> tuple[bytes | None, list[EventTags]]:
    return envelope.head.headers, [event.tags for event in envelope.events]


async def put_whole(
    journal: Journal, scribe: Scribe, headers: bytes | None = OF_ENVELOPE, key: str | None = None
) -> SealReceipt:
    kind = scribe.catalog.event_types["notes"]
    puts = [
        PutEvent(uuid.uuid4(), kind.id, kind.name, kind.graph_id, len(items), pack_items(items), tags=tags)
        for items, tags in zip(ITEMS, TAGS, strict=True)
    ]
    head, emitter_id = EnvelopeHead(None, key, headers), scribe.emitter_id()
    envelope_id = uuid.uuid4() if key is None else keyed_envelope_id(emitter_id, key, 0)
    return await journal.write(PutEnvelope(envelope_id, emitter_id, puts, NOW, head))


async def test_they_are_kept_however_an_envelope_comes(journal: Journal, scribe: Scribe) -> None:
    in_parts = await scribe.put(*ITEMS, headers=OF_ENVELOPE, tags=TAGS)
    at_once = await put_whole(journal, scribe)
    assert at_once.hash == in_parts.hash
    assert await journal.read(rows_of, at_once.envelope_id) == await journal.read(rows_of, in_parts.envelope_id)
    for envelope in await log(journal):
        assert told(envelope) == (OF_ENVELOPE, TAGS)
        stored = await journal.read(read_envelope, envelope.envelope_id)
        assert stored is not None
        assert (stored.head.headers, [event.tags for event in stored.events]) == (OF_ENVELOPE, TAGS)


async def test_the_hash_covers_them(journal: Journal, scribe: Scribe) -> None:
    receipts = [
        await scribe.put(*ITEMS),
        await scribe.put(*ITEMS, headers=OF_ENVELOPE),
        await scribe.put(*ITEMS, tags=TAGS),
        await scribe.put(*ITEMS, headers=OF_ENVELOPE, tags=TAGS),
        await scribe.put(*ITEMS, tags=[NO_TAGS, TAGS[0], NO_TAGS]),
        await scribe.put(headers=OF_ENVELOPE),
        await scribe.put(),
    ]
    assert len({receipt.hash for receipt in receipts}) == len(receipts)


async def test_what_comes_again_has_the_same(journal: Journal, scribe: Scribe) -> None:
    first = await scribe.put(*ITEMS, headers=OF_ENVELOPE, tags=TAGS)
    again = await journal.write(await scribe.again(first.envelope_id))
    assert again.hash == first.hash
    assert (await journal.run(send_all)).envelopes == 1
    assert [told(envelope) for envelope in await log(journal)] == [(OF_ENVELOPE, TAGS)] * 3


async def test_a_replay_of_a_part_hashes_what_it_sends(journal: Journal, scribe: Scribe) -> None:
    """An envelope with events of another type: the new one holds less, with the same headers."""
    envelope_id, started = scribe.start_envelope(headers=OF_ENVELOPE)
    answers: list[asyncio.Future[None]] = [started]
    for number, type_name in enumerate(("flights", "notes"), start=1):
        event_id, started = scribe.start_event(envelope_id, number, type_name, TAGS[0])
        answers += [started, scribe.append(envelope_id, event_id, 0, [b"a"])]
        answers.append(scribe.end_event(envelope_id, event_id, 1))
    await asyncio.gather(*answers, scribe.seal(envelope_id, 2, 2, OF_ENVELOPE))
    alone = await scribe.put([b"a"], headers=OF_ENVELOPE, tags=[TAGS[0]])
    await journal.run(send_all)
    part = (await log(journal))[2]
    assert told(part) == (OF_ENVELOPE, [TAGS[0]])
    stored = await journal.read(read_envelope, part.envelope_id)
    assert stored is not None
    assert stored.receipt is not None
    assert bytes(stored.receipt.hash) == alone.hash


async def test_retention_removes_them_with_the_items(journal: Journal, scribe: Scribe) -> None:
    """The key of an envelope stays, with the receipt that its emitter may ask for."""
    receipt = await put_whole(journal, scribe, key="order 17")
    await settle_all(journal, 1)
    await journal.run(prune_settled, "broker", 0, Scan(Rules(Rule(NOW + timedelta(seconds=1)))), NOW, keep_rows=False)
    stored = await journal.read(read_envelope, receipt.envelope_id)
    assert stored is not None
    assert (stored.pruned, stored.events, stored.head.headers) == (True, (), None)
    assert stored.content_hash == receipt.hash


async def fill(url: str) -> list[SealReceipt]:
    """Envelopes with headers and without, all of them delivered."""
    async with Journal.open(url, "broker") as journal:
        scribe = await Scribe.of(journal)
        receipts = [await scribe.put(*ITEMS), await scribe.put(*ITEMS, headers=OF_ENVELOPE, tags=TAGS)]
        receipts.append(await journal.write(await scribe.again(receipts[1].envelope_id)))
        await settle_all(journal, 3)
    return receipts


def restore_all(url: str, *receipts: SealReceipt) -> None:
    with begun(url, SystemClock(), Ids()) as run:
        for receipt in receipts:
            restore(url, run, receipt.envelope_id, SystemClock())


async def test_an_archive_checks_both_versions_of_the_hash(shared_url: str, tmp_path: Path) -> None:
    receipts = await fill(shared_url)
    assert archive(shared_url, tmp_path).envelopes == 3
    restore_all(shared_url, receipts[0], receipts[2])
    async with Journal.open(shared_url, "broker") as journal:
        assert [told(envelope) for envelope in await log(journal)] == [(None, [NO_TAGS] * 3)] + [
            (OF_ENVELOPE, TAGS)
        ] * 2


@pytest.mark.long
@pytest.mark.parametrize("column", [model.envelope.c.headers, model.event.c.headers, model.event.c.partition_key])
async def test_headers_that_were_tampered_with_are_noticed(
    shared_url: str, tmp_path: Path, column: "sa.Column[object]"
) -> None:
    """Before items go into an archive, and when they come back."""
    receipts = await fill(shared_url)
    change = sa.update(column.table).where(column.is_not(None))
    with looking(shared_url) as connection:
        before = connection.execute(sa.select(column.table.c.id, column).where(column.is_not(None))).all()
        connection.execute(change.values({column: None}))
    with pytest.raises(JournalError, match="is not what its receipt says") as error:
        archive(shared_url, tmp_path)
    assert error.value.code == "archive_differs"

    with looking(shared_url) as connection:
        for row_id, value in before:
            connection.execute(sa.update(column.table).where(column.table.c.id == row_id).values({column: value}))
    assert archive(shared_url, tmp_path).envelopes == 3
    with looking(shared_url) as connection:
        connection.execute(change.values({column: None}))
    with pytest.raises(JournalError, match="is not what its receipt says"):
        restore_all(shared_url, receipts[1])
