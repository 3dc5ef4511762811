"""Envelopes of a group: the same in the journal as those that come alone, whoever else is among them."""

import asyncio
import gc
import threading
import uuid
import weakref
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from tests.contract.test_put import AWKWARD, rows_of
from tests.support.faults import Faults, commits_of
from tests.support.journal import NOW, Scribe, keep_busy, looking
from tests.support.postgres import noting_cursor
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus import model
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.writes import Cancel, GroupType, PutEnvelope, PutEvent, PutGroup, SealedGroup, SealReceipt
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.errors import JournalUnavailable
from xbus.headers import NO_TAGS, EventTags, pack_headers
from xbus.rpc.codec import pack_items
from xbus.rpc.deferred import Promise

HEADS = (PLAIN_HEAD, EnvelopeHead(AWKWARD), EnvelopeHead(headers=pack_headers({"shop": "Paris"})))
TAGS = (NO_TAGS, EventTags(None, AWKWARD), EventTags(pack_headers({"schema": "order"}), "client 7"))


def group_type(scribe: Scribe, name: str, *, compress: bool = False) -> GroupType:
    kind = scribe.catalog.event_types[name]
    return GroupType(kind.id, kind.name, kind.hashed_name, kind.graph_id, compress)


def some_group(scribe: Scribe, number: int, random: Random, item_bytes: int = 20) -> PutGroup:
    """A group of awkward envelopes, some of which have a key."""
    types = [
        group_type(scribe, random.choice(["notes", "flights"]), compress=random.random() < 0.2) for _ in range(number)
    ]
    items = [[random.choice([b"x", b'\0\\"{}']) * item_bytes] * random.randint(0, 3) for _ in range(number)]
    heads = [random.choice([*HEADS, EnvelopeHead(key=f"order {random.random()}")]) for _ in range(number)]
    data = [pack_items(each) if each else b"" for each in items]
    tags = [random.choice(TAGS) for _ in range(number)]
    ids, event_ids = ([random.randbytes(16) for _ in range(number)] for _ in range(2))
    counts, size = [*map(len, items)], sum(map(len, data))
    return PutGroup([scribe.emitter_id()] * len(ids), NOW, ids, event_ids, types, counts, data, heads, tags, size)


def alone(group: PutGroup, place: int) -> PutEnvelope:
    """An envelope of a group as it comes alone, with ids of its own."""
    of_type = group.types[place]
    event = PutEvent(
        uuid.uuid4(),
        *(of_type.id, of_type.name, of_type.graph_id, group.items[place], group.data[place]),
        tags=group.tags[place],
        compress=of_type.compress,
    )
    return PutEnvelope(uuid.uuid4(), group.emitter_ids[place], [event], group.at, group.heads[place])


def ids_of(group: PutGroup) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=each) for each in group.envelope_ids]


@pytest.mark.parametrize("item_bytes", [20, 30_000], ids=["small", "large"])
async def test_it_is_kept_as_if_each_came_alone(journal: Journal, scribe: Scribe, item_bytes: int) -> None:
    group = some_group(scribe, 30, Random(7), item_bytes)
    keyless = group.at_places([place for place, head in enumerate(group.heads) if head.key is None])
    sealed = await journal.write(keyless)
    assert (sealed.first, len(sealed.hashes), sealed.taken) == (1, len(keyless), {})
    for place, envelope_id in enumerate(ids_of(keyless)):
        receipt = await journal.write(alone(keyless, place))
        of_group = sealed.receipt(place)
        assert receipt._replace(envelope_id=envelope_id, position=of_group.position) == of_group
        assert await journal.read(rows_of, envelope_id) == await journal.read(rows_of, receipt.envelope_id)


async def test_the_thread_tells_of_it_early_where_nothing_waits_behind_it(journal: Journal, scribe: Scribe) -> None:
    told: list[tuple[str, int]] = []
    random = Random(7)

    def put() -> Promise[SealedGroup]:
        writing: Promise[SealedGroup] = Promise()
        writing.early = lambda sealed: told.append((threading.current_thread().name, sealed.first))
        journal.submit(replace(some_group(scribe, 2, random), heads=[PLAIN_HEAD] * 2), writing)
        return writing

    assert (await put()).first == 1
    assert told == [("journal-broker", 1)]
    first, release = put(), keep_busy(journal)
    last = put()
    await asyncio.sleep(0)  # the end of this turn hands it over
    release.set()
    assert [(await each).first for each in (first, last)] == [3, 5]
    assert told[1:] == [("journal-broker", 5)]


