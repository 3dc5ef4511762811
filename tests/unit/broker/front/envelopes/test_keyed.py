"""Envelopes that their emitter gave a key: sent again by another session, from the middle or after years."""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from tests.support.groups import LIMITS
from tests.support.journal import NOW
from tests.unit.broker.front.conftest import REPLY_SECONDS, Desk
from xbus import model
from xbus.broker.front.envelopes.state import OpenEnvelopeState
from xbus.broker.front.front import Front
from xbus.broker.front.verbs.batches import FrontBatchVerbs
from xbus.broker.front.verbs.emitters import FrontVerbs
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.retention.pruning import PruningStep, prune_cancelled, prune_settled
from xbus.broker.journal.retention.rules import Rule, Rules, Scan
from xbus.broker.journal.writes import ProgressUpdate
from xbus.broker.sessions import Sessions
from xbus.clock import SystemClock
from xbus.errors import Failed, JournalError, JournalUnavailable, Refused
from xbus.ids import Ids, keyed_envelope_id, numbered_event_id
from xbus.rpc.codec import Value, pack_items
from xbus.rpc.messages import EnvelopeOptionsMap

KEY = "invoice 2026-17"
LATER = NOW + timedelta(days=31)


class TwoEmitters(Sessions):
    """Any token is a session of the emitter that it begins with."""

    def __init__(self, emitters: dict[str, int]) -> None:
        self._emitters = emitters

    def owner(self, token: str) -> int:
        return self._emitters[token.split(".")[0]]


class Sender:
    """An emitter's program that sends under a key; each object is a session of its own."""

    def __init__(self, verbs: FrontBatchVerbs, token: str, key: str = KEY) -> None:
        self.verbs = verbs
        self.token = token
        self.options: EnvelopeOptionsMap = {"key": key}
        self.envelope_id = ""

    async def start(self) -> str:
        self.envelope_id = await answered(self.verbs.start_envelope(self.token, "", self.options))
        return self.envelope_id

    def event_id(self, number: int) -> str:
        return str(numbered_event_id(uuid.UUID(self.envelope_id), number))

    async def event(self, number: int = 1, type_name: str = "notes") -> None:
        event_id = self.event_id(number)
        await answered(self.verbs.start_event(self.token, self.envelope_id, event_id, type_name, 0))

    def append_soon(self, first_index: int, *items: bytes, number: int = 1) -> Any:
        event_id, data = self.event_id(number), pack_items(items)
        return self.verbs.send_items(self.token, self.envelope_id, event_id, first_index, len(items), data)

    async def append(self, first_index: int, *items: bytes, number: int = 1) -> int:
        count: int = await answered(self.append_soon(first_index, *items, number=number))
        return count

    def end_event_soon(self, items: int, number: int = 1) -> Any:
        return self.verbs.end_event(self.token, self.envelope_id, self.event_id(number), items)

    def seal_soon(self, events: int = 1) -> Any:
        return self.verbs.end_envelope(self.token, self.envelope_id, events)

    async def finish(self, items: int) -> dict[str, Any]:
        await answered(self.end_event_soon(items))
        receipt: dict[str, Any] = await answered(self.seal_soon())
        return receipt

    async def send(self, *batches: Sequence[bytes]) -> dict[str, Any]:
        await self.start()
        await self.event()
        index = 0
        for batch in batches:
            index = await self.append(index, *batch)
        return await self.finish(index)

    async def put(self, *events: Sequence[bytes]) -> dict[str, Any]:
        listed: list[Value] = [
            [str(uuid.uuid4()), "notes", len(items), pack_items(items) if items else b""] for items in events
        ]
        receipt: dict[str, Any] = await answered(self.verbs.put_envelope(self.token, "", listed, self.options))
        return receipt

    async def cancel(self) -> bool:
        cancelled: bool = await answered(self.verbs.cancel_envelope(self.token, self.envelope_id))
        return cancelled


async def answered(outcome: Any) -> Any:
    return await outcome if hasattr(outcome, "__await__") else outcome


