"""Envelopes of a message: the same answers and the same journal as if each came in a message of its own."""

import asyncio
import logging
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.groups import (
    HEADERS,
    TOKENS,
    WRONG,
    Entry,
    Message,
    a_front,
    all_rows,
    an_intake,
    carried_out,
    entry,
    give,
    keyed,
    messages_of,
    patiently,
    put_one,
    putting,
    some_calls,
    told,
    unplaced,
    without_position,
)
from tests.support.journal import NOW, Scribe, add_small_bus, memory_engine
from tests.unit.broker.front.conftest import Desk
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import not_plain
from xbus.broker.front.envelopes.checks import Throttle
from xbus.broker.front.front import Front
from xbus.broker.front.groups import SPAN_ENVELOPES, GroupIntake, ThrottlingDispatch
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.objects.stowing import ObjectPlace
from xbus.broker.journal.writes import SealedGroup, SendingLimits
from xbus.broker.sessions import Sessions
from xbus.envelope import EnvelopeHead
from xbus.errors import Failed, JournalUnavailable, Refused
from xbus.headers import EventTags
from xbus.ids import numbered_event_id
from xbus.rpc.answering import Answering, Call
from xbus.rpc.codec import pack_items
from xbus.rpc.deferred import Promise
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.frames import decode_reply, encode_request
from xbus.rpc.rests import LARGE_BYTES, Rests


@pytest.fixture
def intake(front: Front) -> GroupIntake:
    return GroupIntake(front, TOKENS, lambda *_: None)


@pytest.fixture
def put(intake: GroupIntake, north: Desk) -> Callable[[list[Entry]], Awaitable[list[Any]]]:
    """Puts entries as ``north`` in one message."""

    async def put(entries: list[Entry]) -> list[Any]:
        return await put_one(intake, north.emitter_id, entries)

    return put


async def test_each_gets_its_receipt(put: Any, journal: Journal) -> None:
    random = Random(7)
    entries = [entry(random, b"%d" % number) for number in range(5)]
    receipts = await put(entries)
    assert [receipt[:2] for receipt in receipts] == [(entries[place][0], place + 1) for place in range(5)]
    assert await journal.read(read_head) == 5
    assert [tuple(each) for each in await put(entries)] == receipts
    assert await journal.read(read_head) == 5


async def test_a_message_has_its_answer_early_if_all_of_it_is_new(intake: GroupIntake, north: Desk) -> None:
    random = Random(7)
    entries = [entry(random, b"%d" % number) for number in range(3)]
    for messages in ([entries[:2], entries[2:]], [entries], [[entries[0], entry(random, b"new")]]):
        putting_them = [Message(north.emitter_id, each) for each in messages]
        answers = await asyncio.gather(*putting(intake, *putting_them))
        early = [[answer] if len(messages) == 2 else [] for answer in answers]
        assert [message.sent_early for message in putting_them] == early


async def test_a_repeated_message_takes_one_transaction_more(put: Any, journal: Journal) -> None:
    random = Random(7)
    entries = [entry(random, b"%d" % number) for number in range(20)]
    receipts = await put(entries)
    before = sum(journal.commits.seconds.counts)
    assert [tuple(each) for each in await put([*entries, entry(random, b"new")])][:20] == receipts
    assert sum(journal.commits.seconds.counts) == before + 1
    assert await journal.read(read_head) == 21


@pytest.mark.parametrize("kind", ["plain", "keyed"])
async def test_a_repeated_message_reads_the_journal_once(put: Any, journal: Journal, kind: str) -> None:
    random = Random(7)
    entries = [keyed(f"order {number}", b"a") if kind == "keyed" else entry(random, b"a") for number in range(100)]
    receipts = await put(entries)
    with reads_of(journal) as reads:
        assert [tuple(each) for each in await put(entries)] == receipts
    assert len(reads) == 1