async def test_the_thread_tells_of_none_early_that_is_not_kept(
    journal: Journal, scribe: Scribe, engine: sa.Engine
) -> None:
    told: list[SealedGroup] = []
    writing: Promise[SealedGroup] = Promise()
    writing.early = told.append
    with Faults(engine).before_commit():
        journal.submit(some_group(scribe, 2, Random(7)), writing)
        with pytest.raises(JournalUnavailable):
            await writing
    assert not told


async def test_a_thread_that_rests_keeps_nothing_of_the_last_group(journal: Journal, scribe: Scribe) -> None:
    class Messages(list[str]):
        """Can be referred to weakly."""

    def put() -> tuple[Promise[SealedGroup], "weakref.ref[Messages]"]:
        messages = Messages(["a connection"])
        writing: Promise[SealedGroup] = Promise()
        writing.early = lambda _: messages.append("answered")
        journal.submit(some_group(scribe, 2, Random(7)), writing)
        return writing, weakref.ref(messages)

    writing, messages = put()
    await writing
    del writing
    await eventually(lambda: messages() is None, "the thread has looked around")


FULL_DISK = """
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END
$$;
CREATE TRIGGER full_disk BEFORE INSERT ON envelope EXECUTE FUNCTION fill();
CREATE TRIGGER full_disk BEFORE UPDATE ON writer EXECUTE FUNCTION fill();
"""


async def test_one_for_which_postgresql_has_no_room_is_refused_at_once(store_url: str) -> None:
    """The server has answered, so nobody has to ask what became of the COMMIT."""
    async with Journal(create_engine(store_url), "broker", ask_again_seconds=3600.0) as journal:
        scribe = await Scribe.of(journal)
        with looking(store_url) as connection:
            connection.execute(sa.text(FULL_DISK))
        with pytest.raises(JournalUnavailable, match="No space left on device"):
            group = replace(some_group(scribe, 2, Random(7)), heads=[PLAIN_HEAD] * 2)
            await asyncio.wait_for(journal.write(group), DEADLINE_SECONDS)


async def test_one_without_keys_takes_two_messages_to_postgresql(store_url: str) -> None:
    engine, sent = create_engine(store_url), list[str]()

    @sa.event.listens_for(engine, "connect")
    def note(driver: Any, _: object) -> None:
        driver.cursor_factory = noting_cursor(sent)

    async with Journal(engine, "broker") as journal:
        scribe = await Scribe.of(journal)
        groups = [some_group(scribe, 3, Random(seed)) for seed in range(2)]
        for group in groups:
            await journal.write(replace(group, heads=[PLAIN_HEAD] * 3))
    engine.dispose()
    begins = [place for place, query in enumerate(sent) if query.startswith("BEGIN") or "UPDATE head" in query]
    of_last = sent[begins[-1] :]
    assert len(of_last) == 2
    assert all(part in of_last[1] for part in ("put_envelopes", "put_events", "stamp", "COMMIT"))


async def test_a_key_is_kept_with_its_content(journal: Journal, scribe: Scribe) -> None:
    head = EnvelopeHead(AWKWARD, "order 1", pack_headers({"shop": "Paris"}))
    group = some_group(scribe, 1, Random(7))
    kept = replace(group, heads=[head], tags=[NO_TAGS])
    sealed = await journal.write(kept)
    (row, *_) = await journal.read(rows_of, *ids_of(kept))
    assert (row["ordering_key"], row["idempotency_key"], row["headers"]) == head
    assert row["content_hash"] == row["hash"] == sealed.hashes[0]


async def test_taken_ids_leave_the_others_together(journal: Journal, scribe: Scribe, engine: sa.Engine) -> None:
    random = Random(7)
    before = some_group(scribe, 6, random)
    await journal.write(before)
    group = some_group(scribe, 40, random)
    ids, event_ids = [*group.envelope_ids], [*group.event_ids]
    for place in (0, 17, 39):
        ids[place] = before.envelope_ids[place % 6]
    event_ids[20] = before.event_ids[3]
    mixed = replace(group, envelope_ids=ids, event_ids=event_ids)
    other = some_group(scribe, 5, random)
    commits = commits_of(engine)
    sealed, of_other = await asyncio.gather(journal.write(mixed), journal.write(other))
    assert sealed.taken == dict.fromkeys((0, 17, 20, 39))
    assert of_other.taken == {}
    assert [sealed.first, of_other.first] == [7, 7 + 36]
    assert sealed.group.envelope_ids == [each for place, each in enumerate(ids) if place not in sealed.taken]
    assert await journal.read(read_head) == 6 + 36 + 5
    assert len(commits) <= 1 + 2  # the reads' own