async def code_of(call: Any) -> str:
    with pytest.raises((Refused, Failed)) as caught:
        await call
    return caught.value.code


@pytest.fixture
def verbs(front: Front, north: Desk, south: Desk) -> FrontBatchVerbs:
    sessions = TwoEmitters({"north": north.emitter_id, "south": south.emitter_id})
    return FrontBatchVerbs(front, sessions, LIMITS, 60, REPLY_SECONDS)


@pytest.fixture
def first(verbs: FrontBatchVerbs) -> Sender:
    return Sender(verbs, "north.1")


@pytest.fixture
def second(verbs: FrontBatchVerbs) -> Sender:
    return Sender(verbs, "north.2")


def forget_all(front: Front) -> None:
    """What a restart of the broker leaves in memory."""
    front._envelopes._open.clear()
    front._envelopes._pruned.clear()


async def envelopes(journal: Journal) -> list[tuple[str, str | None]]:
    wanted = sa.select(model.envelope.c.state, model.envelope.c.idempotency_key)
    return await journal.read(lambda connection: [(row[0], row[1]) for row in connection.execute(wanted)])


async def prune(journal: Journal, envelope_id: str) -> None:
    """Remove the content of an envelope, as retention does."""

    def remove(connection: sa.Connection) -> None:
        id_ = uuid.UUID(envelope_id)
        events = sa.select(model.event.c.id).where(model.event.c.envelope_id == id_)
        connection.execute(sa.delete(model.segment).where(model.segment.c.event_id.in_(events)))
        connection.execute(sa.delete(model.event).where(model.event.c.envelope_id == id_))
        connection.execute(sa.update(model.envelope).where(model.envelope.c.id == id_).values(pruned_at=NOW))

    await journal._writer.run(remove)


# -- sealed ------------------------------------------------------------------------------------------------------------


async def test_a_key_makes_the_id_for_its_emitter_alone(verbs: FrontBatchVerbs, north: Desk, journal: Journal) -> None:
    receipt = await Sender(verbs, "north.1").send([b"a"])
    assert receipt["envelope_id"] == str(keyed_envelope_id(north.emitter_id, KEY))
    assert (await Sender(verbs, "south.1").send([b"b"]))["position"] == 2
    assert (await Sender(verbs, "north.1", "another").send([b"c"]))["position"] == 3
    assert await envelopes(journal) == [("received", KEY), ("received", KEY), ("received", "another")]


async def test_the_same_again_gets_the_first_receipt(first: Sender, second: Sender) -> None:
    receipt = await first.send([b"a", b"b"], [b"c"])
    assert await second.send([b"a"], [b"b", b"c"]) == receipt
    assert await second.put([b"a", b"b", b"c"]) == receipt


@pytest.mark.parametrize("batches", [[[b"a", b"x"]], [[b"a"]], [[b"a", b"b", b"c"]], []])
@pytest.mark.parametrize("pruned", [False, True])
async def test_other_content_under_the_key_is_refused_and_nothing_of_it_kept(
    first: Sender, second: Sender, journal: Journal, batches: list[list[bytes]], pruned: bool
) -> None:
    receipt = await first.send([b"a", b"b"])
    if pruned:
        await prune(journal, receipt["envelope_id"])
    assert await code_of(second.send(*batches)) == "key_reused"
    assert await code_of(second.put(*batches or [[]])) == "key_reused"
    assert await code_of(second.put([b"a", b"b"], [b"c"])) == "key_reused"
    assert await code_of(second.cancel()) == "envelope_closed"
    assert await envelopes(journal) == [("received", KEY)]
    assert await second.put([b"a", b"b"]) == receipt


async def test_a_whole_envelope_under_a_key(first: Sender, second: Sender, journal: Journal) -> None:
    receipt = await first.put([b"a", b"b"], [])
    assert await second.put([b"a", b"b"], []) == receipt
    assert await code_of(second.put([b"a"], [])) == "key_reused"
    stored = await journal.read(read_envelope, uuid.UUID(receipt["envelope_id"]))
    assert stored is not None
    assert (stored.head.key, len(stored.content_hash or b"")) == (KEY, 32)