async def test_one_that_differs_among_repeats_is_looked_up_alone(put: Any, journal: Journal) -> None:
    random = Random(7)
    entries = [entry(random, b"a") for _ in range(100)]
    receipts = await put(entries)
    other = [*entries[50][:4], pack_items([b"b"]), None, None]
    with reads_of(journal) as reads_of_one:
        assert (await put([other]))[0]["code"] == "content_differs"
    with reads_of(journal) as reads:
        again = await put([*entries[:50], other, *entries[51:], entry(random, b"new")])
    assert again.pop(50)["code"] == "content_differs"
    assert [tuple(each) for each in again[:99]] == receipts[:50] + receipts[51:]
    # The id of the event of the new one is asked for beside.
    assert len(reads) == len(reads_of_one) + 1


@contextmanager
def reads_of(journal: Journal) -> Iterator[list[str]]:
    """Collect the statements that read the journal meanwhile."""
    reads: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if statement.startswith("SELECT"):
            reads.append(statement)

    sa.event.listen(journal._engine, "before_cursor_execute", note)
    try:
        yield reads
    finally:
        sa.event.remove(journal._engine, "before_cursor_execute", note)


def answering(*served: object) -> tuple[Answering, list[list[bytes]]]:
    """Verbs that are called over the wire, and the answers that were sent."""
    sent: list[list[bytes]] = []

    def send(call: Call, frames: list[bytes]) -> bool:
        sent.append(frames)
        return True

    return Answering(Dispatch(*served), name="front", send=send, unreadable=lambda *_: None), sent


def called(method: str, *arguments: object) -> Call:
    """A call as it comes over the wire."""
    frames = [b"peer", *map(bytes, encode_request(b"1234", 7, 0.0, method, arguments))]
    return Call(b"peer", frames, sum(map(len, frames)))