async def test_the_taken_id_of_an_event_leaves_the_others_together(
    journal: Journal, scribe: Scribe, engine: sa.Engine
) -> None:
    random = Random(7)
    before, group = some_group(scribe, 1, random), some_group(scribe, 20, random)
    await journal.write(before)
    commits = commits_of(engine)
    sealed = await journal.write(replace(group, event_ids=[*before.event_ids, *group.event_ids[1:]]))
    assert (sealed.taken, sealed.first, sealed.last) == ({0: None}, 2, 20)
    assert len(commits) == 1


async def test_a_group_whose_ids_are_taken_is_not_kept_by_the_error(journal: Journal, scribe: Scribe) -> None:
    """Its bytes go with the last one who refers to them, not when the collector comes, which counts objects alone."""

    class Data(list[bytes]):
        """Can be referred to weakly."""

    group = some_group(scribe, 4, Random(7))
    await journal.write(group)
    gc.disable()
    try:
        repeated = replace(group, data=Data(group.data))
        data = weakref.ref(repeated.data)
        await journal.write(repeated)
        del repeated
        await journal.write(some_group(scribe, 1, Random(8)))
        assert data() is None
    finally:
        gc.enable()


async def test_a_group_whose_ids_are_all_taken_seals_nothing(journal: Journal, scribe: Scribe) -> None:
    told: list[object] = []
    group = some_group(scribe, 4, Random(7))
    first = await journal.write(group)
    journal.on_sealed(told.append)
    assert (await journal.write(group)).taken == {place: first.receipt(place) for place in range(4)}
    assert await journal.read(read_head) == 4
    assert told == []


@pytest.mark.parametrize("item_bytes", [20, 30_000], ids=["small", "large"])
async def test_exact_repeats_get_their_first_receipts(journal: Journal, scribe: Scribe, item_bytes: int) -> None:
    random = Random(7)
    before, fresh = (some_group(scribe, 20, random, item_bytes) for _ in range(2))
    first = await journal.write(before)
    repeated = [place for place in range(20) if place % 3]
    places = [place if place in repeated else 20 + place for place in range(20)]
    sealed = await journal.write(SealedGroup.joined([first, first._replace(group=fresh)]).group.at_places(places))
    assert sealed.taken == {place: first.receipt(place) for place in repeated}
    assert sealed.first == 21
    assert sealed.group.envelope_ids == [fresh.envelope_ids[place] for place in range(0, 20, 3)]


OTHERWISE: dict[str, Callable[[Scribe, PutGroup], dict[str, Any]]] = {
    "emitter": lambda scribe, _: {"emitter_ids": [scribe.emitter_id("south")]},
    "event": lambda *_: {"event_ids": [uuid.uuid4().bytes]},
    "type": lambda scribe, _: {"types": [group_type(scribe, "flights")]},
    "name of the type": lambda _, group: {"types": [group.types[0]._replace(name="memos")]},
    "items": lambda *_: {"items": [2], "data": [pack_items([b"a", b"b"])]},
    "content": lambda *_: {"data": [pack_items([b"b"])]},
    "headers": lambda _, group: {"heads": [group.heads[0]._replace(headers=pack_headers({"shop": "Rome"}))]},
    "key": lambda _, group: {"heads": [group.heads[0]._replace(key="order 2")]},
    "no key": lambda _, group: {"heads": [group.heads[0]._replace(key=None)]},
    "headers of the event": lambda _, group: {"tags": [group.tags[0]._replace(headers=None)]},
    "partition key": lambda _, group: {"tags": [group.tags[0]._replace(partition_key="client 8")]},
}


def lone(scribe: Scribe) -> PutGroup:
    """A group of one envelope, which has all that an envelope may have."""
    head = EnvelopeHead(AWKWARD, "order 1", pack_headers({"shop": "Paris"}))
    types, data = [group_type(scribe, "notes")], [pack_items([b"a"])]
    return replace(some_group(scribe, 1, Random(7)), types=types, items=[1], data=data, heads=[head], tags=[TAGS[2]])