async def test_envelopes_without_a_key_are_not_hashed_twice(north: Desk) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    await north.end_event(envelope_id, event_id)
    await north.seal(envelope_id)
    stored = await north.stored(envelope_id)
    assert stored is not None
    assert (stored.head.key, stored.content_hash) == (None, None)


# -- open --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
async def test_the_newer_session_goes_on_where_the_older_ended(
    first: Sender, second: Sender, front: Front, restarted: bool
) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"a", b"b", b"c")
    if restarted:
        forget_all(front)
    assert await second.start() == first.envelope_id
    await second.event()
    assert await second.append(0, b"a", b"b") == 2
    assert await second.append(2, b"c", b"d") == 4
    receipt = await second.finish(4)
    assert (receipt["position"], receipt["items"]) == (1, 4)
    forget_all(front)
    assert await first.put([b"a", b"b", b"c", b"d"]) == receipt


async def test_the_older_session_is_fenced(first: Sender, second: Sender) -> None:
    await first.start()
    await first.event()
    await second.start()
    assert await code_of(first.append(0, b"a")) == "session_superseded"
    assert await code_of(first.finish(0)) == "session_superseded"
    assert await code_of(first.event()) == "session_superseded"
    assert await code_of(first.cancel()) == "session_superseded"
    await second.event()
    await second.append(0, b"a")
    assert (await second.finish(1))["items"] == 1


async def test_another_emitter_does_not_learn_that_there_is_such_an_envelope(
    first: Sender, verbs: FrontBatchVerbs
) -> None:
    stranger = Sender(verbs, "south.1")
    stranger.envelope_id = await first.start()
    await first.event()
    assert await code_of(stranger.append(0, b"a")) == "envelope_unknown"
    assert await code_of(stranger.event()) == "envelope_unknown"
    assert await code_of(stranger.finish(0)) == "envelope_unknown"
    assert await code_of(stranger.cancel()) == "envelope_unknown"
    assert await first.append(0, b"a") == 1


@pytest.fixture
async def begun(first: Sender, second: Sender) -> Sender:
    """The second session, which has begun to send again what the first one left: an event of two items."""
    await first.start()
    await first.event()
    await first.append(0, b"a", b"b")
    await second.start()
    await second.event()
    return second


async def test_other_content_than_what_is_there_can_not_be_sealed(first: Sender, begun: Sender) -> None:
    differing = begun.append_soon(0, b"a", b"x", b"c")
    ended, sealed = begun.end_event_soon(3), begun.seal_soon()
    assert await code_of(differing) == "content_differs"
    await ended
    assert await code_of(sealed) == "content_differs"
    # Whose content it is goes on all the same.
    await first.start()
    assert await first.append(0, b"a", b"b") == 2


async def left_behind_an_event(first: Sender) -> None:
    """An emitter died when its event, of two items, was ended and the envelope was not."""
    await first.start()
    await first.event()
    await first.append(0, b"a", b"b")
    await answered(first.end_event_soon(2))


async def sent_ahead(sender: Sender, *items: bytes) -> list[str]:
    """Send an envelope of one event without waiting for any answer; the codes of those that were refused."""
    await sender.start()
    await sender.event()
    calls: list[Callable[[], Any]] = [
        lambda: sender.append_soon(0, *items),
        lambda: sender.end_event_soon(len(items)),
        sender.seal_soon,
    ]
    outcomes: list[Any] = []
    for call in calls:
        try:
            outcomes.append(call())
        except Refused as refusal:
            outcomes.append(refusal)
    codes = []
    for outcome in outcomes:
        try:
            if isinstance(outcome, Refused):
                raise outcome
            await answered(outcome)
        except Refused as refusal:
            codes.append(refusal.code)
    return codes