async def test_a_caller_without_a_session_is_refused_and_noted_in_the_log(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    def owner(token: str) -> int:
        raise Refused(f"nobody has the token {token}", code="session_unknown")

    intake = GroupIntake(front, cast(Sessions, SimpleNamespace(owner=owner)), lambda *_: None)
    caller, sent = answering(intake)
    with caplog.at_level(logging.INFO):
        caller.take_all([called("xbus.put_envelopes", "nothing", [])])
    (error,) = [decode_reply(frames).error for frames in sent]
    assert error is not None
    assert error.code == "session_unknown"
    (record,) = caplog.records
    assert (record.__dict__["verb"], record.__dict__["code"]) == ("put_envelopes", "session_unknown")


async def test_an_empty_message_is_answered(put: Any) -> None:
    assert await put([]) == []


@pytest.mark.parametrize("fault", WRONG)
async def test_one_that_is_wrong_is_refused_and_the_others_stay(put: Any, journal: Journal, fault: str) -> None:
    random = Random(7)
    entries = [entry(random, b"a"), WRONG[fault](random), entry(random, b"b")]
    first, wrong, last = await put(entries)
    assert [first[1], last[1]] == [1, 2]
    assert (wrong["refused"], wrong["code"]) == (True, fault.partition(":")[0])
    assert await journal.read(read_head) == 2


async def test_a_taken_id_tells_nothing_to_another_emitter(
    put: Any, intake: GroupIntake, north: Desk, south: Desk
) -> None:
    of_north = entry(Random(7), b"secret")
    await put([of_north])
    (answer,) = await put_one(intake, south.emitter_id, [of_north])
    unknown = entry(Random(8), b"x")
    assert isinstance(answer, dict)
    assert answer["code"] == "envelope_unknown"
    assert "secret" not in repr(answer)
    assert unknown[0] not in repr(answer).encode()


async def test_the_taken_id_of_an_event_is_refused_and_the_others_stay(put: Any) -> None:
    random = Random(7)
    first = entry(random, b"a")
    await put([first])
    of_event, fresh = [entry(random, b"b")[0], *first[1:]], entry(random, b"c")
    refused, receipt = await put([of_event, fresh])
    assert told(refused) == (True, "event_id_taken")
    assert receipt[:2] == (fresh[0], 2)


async def test_other_content_under_a_key_is_refused(put: Any) -> None:
    (first,) = await put([keyed("order 1", b"a")])
    again, other, new = await put([keyed("order 1", b"a"), keyed("order 1", b"b"), keyed("order 2", b"b")])
    assert tuple(again) == first
    assert (other["refused"], other["code"]) == (True, "key_reused")
    assert new[1] == 2


async def test_two_of_one_id_in_a_message_are_one_envelope(put: Any, journal: Journal) -> None:
    one = entry(Random(7), b"a")
    first, second = await put([one, one])
    assert tuple(first) == tuple(second)
    assert await journal.read(read_head) == 1


async def test_an_outage_fails_the_message_as_a_whole(put: Any, journal: Journal, faults: Faults) -> None:
    entries = [entry(Random(7), b"a"), entry(Random(8), b"b")]
    with faults.before_commit(), pytest.raises(JournalUnavailable):
        await put(entries)
    assert [receipt[1] for receipt in await put(entries)] == [1, 2]


@pytest.fixture
def put_in_order(intake: GroupIntake, north: Desk) -> Callable[[list[Entry]], Awaitable[list[Any]]]:
    """Puts entries as ``north`` in one message, in order."""

    async def put(entries: list[Entry]) -> list[Any]:
        return await put_one(intake, north.emitter_id, entries, in_order=True)

    return put


@pytest.mark.parametrize("fault", WRONG)
async def test_in_order_none_is_taken_behind_one_that_is_wrong(put_in_order: Any, journal: Journal, fault: str) -> None:
    random = Random(7)
    entries = [entry(random, b"a"), WRONG[fault](random), entry(random, b"b"), entry(random, b"c")]
    first, wrong, *behind = await put_in_order(entries)
    assert first[1] == 1
    assert told(wrong) == (True, fault.partition(":")[0])
    assert [told(each) for each in behind] == [(False, "behind_another")] * 2
    assert await journal.read(read_head) == 1


async def test_in_order_a_limit_of_the_emitter_stops_all(put_in_order: Any, journal: Journal, monkeypatch: Any) -> None:
    entries = [*(entry(Random(seed), b"a") for seed in range(3)), entry(Random(3), b"a", type_name="nothing")]

    def charge(*_: object) -> None:
        raise Failed("too fast", code="slow_down")

    with monkeypatch.context() as patched:
        for name in ("charge", "charge_all"):
            patched.setattr(Throttle, name, charge)
        limited, *behind = await put_in_order(entries)
    assert told(limited) == (False, "slow_down")
    assert [told(each) for each in behind] == [(False, "behind_another")] * 3
    assert [each[1] for each in await put_in_order(entries[:3])] == [1, 2, 3]


async def test_in_order_repeats_get_their_first_receipts_and_new_ones_follow(put_in_order: Any) -> None:
    calls = [keyed(f"order {number}", b"a") for number in range(4)]
    first = await put_in_order(calls[:2])
    again = await put_in_order(calls)
    assert [tuple(each) for each in again[:2]] == first
    assert [each[1] for each in again] == [1, 2, 3, 4]


async def test_large_data_goes_to_the_object_store(sqlite_url: str, tmp_path: Path) -> None:
    random = Random(7)
    with writing(sqlite_url) as connection:
        add_small_bus(connection)
    folder = tmp_path / "objects"
    objects = ObjectPlace(str(folder), 500)
    entries = [entry(random, b"a"), entry(random, b"x" * 600), entry(random, b"b")]
    async with an_intake(create_engine(sqlite_url), objects) as (intake, journal, emitter_id):
        receipts = await put_one(intake, emitter_id, entries)
        data = {bytes(row["event_id"].bytes): row["data"] for row in (await journal.read(all_rows))[2]}
    assert all(isinstance(receipt, tuple) for receipt in receipts)
    assert data[entries[0][1]] == pack_items([b"a"])
    digest = data[entries[1][1]]
    assert (folder / digest.hex()[:2] / digest.hex()).read_bytes() == entries[1][4]


# -- the same calls, cut otherwise -----------------------------------------------------------------------------------


class LoneFront(Front):
    """A front that takes no groups, so that each envelope takes the way of a single call."""

    def may_group(self, *_: object) -> bool:
        raise not_plain()

    def put_group(self, *_: object) -> Promise[SealedGroup]:
        raise not_plain()


Earlier: TypeAlias = dict[str, Entry]
"""Envelopes that came in parts, by what became of them: see ``bring``."""

PLAIN = ("plain", "of south", "in two segments", "with two events", "being removed", "cancelled")
ENDED = (*PLAIN, "keyed", "keyed, in two segments", "keyed, with two events")
ALL = (*ENDED, "under another id", "keyed, being removed", "open", "keyed, open", "keyed, cancelled")
"""A message may carry out two calls with different contents under one id of the last five in either order: the first
goes alone once the group has found the id taken."""


def some_earlier(random: Random, kinds: Sequence[str]) -> Earlier:
    """Make envelopes of two items, for each kind one."""
    items = [b"a", b"b"]
    return {
        kind: keyed(f"order {kind}", *items, headers=random.choice([None, HEADERS]))
        if kind.startswith("keyed")
        else entry(random, *items, tags=random.choice([None, None, [HEADERS, None], [None, "client 7"]]))
        for kind in kinds
    }


async def bring(journal: Journal, earlier: Earlier) -> None:
    """Have envelopes come by single calls to a front that ends then."""
    scribe = await Scribe.of(journal)
    async with a_front(journal) as front:
        for kind, sent in earlier.items():
            desk = Desk(front, journal, scribe.emitter_id("south" if kind == "of south" else "north"))
            await bring_one(desk, kind, sent)
        await journal.read(read_head)


async def bring_one(desk: Desk, kind: str, sent: Entry) -> None:
    """Have an envelope come, and become what its kind says."""
    sent_id, sent_event_id, type_name, _, _, sent_head, sent_tags = sent
    head, tags = EnvelopeHead(*(sent_head or [])), EventTags(*(sent_tags or []))
    if head.key is None:
        envelope_id = await desk.start_envelope(uuid.UUID(bytes=sent_id if kind != "under another id" else bytes(16)))
        event_id, second_id = uuid.UUID(bytes=sent_event_id), uuid.UUID(int=1)
    else:
        envelope_id = await desk.front.start_keyed(desk.emitter_id, b"session", head)
        event_id, second_id = (numbered_event_id(envelope_id, number) for number in (1, 2))
    desk.front.start_event(desk.emitter_id, envelope_id, event_id, type_name, 2, tags)
    for place, run in enumerate([[b"a"], [b"b"]] if "in two segments" in kind else [[b"a", b"b"]]):
        await desk.append(envelope_id, event_id, place, run)
    if "open" in kind:
        return
    if "cancelled" in kind:
        await desk.cancel(envelope_id)
        return
    await desk.end_event(envelope_id, event_id)
    if "with two events" in kind:
        await desk.end_event(envelope_id, await desk.start_event(envelope_id, second_id))
    await desk.seal(envelope_id)
    if "being removed" in kind:
        begun = sa.update(model.envelope).where(model.envelope.c.id == envelope_id).values(pruned_at=NOW)
        await desk.journal.run(lambda connection: connection.execute(begun))


@pytest.mark.parametrize("seed", range(20))
async def test_it_makes_no_difference_how_calls_are_cut_into_messages(seed: int) -> None:
    random = Random(seed)
    earlier = some_earlier(random, ENDED)
    calls = some_calls(random, earlier=[*earlier.values()])
    answers, rows = await carried_out(
        messages_of(calls, "singly", random), prepare=partial(bring, earlier=earlier), kind=LoneFront
    )
    for cut in ("singly", "together", "at random"):
        other_answers, other_rows = await carried_out(
            messages_of(calls, cut, random), prepare=partial(bring, earlier=earlier)
        )
        assert [told(each) for each in other_answers] == [told(each) for each in answers]
        assert other_rows == rows


@pytest.mark.parametrize("seed", range(20))
async def test_repeats_of_whatever_came_earlier_get_the_same_answers_in_a_group(seed: int) -> None:
    random = Random(seed)
    earlier = some_earlier(random, ALL)
    calls = some_calls(random, contested=False, earlier=[*earlier.values()])
    answers, rows = await carried_out(
        messages_of(calls, "singly", random), prepare=partial(bring, earlier=earlier), kind=LoneFront
    )
    other_answers, other_rows = await carried_out([calls], prepare=partial(bring, earlier=earlier))
    ways = [[without_position(told(each)) for each in of_way] for of_way in (other_answers, answers)]
    assert ways[0] == ways[1]
    for of_table, of_other_table in zip(unplaced(rows), unplaced(other_rows), strict=True):
        assert sorted(of_other_table, key=repr) == sorted(of_table, key=repr)


# -- several emitters --------------------------------------------------------------------------------------------------


@pytest.fixture
async def shared(front: Front, north: Desk, south: Desk) -> GroupIntake:
    """An intake by which two emitters have just put, and no time passes."""
    return await shared_by(south, north, front, lambda: 0.0)


async def shared_by(first: Desk, last: Desk, front: Front, now: Callable[[], float]) -> GroupIntake:
    """Make an intake by which two emitters have just put, one behind the other."""
    intake = GroupIntake(front, TOKENS, lambda *_: None, Rests(now))
    for desk in (first, last):
        await put_one(intake, desk.emitter_id, [])
    return intake


async def test_a_long_message_leaves_room_for_the_puts_of_others(shared: GroupIntake, north: Desk, south: Desk) -> None:
    random = Random(7)
    first, second = ([entry(random, b"%d" % number) for number in range(100)] for _ in range(2))
    of_north = putting(shared, *[Message(north.emitter_id, message) for message in (first, second)])
    [[_, position, _]] = await put_one(shared, south.emitter_id, [entry(random, b"x")])
    assert position == 1
    answers: list[Any] = [await each for each in of_north]
    assert [[receipt[0] for receipt in each] for each in answers] == [[e[0] for e in each] for each in (first, second)]
    positions = [receipt[1] for each in answers for receipt in each]
    assert positions == [*range(1, position), *range(position + 1, 202)]


async def test_behind_a_span_its_emitter_rests_for_as_long_as_that_has_taken(
    front: Front, north: Desk, south: Desk
) -> None:
    random = Random(7)
    moment = 0.0
    intake = await shared_by(south, north, front, lambda: moment)
    message = [entry(random, b"x") for _ in range(2 * SPAN_ENVELOPES)]
    (of_north,) = putting(intake, Message(north.emitter_id, message))
    await asyncio.sleep(0)
    moment = 3600.0
    positions = []
    for number in range(5):
        [[_, position, _]] = await put_one(intake, south.emitter_id, [entry(random, b"%d" % number)])
        positions.append(position)
    assert positions == [*range(SPAN_ENVELOPES + 1, SPAN_ENVELOPES + 6)]
    assert not of_north.done()


@pytest.mark.parametrize("is_followed", [True, False])
async def test_behind_a_large_envelope_its_emitter_rests_if_more_of_it_waits(
    front: Front, north: Desk, south: Desk, is_followed: bool
) -> None:
    random = Random(7)
    moment = 0.0
    intake = await shared_by(south, north, front, lambda: moment)
    first, second = (Message(north.emitter_id, [entry(random, b"%d" % number)]) for number in range(2))
    first.size = LARGE_BYTES + 1
    first.is_followed = is_followed
    putting(intake, first)
    await asyncio.sleep(0)
    moment = 3600.0
    await put_one(intake, south.emitter_id, [entry(random, b"x")])
    await first.answered
    putting(intake, second)
    for number in range(5):
        await put_one(intake, south.emitter_id, [entry(random, b"%d" % number)])
    assert second.answered.done() is not is_followed


async def test_what_is_wrong_in_a_span_is_answered_in_its_place(shared: GroupIntake, north: Desk) -> None:
    random = Random(7)
    message = [entry(random, b"x") for _ in range(3 * SPAN_ENVELOPES)]
    message[SPAN_ENVELOPES + 1][2] = "nothing"
    answers = await put_one(shared, north.emitter_id, message)
    assert [place for place, answer in enumerate(answers) if isinstance(answer, dict)] == [SPAN_ENVELOPES + 1]
    assert len(answers) == len(message)


async def test_in_order_no_span_goes_on_behind_one_that_is_wrong(shared: GroupIntake, north: Desk) -> None:
    random = Random(7)
    message = [entry(random, b"x") for _ in range(3 * SPAN_ENVELOPES)]
    message[SPAN_ENVELOPES + 1][2] = "nothing"
    answers = await put_one(shared, north.emitter_id, message, in_order=True)
    codes = [answer["code"] if isinstance(answer, dict) else "" for answer in answers]
    kept = SPAN_ENVELOPES + 1
    assert codes == [*[""] * kept, "unknown_type", *["behind_another"] * (len(message) - kept - 1)]


async def test_an_outage_amid_the_spans_is_told_of_each_envelope(
    journal: Journal, shared: GroupIntake, north: Desk
) -> None:
    random = Random(7)
    message = [entry(random, b"x") for _ in range(SPAN_ENVELOPES + 1)]
    (answered,) = putting(shared, Message(north.emitter_id, message))
    await asyncio.sleep(0)
    await journal.read(read_head)
    with Faults(journal._engine).before_commit():
        answers = await answered
    assert {answer["code"] for answer in answers if isinstance(answer, dict)} == {"journal_unavailable"}
    again: list[Any] = [*await put_one(shared, north.emitter_id, message)]
    assert [receipt[:2] for receipt in again] == [(sent[0], place + 1) for place, sent in enumerate(message)]


async def test_the_puts_of_all_emitters_in_a_turn_of_the_loop_are_one_group(
    journal: Journal, intake: GroupIntake, north: Desk, south: Desk
) -> None:
    sealed: list[Any] = []
    journal.on_sealed(sealed.extend)
    random = Random(7)
    messages = [[entry(random, b"a"), entry(random, b"b")], [entry(random, b"c")], [entry(random, b"d")]]
    desks = [north, south, north]
    calls = [Message(desk.emitter_id, each) for desk, each in zip(desks, messages, strict=True)]
    answers = await asyncio.gather(*putting(intake, *calls))
    assert [receipt[:2] for each in answers for receipt in each] == [
        (sent[0], position) for position, sent in enumerate([each for message in messages for each in message], start=1)
    ]
    (group,) = sealed
    assert group.group.emitter_ids == [desk.emitter_id for desk in (north, north, south, north)]
    rows = (await journal.read(all_rows))[0]
    owners = {row["position"]: row["emitter_id"] for row in rows}
    assert [owners[position] for position in range(1, 5)] == group.group.emitter_ids


async def test_another_call_of_the_turn_is_carried_out_behind_the_puts_before_it(
    journal: Journal, intake: GroupIntake, north: Desk
) -> None:
    """As if each put had been carried out when it was read."""
    pending: list[int] = []

    class Others:
        @verb("look")
        def look(self) -> None:
            pending.append(journal.pending_bytes)

    caller, sent = answering(intake, Others())
    calls = [called("xbus.put_envelopes", str(north.emitter_id), [entry(Random(7), b"a")]), called("look")]
    assert journal.pending_bytes == 0
    caller.take_all(calls)
    assert pending[0] > 0
    await caller.all_answered()
    looked, put = (decode_reply(frames).answer for frames in sent)
    assert (looked, cast(Any, put)[0][1]) == (None, 1)


async def test_calls_in_flight_of_an_emitter_are_bounded_in_a_turn(
    configuration: Configuration, intake: GroupIntake, north: Desk, south: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is counted until it is answered; the calls of others go on."""
    throttle = Throttle(configuration, StandingClock().monotonic)
    limits = SendingLimits(calls_in_flight=1)
    monkeypatch.setattr(throttle, "limits", lambda emitter_id: limits if emitter_id == north.emitter_id else None)
    monkeypatch.setattr(throttle, "bounds_calls", True)
    sessions = cast(Sessions, SimpleNamespace(owner=int, knows=None))
    dispatch = ThrottlingDispatch(intake, sessions=sessions, throttle=throttle, note_error=lambda *_: None)
    random = Random(7)
    for _ in range(2):
        calls = [Message(desk.emitter_id, [entry(random, b"a")]) for desk in (north, north, south)]
        dispatch.call_together(calls, give)
        outcomes = await asyncio.gather(*[call.answered for call in calls], return_exceptions=True)
        assert [isinstance(outcome, list) for outcome in outcomes] == [True, False, True]
        assert cast(Failed, outcomes[1]).code == "slow_down"


@pytest.mark.parametrize("seed", range(10))
async def test_messages_of_a_turn_get_the_same_answers_as_one_after_the_other(seed: int) -> None:
    random = Random(seed)
    messages = messages_of(some_calls(random, contested=False), "at random", random)
    answers, rows = await carried_out(messages)
    async with an_intake(memory_engine()) as (intake, journal, emitter_id):
        put = putting(intake, *[Message(emitter_id, message) for message in messages])
        again: list[Any] = []
        for message, answered in zip(messages, put, strict=True):
            again += await patiently(intake, emitter_id, message, await answered)
        rows_again = await journal.read(all_rows)
    assert [without_position(told(each)) for each in again] == [without_position(told(each)) for each in answers]
    for of_table, of_table_again in zip(unplaced(rows), unplaced(rows_again), strict=True):
        assert sorted(of_table_again, key=repr) == sorted(of_table, key=repr)


async def test_a_limit_of_one_emitter_leaves_the_others_of_its_turn(
    intake: GroupIntake, north: Desk, south: Desk, monkeypatch: Any
) -> None:
    def buckets(_: Throttle, emitter_id: int, *__: int) -> list[Any]:
        if emitter_id == south.emitter_id:
            raise Failed("too fast", code="slow_down")
        return []

    def charge_all(throttle: Throttle, emitter_ids: list[int], *_: object) -> None:
        for emitter_id in emitter_ids:
            buckets(throttle, emitter_id)

    monkeypatch.setattr(Throttle, "_buckets", buckets)
    monkeypatch.setattr(Throttle, "charge_all", charge_all)
    random = Random(7)
    calls = [Message(desk.emitter_id, [entry(random, b"a")]) for desk in (north, south, north)]
    answers = await asyncio.gather(*putting(intake, *calls))
    (first,), (limited,), (last,) = answers
    assert (first[1], last[1]) == (1, 2)
    assert told(limited) == (False, "slow_down")


# -- what it costs ---------------------------------------------------------------------------------------------------

MOST_CALLS_OF_A_GROUP = 200
MOST_CALLS_OF_A_MESSAGE = 3.5
MOST_CALLS_OF_AN_ENVELOPE = 0.5
"""Python calls, of loop and writer, from the message to its answer; they only fall."""


async def calls_of_a_message(envelopes: int, messages: int = 1) -> int:
    """Count the Python functions that are called for messages of so many envelopes, once all is warm."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event == "call"

    async with an_intake(memory_engine()) as (intake, journal, emitter_id):
        random = Random(7)
        first, *others = (
            Message(emitter_id, [entry(random, b"x" * 200) for _ in range(envelopes)]) for _ in range(messages + 1)
        )
        await putting(intake, first)[0]
        await journal.run(lambda connection: sys.setprofile(count))
        sys.setprofile(count)
        try:
            await putting(intake, *others)[-1]
        finally:
            sys.setprofile(None)
    return counted


async def test_a_group_costs_calls_and_its_envelopes_next_to_none() -> None:
    one, hundred = await calls_of_a_message(1), await calls_of_a_message(100)
    assert one <= MOST_CALLS_OF_A_GROUP
    assert (hundred - one) / 99 <= MOST_CALLS_OF_AN_ENVELOPE


async def test_a_further_message_of_a_turn_costs_few_calls() -> None:
    one, hundred = await calls_of_a_message(1), await calls_of_a_message(1, messages=100)
    assert (hundred - one) / 99 <= MOST_CALLS_OF_A_MESSAGE