@pytest.mark.parametrize("what", OTHERWISE)
async def test_what_differs_from_its_first_time_gets_no_receipt(journal: Journal, scribe: Scribe, what: str) -> None:
    group = lone(scribe)
    await journal.write(group)
    assert (await journal.write(replace(group, **OTHERWISE[what](scribe, group)))).taken == {0: None}


async def test_a_repeat_may_have_another_ordering_key(journal: Journal, scribe: Scribe) -> None:
    """As it may where it comes alone."""
    group = lone(scribe)
    first = await journal.write(group)
    other = replace(group, heads=[group.heads[0]._replace(ordering_key="other")])
    assert (await journal.write(other)).taken == {0: first.receipt(0)}


async def test_a_repeat_under_the_new_name_of_its_type_gets_its_receipt(journal: Journal, scribe: Scribe) -> None:
    group = lone(scribe)
    first = await journal.write(group)
    renamed = sa.update(model.event_type).where(model.event_type.c.name == "notes").values(name="memos")
    await journal.run(lambda connection: connection.execute(renamed))
    assert (await journal.write(group)).taken == {0: None}
    again = replace(group, types=[group.types[0]._replace(name="memos")])
    assert (await journal.write(again)).taken == {0: first.receipt(0)}


async def test_an_envelope_whose_removal_has_begun_gives_no_receipt(journal: Journal, scribe: Scribe) -> None:
    group = lone(scribe)
    await journal.write(group)
    begun = sa.update(model.envelope).values(pruned_at=NOW)
    await journal.run(lambda connection: connection.execute(begun))
    assert (await journal.write(group)).taken == {0: None}


@pytest.mark.parametrize("state", ["received", "open", "cancelled", "of two events", "of two segments"])
async def test_an_envelope_that_came_in_parts_gives_its_receipt_if_it_could_have_come_whole(
    journal: Journal, scribe: Scribe, state: str
) -> None:
    (envelope_id, _), items = scribe.start_envelope(), [b"a", b"b"]
    event_id, _ = scribe.start_event(envelope_id)
    for first, run in enumerate([items] if state != "of two segments" else [[b"a"], [b"b"]]):
        await scribe.append(envelope_id, event_id, first, run)
    ended = scribe.end_event(envelope_id, event_id, 2)
    events = 1
    if state == "of two events":
        other_id, _ = scribe.start_event(envelope_id, 2)
        ended, events = scribe.end_event(envelope_id, other_id, 0), 2
    await ended
    receipt: SealReceipt | None = None
    if state == "cancelled":
        await journal.write(Cancel(envelope_id, NOW, "changed its mind"))
    elif state != "open":
        receipt = await scribe.seal(envelope_id, events, 2)
    group = replace(lone(scribe), items=[2], data=[pack_items(items)], heads=[PLAIN_HEAD], tags=[NO_TAGS])
    group = replace(group, envelope_ids=[envelope_id.bytes], event_ids=[event_id.bytes])
    assert (await journal.write(group)).taken == {0: receipt if state == "received" else None}


async def test_it_is_told_as_one(journal: Journal, scribe: Scribe) -> None:
    told: list[object] = []
    journal.on_sealed(told.extend)
    group = some_group(scribe, 9, Random(7))
    sealed = await journal.write(group)
    assert told == [sealed]
    assert isinstance(sealed, SealedGroup)
    assert [sealed.envelope(position).envelope_id for position in range(1, 10)] == ids_of(group)


async def test_a_commit_whose_answer_is_lost_seals_once(journal: Journal, scribe: Scribe, engine: sa.Engine) -> None:
    group = some_group(scribe, 20, Random(7))
    with Faults(engine).after_commit():
        sealed = await journal.write(group)
    assert (sealed.first, len(sealed.hashes)) == (1, 20)
    assert await journal.read(read_head) == 20


async def test_nothing_of_a_group_is_kept_that_was_rolled_back(
    journal: Journal, scribe: Scribe, engine: sa.Engine
) -> None:
    group = some_group(scribe, 20, Random(7))
    with Faults(engine).before_commit(), pytest.raises(JournalUnavailable):
        await journal.write(group)
    assert await journal.read(read_head) == 0
    assert (await journal.write(group)).first == 1