@pytest.mark.parametrize(
    ("items", "codes"),
    [
        ([b"a"], ["count_mismatch", "count_mismatch"]),
        ([b"a", b"b", b"c"], ["content_differs", "count_mismatch", "count_mismatch"]),
    ],
    ids=["fewer", "more"],
)
async def test_a_seal_behind_an_end_that_was_refused_is_refused_too(
    first: Sender, second: Sender, journal: Journal, items: list[bytes], codes: list[str]
) -> None:
    await left_behind_an_event(first)

    assert await sent_ahead(second, *items) == codes
    assert await envelopes(journal) == [("open", KEY)]

    # It may be cancelled, and sent anew.
    assert await second.cancel()
    assert (await second.send(items))["items"] == len(items)


async def test_a_seal_behind_an_event_of_another_type_is_refused(
    first: Sender, second: Sender, journal: Journal
) -> None:
    await left_behind_an_event(first)
    await second.start()
    assert await code_of(second.event(type_name="orders")) == "content_differs"

    assert await code_of(second.finish(2)) == "content_differs"

    await second.event()
    assert (await second.finish(2))["items"] == 2


async def test_a_seal_is_taken_when_what_was_refused_is_sent_right(first: Sender, second: Sender) -> None:
    await left_behind_an_event(first)
    assert await sent_ahead(second, b"a") == ["count_mismatch", "count_mismatch"]

    assert await sent_ahead(second, b"a", b"b") == []


async def test_what_another_session_sent_wrong_does_not_count(verbs: Any, first: Sender, second: Sender) -> None:
    await left_behind_an_event(first)
    assert await sent_ahead(second, b"a", b"b", b"c") == ["content_differs", "count_mismatch", "count_mismatch"]

    assert await sent_ahead(Sender(verbs, "north.3"), b"a", b"b") == []


async def test_who_counted_wrong_may_send_what_is_missing(first: Sender) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"a")
    with pytest.raises(Refused, match="holds 1 items"):
        await answered(first.end_event_soon(2))

    await first.append(1, b"b")

    assert (await first.finish(2))["items"] == 2


async def test_a_cancelled_key_may_be_used_again(first: Sender, second: Sender, north: Desk, journal: Journal) -> None:
    for _ in range(2):
        await first.start()
        await first.event()
        await first.append(0, b"other")
        cancelled = first.verbs.cancel_envelope(first.token, first.envelope_id)
        await second.start()
        assert await answered(cancelled) is True
        await prune(journal, first.envelope_id)
    receipt = await second.send([b"a"])
    assert receipt["envelope_id"] == str(keyed_envelope_id(north.emitter_id, KEY, 2))
    assert await first.put([b"a"]) == receipt
    assert [state for state, _ in await envelopes(journal)] == ["cancelled", "cancelled", "received"]


async def test_whoever_begins_at_the_same_time_sends_one_envelope(verbs: FrontBatchVerbs, journal: Journal) -> None:
    senders = [Sender(verbs, f"north.{number}") for number in range(3)]
    starts = [verbs.start_envelope(sender.token, "", sender.options) for sender in senders]
    assert len({await answered(start) for start in starts}) == 1
    assert len(await envelopes(journal)) == 1


async def test_events_have_the_ids_of_their_numbers(first: Sender) -> None:
    await first.start()
    assert await code_of(first.event(2)) == "wrong_arguments"
    await first.event(1)
    await first.event(2)


async def test_an_id_that_another_took_is_told(first: Sender, north: Desk) -> None:
    await north.start_envelope(keyed_envelope_id(north.emitter_id, KEY))
    assert await code_of(first.start()) == "key_reused"


async def test_after_a_failed_write_it_goes_on(first: Sender, faults: Any) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"a")
    with faults.before_commit():
        with pytest.raises((Failed, JournalError)):
            await first.append(1, b"b")
    assert await first.append(1, b"b") == 2
    receipt = await first.finish(2)
    assert receipt == await first.put([b"a", b"b"])


# -- long ago ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def pruned(first: Sender, journal: Journal) -> dict[str, Any]:
    receipt = await first.send([b"a", b"b"], [b"c"])
    await prune(journal, receipt["envelope_id"])
    return receipt


async def test_what_was_removed_is_compared_by_its_hash(pruned: dict[str, Any], second: Sender, verbs: Any) -> None:
    assert await second.send([b"a"], [b"b", b"c"]) == pruned
    assert await second.send([b"a", b"b", b"c"]) == pruned
    assert await second.put([b"a", b"b", b"c"]) == pruned
    await second.start()
    await second.event()
    assert await second.append(0, b"a", b"b") == 2
    assert await second.append(0, b"a", b"b") == 2, "a call made again"
    assert await second.append(1, b"b", b"c") == 3
    assert await second.finish(3) == pruned
    assert await answered(second.seal_soon()) == pruned, "a call made again"


async def test_what_was_removed_is_compared_from_its_beginning(
    pruned: dict[str, Any], first: Sender, second: Sender
) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"other")
    assert await second.send([b"a", b"b", b"c"]) == pruned
    await second.start()
    await second.event()
    assert await code_of(second.append(1, b"b")) == "key_reused"
    assert await code_of(answered(second.seal_soon())) == "event_open"


# -- the hash ----------------------------------------------------------------------------------------------------------


@given(items=st.lists(st.binary(max_size=300), max_size=12), cuts=st.sets(st.integers(1, 11)))
def test_the_content_hash_does_not_tell_how_it_was_cut(items: list[bytes], cuts: set[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(items)), len(items)]
    batches = [items[start:end] for start, end in itertools.pairwise(edges)]
    assert hash_of([batches, [[b"x"]]]) == hash_of([[items], [[b"x"]]])


@given(
    one=st.lists(st.lists(st.binary(max_size=3), max_size=3), max_size=3),
    other=st.lists(st.lists(st.binary(max_size=3), max_size=3), max_size=3),
)
def test_the_content_hash_tells_content_apart(one: list[list[bytes]], other: list[list[bytes]]) -> None:
    assert (hash_of([[items] for items in one]) == hash_of([[items] for items in other])) == (one == other)


def hash_of(events: Sequence[Sequence[Sequence[bytes]]]) -> bytes | None:
    """The hash of an envelope whose events came in these batches."""
    envelope = OpenEnvelopeState(uuid.UUID(int=1), 1, key=KEY)
    for number, batches in enumerate(events, start=1):
        event = envelope.start_event(numbered_event_id(envelope.envelope_id, number), "notes", "notes")
        for batch in batches:
            if batch:
                envelope.take(event, len(batch), pack_items(batch), LIMITS)
    return envelope.content_hash


async def test_the_content_hash_is_the_hash_of_what_is_one_segment_for_each_event(
    first: Sender, journal: Journal
) -> None:
    receipt = await first.put([b"a", b"b"], [], [b"c"])
    stored = await journal.read(read_envelope, uuid.UUID(receipt["envelope_id"]))
    assert stored is not None
    assert stored.content_hash == receipt["hash"]


async def test_what_could_not_be_compared_is_not_sealed_before_it_was(
    first: Sender, second: Sender, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"a")
    await second.start()
    await second.event()
    with monkeypatch.context() as patched:

        async def away(*args: Any) -> Any:
            raise JournalUnavailable("the database went away")

        patched.setattr(journal, "read", away)
        comparing, ended, sealed = second.append_soon(0, b"a"), second.end_event_soon(1), second.seal_soon()
        assert await code_of(comparing) == "journal_unavailable"
        assert await code_of(sealed) == "journal_unavailable"
        await ended
    assert await second.append(0, b"a") == 1
    assert (await second.finish(1))["items"] == 1


async def test_what_could_not_be_compared_is_not_sealed_because_another_batch_was(
    begun: Sender, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any) -> Any:
        raise JournalUnavailable("the database went away")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "read", away)
        assert await code_of(begun.append_soon(0, b"x")) == "journal_unavailable"

    assert await begun.append(1, b"b") == 2
    assert await code_of(begun.finish(2)) == "journal_unavailable"

    assert await begun.append(0, b"a") == 1
    assert (await begun.finish(2))["items"] == 2


async def test_a_comparison_that_hangs_counts_no_more_when_the_call_was_made_again(
    begun: Sender, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = asyncio.Event()

    async def hang(*args: Any) -> Any:
        await gone.wait()
        raise JournalUnavailable("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "read", hang)
        hanging = begun.append_soon(0, b"a", b"b")
        await asyncio.sleep(0)  # its reading begins
    assert await begun.append(0, b"a", b"b") == 2
    assert (await begun.finish(2))["items"] == 2

    gone.set()
    assert await code_of(hanging) == "journal_unavailable"


# -- under hostile calls, and what was really removed ------------------------------------------------------------------


@pytest.fixture
def old_verbs(front: Front, north: Desk, south: Desk) -> FrontVerbs:
    sessions = TwoEmitters({"north": north.emitter_id, "south": south.emitter_id})
    return FrontVerbs(front, sessions, Ids(SystemClock()))


async def test_old_calls_of_another_session_are_fenced_too(
    old_verbs: FrontVerbs, first: Sender, second: Sender
) -> None:
    envelope_id = await first.start()
    await first.event()
    await first.append(0, b"a")
    event_id = first.event_id(1)
    assert await answered(old_verbs.send_item(second.token, envelope_id, event_id, b"not mine")) is False
    assert await answered(old_verbs.end_event(second.token, envelope_id, event_id)) == (False, None)
    assert await answered(old_verbs.start_event(second.token, envelope_id, "notes", 0)) == ""
    assert await answered(old_verbs.end_envelope(second.token, envelope_id)) is False
    assert await answered(old_verbs.cancel_envelope(second.token, envelope_id)) is False
    assert (await first.finish(1))["items"] == 1


async def remove_settled(journal: Journal, *, keep_rows: bool = False) -> int:
    """All that was received is settled, and removed as the broker does it."""
    cursors = await journal.read(read_cursors)
    for cursor in cursors.values():
        cursor.settle_range(1, 1000)
    await journal.write(ProgressUpdate(NOW, list(cursors.values())))
    removed = 0
    after: int | None = 0
    while after is not None:

        def step(connection: Any, position: int = after) -> PruningStep:
            return prune_settled(
                connection, journal.name, position, Scan(Rules(Rule(LATER))), LATER, keep_rows=keep_rows
            )

        done = await journal.run(step)
        removed += done.envelopes
        after = done.after
    return removed


@pytest.mark.parametrize("keep_rows", [False, True])
async def test_what_retention_removed_gets_its_receipt(
    first: Sender, second: Sender, journal: Journal, keep_rows: bool
) -> None:
    receipt = await first.send([b"a", b"b"], [b"c"])
    assert await remove_settled(journal, keep_rows=keep_rows) == 1
    assert await second.send([b"a"], [b"b", b"c"]) == receipt
    assert await second.put([b"a", b"b", b"c"]) == receipt
    assert await code_of(second.put([b"a", b"b", b"x"])) == "key_reused"
    assert await code_of(second.put([b"a", b"b", b"c"], [])) == "key_reused"
    assert await code_of(second.send([b"a", b"b"])) == "key_reused"
    assert await first.put([b"a", b"b", b"c"]) == receipt
    # A row that was left goes in its time, and its key stays.
    assert await remove_settled(journal) == int(keep_rows)
    assert await envelopes(journal) == []
    assert await second.put([b"a", b"b", b"c"]) == receipt


async def test_what_was_cancelled_and_removed_leaves_its_key_free(first: Sender, journal: Journal) -> None:
    await first.start()
    await first.event()
    await first.append(0, b"other")
    await first.cancel()
    await journal.run(lambda connection: prune_cancelled(connection, journal.name, LATER, LATER))
    receipt = await first.send([b"a"])
    await remove_settled(journal)
    assert await first.put([b"a"]) == receipt
    assert await code_of(first.put([b"other"])) == "key_reused"


async def test_who_repeats_what_was_removed_is_not_disturbed_by_an_older_session(
    first: Sender, second: Sender, journal: Journal
) -> None:
    receipt = await first.send([b"a", b"b"])
    await remove_settled(journal)
    await first.start()
    await first.event()
    await second.start()
    await second.event()
    assert await code_of(first.append(0, b"x", b"y")) == "session_superseded"
    await second.append(0, b"a", b"b")
    assert await second.finish(2) == receipt
