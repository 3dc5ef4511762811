"""Bundles at a recipient: one envelope after the other, each committed or rolled back before the next one begins."""

import asyncio
import gc
import os
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.counting import calls_of
from tests.support.waiting import DEADLINE_SECONDS
from xbus.clock import SystemClock
from xbus.errors import Failed, Refused
from xbus.headers import pack_headers
from xbus.loop_turn import LoopTurn
from xbus.recipient import BulkWorker, Consumer, Envelope, Event, Handover, Item, Made, Recipient, Refusal, Worker
from xbus.recipient.api import RecipientApi
from xbus.recipient.calls import AuthorThread, Calls
from xbus.recipient.deliveries import OUTPUT_BYTES, OpenDeliveries, read_bundle, take_all
from xbus.recipient.envelope import checked_notes
from xbus.rpc.codec import Value, pack, pack_items

FAILED = ("recipient_failed", "KeyError: 'client'")


class Store(Consumer):
    """Keeps what it was asked, and does with the items ``refuse``, ``fail`` and ``wait`` what they say."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.waits = threading.Event()
        self.may_go_on = threading.Event()
        self.commit_fails: set[str] = set()
        self.rollback_fails: set[str] = set()
        self.rollback_error: BaseException = KeyError("rollback")
        self.progress: list[Any] = []

    def on_event_start(self, event: Event) -> None:
        self.calls.append(f"start {event.envelope.id}")

    def on_item(self, event: Event, item: Item) -> None:
        self.calls.append(f"item {item.data.decode()}")
        if item.data == b"refuse":
            raise Refusal("too old")
        if item.data == b"fail":
            raise KeyError("client")
        if item.data == b"exit":
            raise SystemExit(1)
        if item.data == b"wait":
            self.waits.set()
            assert self.may_go_on.wait(60)

    def on_event_end(self, event: Event) -> None:
        self.calls.append(f"end {event.envelope.id}")

    def commit(self, envelope: Envelope) -> None:
        self.calls.append(f"commit {envelope.id}")
        if envelope.id in self.commit_fails:
            raise KeyError("client")

    def rollback(self, envelope: Envelope) -> None:
        self.calls.append(f"rollback {envelope.id}")
        if envelope.id in self.rollback_fails:
            raise self.rollback_error


class Bench:
    """A recipient and its API, as they are behind a socket."""

    def __init__(self, author: Recipient) -> None:
        self.author = author
        self.caller = b"\0one"
        self.desk = AuthorThread("author")
        self.api = RecipientApi(author, Calls(author, self.desk), self.desk, SystemClock(), lambda: None)
        self.api.deliveries.way = self
        self.api.get_metadata()

    @property
    def open(self) -> list[str]:
        """The envelopes that heartbeats tell of."""
        return [str(work.get("envelope_id")) for work in self.api.work()]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    made = Bench(store)
    yield made
    store.may_go_on.set()
    made.desk.close()


def event_of(*items: bytes) -> list[Any]:
    return [str(uuid.uuid4()), "notes", [[0, len(items), pack_items(list(items)), None]]]


def whole(envelope_id: str, *items: bytes) -> list[Any]:
    """An envelope of one event with these items, as the wire has it."""
    return [envelope_id, [event_of(*items)]]


def event_id(envelope: list[Any]) -> str:
    found: str = envelope[1][0][0]
    return found


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def test_one_is_committed_before_the_next_begins(bench: Bench, store: Store) -> None:
    several: list[Any] = ["B", [event_of(b"b1", b"b2"), [str(uuid.uuid4()), "notes", []], event_of(b"b3")]]
    assert await bench.api.take_envelopes([whole("A", b"a"), several]) == [(True,), (True,)]
    assert store.calls == [
        *("start A", "item a", "end A", "commit A"),
        *("start B", "item b1", "item b2", "end B", "start B", "end B", "start B", "item b3", "end B", "commit B"),
    ]
    assert bench.open == []
    assert bench.api.deliveries.is_idle


async def test_the_outcome_is_told_in_a_turn_so_that_the_answer_goes_at_its_end() -> None:
    turn = LoopTurn()
    desk = AuthorThread("author", turn)
    are_busy: list[bool] = []
    outcome = desk.give(lambda: "done")
    outcome.add_done_callback(lambda _: are_busy.append(turn.is_busy))
    assert await outcome == "done"
    desk.close()
    assert are_busy == [True]


async def test_who_raises_at_an_outcome_leaves_the_others_alone_and_a_closed_thread_keeps_nothing() -> None:
    gc.collect()  # earlier tests may have left descriptors that go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    desk = AuthorThread("author")
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    bad, good = desk.give(lambda: "bad"), desk.give(lambda: "good")
    bad.add_done_callback(lambda _: [][0])
    assert await good == "good"
    assert told == ["list index out of range"]
    desk.close()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_closed_thread_carries_out_its_jobs_and_tells_each_outcome_once() -> None:
    desk = AuthorThread("author")
    begun, may_go_on = threading.Event(), threading.Event()
    told: list[Any] = []

    def wait() -> str:
        begun.set()
        assert may_go_on.wait(60)
        return "runs"

    outcomes = [desk.give(lambda: "rung"), desk.give(wait), desk.give(lambda: "queued")]
    for outcome in outcomes:
        outcome.add_done_callback(lambda done: told.append(done.result()))
    # The loop does not turn, so nobody hears that the first one is done.
    assert begun.wait(60)
    desk.close()
    may_go_on.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await outcomes[2]
    assert told == ["rung", "runs", "queued"]


def test_a_thread_ends_behind_the_job_during_which_its_loop_was_closed() -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def wait() -> None:
        begun.set()
        assert may_go_on.wait(60)
        ran.append("runs")

    async def begin() -> AuthorThread:
        desk = AuthorThread("author of a closed loop")
        desk.give(wait)
        desk.give(lambda: ran.append("queued"))
        assert begun.wait(60)
        return desk

    desk = asyncio.run(begin())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "author of a closed loop"]
    may_go_on.set()
    thread.join(DEADLINE_SECONDS)
    desk.close()
    assert not thread.is_alive()
    assert ran == ["runs"]


async def test_who_waits_for_the_end_of_all_goes_on_behind_the_last(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait")])
    await until(store.waits.is_set)
    waiting = [asyncio.ensure_future(bench.api.deliveries.idle()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not bench.api.deliveries.is_idle
    store.may_go_on.set()
    await taking
    await asyncio.gather(*waiting)
    assert bench.api.deliveries.is_idle


async def test_an_empty_bundle_is_no_work(bench: Bench, store: Store) -> None:
    assert await bench.api.take_envelopes([]) == []
    assert store.calls == []


async def test_a_refused_one_is_rolled_back_and_the_others_are_committed(bench: Bench, store: Store) -> None:
    bad = whole("B", b"good", b"refuse", b"unseen")
    answers = await bench.api.take_envelopes([whole("A", b"a"), bad, whole("C", b"c")])
    assert answers == [(True,), (False, [([1], "too old")], event_id(bad)), (True,)]
    assert "item unseen" not in store.calls
    assert store.calls[4:] == [
        *("start B", "item good", "item refuse", "rollback B"),
        *("start C", "item c", "end C", "commit C"),
    ]
    assert bench.open == []


async def test_behind_a_failed_one_none_is_begun(bench: Bench, store: Store) -> None:
    bad = whole("B", b"fail")
    answers = await bench.api.take_envelopes([whole("A", b"a"), bad, whole("C", b"c"), whole("D", b"d")])
    assert answers == [(True,), (None, FAILED, event_id(bad)), (), ()]
    assert store.calls[4:] == ["start B", "item fail", "rollback B"]
    assert bench.open == []
    assert await bench.api.take_envelopes([whole("C", b"c"), whole("D", b"d")]) == [(True,), (True,)]


async def test_one_that_would_exit_hides_nothing_of_the_others(bench: Bench, store: Store) -> None:
    bad = whole("B", b"exit")
    answers = await bench.api.take_envelopes([whole("A", b"a"), bad, whole("C", b"c")])
    cause = "the recipient's code raised SystemExit: 1"
    assert answers == [(True,), (None, ("recipient_failed", cause), event_id(bad)), ()]
    assert store.calls[-1] == "rollback B"
    assert bench.open == []


async def test_a_commit_that_raises_is_rolled_back(bench: Bench, store: Store) -> None:
    store.commit_fails = {"A"}
    bad = whole("A", b"a")
    assert await bench.api.take_envelopes([bad, whole("B", b"b")]) == [(None, FAILED, event_id(bad)), ()]
    assert store.calls[-2:] == ["commit A", "rollback A"]
    assert bench.open == []


async def test_a_rollback_that_raises_is_told_to_the_operator_only(
    bench: Bench, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.rollback_fails = {"A"}
    bad = whole("A", b"refuse")
    answers = await bench.api.take_envelopes([bad, whole("B", b"b")])
    assert answers == [(False, [([0], "too old")], event_id(bad)), (True,)]
    assert "rollback_failed" in [getattr(record, "action", "") for record in caplog.records]
    assert bench.open == []


async def test_answers_fit_the_wire(bench: Bench) -> None:
    answers = await bench.api.take_envelopes([whole("A", b"a"), whole("B", b"refuse"), whole("C", b"fail")])
    assert pack(answers)


# -- the items and the notes of each ---------------------------------------------------------------------------------


class Told(Consumer):
    """Keeps what it is told of each item."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.kept: list[int] = []

    def on_item(self, event: Event, item: Item) -> None:
        envelope = event.envelope
        assert event.taken == item.index
        event.state["items"] = envelope.state["items"] = event.state.get("items", 0) + 1
        headers = dict(event.headers)
        self.told.append((envelope.id, event.type_name, item.data, item.indices, headers, envelope.key))

    def commit(self, envelope: Envelope) -> None:
        self.kept.append(envelope.state["items"])


@pytest.fixture
async def told() -> AsyncIterator[Bench]:
    made = Bench(Told())
    yield made
    made.desk.close()


def with_headers(envelope_id: str, *items: bytes) -> list[Any]:
    of_event, of_envelope = pack_headers({"colour": "red"}), pack_headers({"source": "shop", "colour": "blue"})
    event = [*event_of(*items), {"headers": of_event, "envelope_headers": of_envelope}]
    return [envelope_id, [event], ["shop_1", f"key {envelope_id}", None, 7, 1.5, 1]]


SINGLE = [whole("A", b"a"), with_headers("B", b"b"), whole("C", b"c" * 300)]


@pytest.mark.parametrize("more", [[], [whole("D", b"d1", b"d2")]], ids=["single_items", "beside_several"])
async def test_each_is_told_its_own_items_headers_and_note(told: Bench, more: list[Any]) -> None:
    author = told.author
    assert isinstance(author, Told)
    assert set(await told.api.take_envelopes([*SINGLE, *more])) == {(True,)}
    headers = {"colour": "red", "source": "shop"}
    assert author.told[:3] == [
        ("A", "notes", b"a", [0], {}, None),
        ("B", "notes", b"b", [0], headers, "key B"),
        ("C", "notes", b"c" * 300, [0], {}, None),
    ]
    assert [data for _, _, data, *_ in author.told[3:]] == [b"d1", b"d2"][: 2 * len(more)]
    assert author.kept == [1, 1, 1, 2][: 3 + len(more)]


class Filing(Consumer):
    """Saves the only item of an event as if it were a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_event_start(self, event: Event) -> None:
        event.save(self.folder / "saved")

    def on_item(self, event: Event, item: Item) -> None:
        raise AssertionError("items of a file come to no other method")


async def test_an_only_item_goes_into_the_file_that_its_event_saves(tmp_path: Path) -> None:
    filing = Bench(Filing(tmp_path))
    bad = whole("A", b"no file")
    ((is_taken, errors, event),) = await filing.api.take_envelopes([bad])
    filing.desk.close()
    assert (is_taken, event, list(tmp_path.iterdir())) == (False, event_id(bad), [])
    assert "file" in str(errors)


def test_a_further_envelope_of_one_item_costs_few_calls() -> None:
    class Takes(Consumer):
        def on_item(self, event: Event, item: Item) -> None:
            assert item.data == b"a"

    class OwnThread:
        @staticmethod
        def finished(answer: object) -> object:
            return answer

    calls = Calls(Takes(), cast(AuthorThread, OwnThread()))

    def take(count: int) -> int:
        envelopes: list[Value] = [[*whole(str(number), b"a"), NOTE] for number in range(count)]
        deliveries = cast(OpenDeliveries, SimpleNamespace(is_closing=False))
        return calls_of(lambda: take_all(calls, read_bundle(envelopes), deliveries))

    # The envelope, its event and its item are made.
    assert take(100) - take(1) <= 3 * 99


# -- stopped ---------------------------------------------------------------------------------------------------------


async def test_one_that_waits_in_line_is_stopped_and_never_begun(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait"), whole("B", b"b"), whole("C", b"c")])
    await until(store.waits.is_set)
    stopping = bench.api.stop_envelope("B")
    assert not stopping.done()
    store.may_go_on.set()
    committed, stopped, behind = await taking
    assert await stopping is True
    assert committed == (True,)
    assert stopped[:2] == (None, ("envelope_stopped", "the envelope was stopped"))
    # It stays what it was for those behind it: not begun, so they come again.
    assert behind == ()
    assert store.calls.count("rollback B") == 1
    assert "start B" not in store.calls
    await until(lambda: bench.open == [])
    assert bench.api.deliveries.is_idle


async def test_the_one_under_way_is_rolled_back_behind_all_that_it_does(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait", b"more"), whole("B", b"b")])
    await until(store.waits.is_set)
    stops = [bench.api.stop_envelope(envelope_id) for envelope_id in ("A", "B")]
    store.may_go_on.set()
    assert await asyncio.gather(*stops) == [True, True]
    answers = await taking
    assert answers[1][:1] != (True,)
    assert store.calls[-2:] == ["rollback A", "rollback B"]
    assert "start B" not in store.calls
    await until(lambda: bench.open == [])


async def test_what_was_stopped_may_come_again_while_the_bundle_is_under_way(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait"), whole("B", b"b")])
    await until(store.waits.is_set)
    stopping = bench.api.stop_envelope("B")
    again = bench.api.take_envelopes([whole("B", b"again")])
    store.may_go_on.set()
    await taking
    assert await stopping is True
    assert await again == [(True,)]
    assert store.calls[-5:] == ["rollback B", "start B", "item again", "end B", "commit B"]
    await until(lambda: bench.open == [])


async def test_a_new_connection_rolls_all_of_it_back(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait"), whole("B", b"b")])
    await until(store.waits.is_set)
    bench.caller = b"\0two"
    bench.api.get_metadata()
    again = bench.api.take_envelopes([whole("A", b"a"), whole("B", b"again")])
    store.may_go_on.set()
    await taking
    assert await again == [(True,), (True,)]
    before = store.calls[: store.calls.index("item again")]
    assert "item b" not in before
    assert before.index("rollback A") < before.index("item a")
    await until(lambda: bench.open == [])


async def test_a_recipient_that_closes_begins_no_other(bench: Bench, store: Store) -> None:
    taking = bench.api.take_envelopes([whole("A", b"wait"), whole("B", b"b"), whole("C", b"c")])
    await until(store.waits.is_set)
    bench.api.deliveries.is_closing = True
    store.may_go_on.set()
    assert await taking == [(True,), (), ()]
    assert bench.open == []
    with pytest.raises(Failed) as failed:
        await bench.api.take_envelopes([whole("B", b"b")])
    assert failed.value.code == "recipient_stopping"
    assert bench.open == []
    assert bench.api.deliveries.is_idle


# -- refused calls leave nothing open --------------------------------------------------------------------------------


def packed_event(data: bytes) -> list[Any]:
    """An event that says that its data is one item."""
    return [str(uuid.uuid4()), "notes", [[0, 1, data, None]]]


TWICE = event_of(b"x")
SHORT_OF_ONE = [str(uuid.uuid4()), "notes", [[0, 1, b"", None]]]
TOO_MANY_BY_ONE = event_of(b"x", b"y")
TOO_MANY_BY_ONE[2][0][1] = 1


@pytest.mark.parametrize(
    ("bundle", "code"),
    [
        ([whole("A", b"a"), whole("A", b"a")], "envelope_open"),
        ([whole("A", b"a"), "B"], "wrong_arguments"),
        ([whole("A", b"a"), None], "wrong_arguments"),
        ([whole("A", b"a"), ["B"]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", None]], "wrong_arguments"),
        ([whole("A", b"a"), [7, []]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", [[]]]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", [["E", "notes"]]]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", [["E", 7, []]]]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", [TWICE, TWICE]]], "wrong_arguments"),
        ([whole("A", b"a"), ["B", [["E", "notes", [[0, 1]]]]]], "bad_items"),
        ([whole("A", b"a"), ["B", [["E", "notes", [[0, 2, pack_items([b"x"]), None]]]]]], "bad_items"),
        ([whole("A", b"a"), ["B", [["E", "notes", [[0, 1, pack_items([b"x"]), [["0"]]]]]]]], "bad_items"),
        ([["A", [SHORT_OF_ONE]], ["B", [TOO_MANY_BY_ONE]]], "bad_items"),
        ([["A", [packed_event(b"\xc4\x01x\xc5")]], ["B", [packed_event(b"\x00\x01y")]]], "bad_items"),
        ([["A", [packed_event(b"\xc4\x01x")]], ["B", [packed_event(b"\xc4")]]], "bad_items"),
        ([["A", [packed_event(b"\xc4\x01x\xc4\x01")]], ["B", [packed_event(b"y")]]], "bad_items"),
    ],
)
async def test_a_malformed_bundle_is_refused_as_a_whole(
    bench: Bench, store: Store, bundle: list[Any], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        await bench.api.take_envelopes(bundle)
    assert refused.value.code == code
    assert (bench.open, store.calls) == ([], [])
    assert bench.api.deliveries.is_idle


@pytest.mark.parametrize("sealed_at", [float("nan"), float("inf"), 1e300, -1e12, 10**30, 253_402_300_800.0])
async def test_a_note_of_a_moment_that_no_calendar_has_is_refused(bench: Bench, sealed_at: float) -> None:
    note: list[Value] = [None, None, None, 7, sealed_at, 1]
    with pytest.raises(Refused) as refused:
        await bench.api.take_envelopes([[*whole("A", b"a"), note]])
    with pytest.raises(Refused) as refused_alone:
        await bench.api.start_event("A", "E", "notes", note)
    assert refused.value.code == refused_alone.value.code == "wrong_arguments"
    assert bench.open == []


@pytest.mark.parametrize("sealed_at", [-62_135_596_800, 0.0, 253_402_300_799.0, None])
def test_a_note_that_is_taken_can_be_read(sealed_at: float | None) -> None:
    envelope = Envelope("A", checked_notes([[None, None, None, 7, sealed_at, 1]])[0])
    assert (None if envelope.sealed_at is None else envelope.sealed_at.timestamp()) == sealed_at


async def test_one_that_is_open_already_refuses_the_bundle_and_stays_open(bench: Bench, store: Store) -> None:
    await bench.api.start_event("B", "E", "notes")
    with pytest.raises(Refused) as refused:
        await bench.api.take_envelopes([whole("A", b"a"), whole("B", b"b")])
    assert refused.value.code == "envelope_open"
    assert bench.open == ["B"]
    assert store.calls == ["start B"]


async def test_an_envelope_without_events_is_committed(bench: Bench, store: Store) -> None:
    assert await bench.api.take_envelopes([["A", []]]) == [(True,)]
    assert store.calls == ["commit A"]


# -- memory ----------------------------------------------------------------------------------------------------------


class Keeping(Consumer):
    """Refers weakly to each envelope; keeps the event of an item ``keep``."""

    def __init__(self) -> None:
        self.seen: list[weakref.ref[Envelope]] = []
        self.kept: list[Event] = []

    def on_item(self, event: Event, item: Item) -> None:
        if item.data == b"keep":
            self.kept.append(event)
        self.seen.append(weakref.ref(event.envelope))
        if item.data == b"refuse":
            raise Refusal("too old")

    @property
    def alive(self) -> int:
        return len([envelope for envelope in self.seen if envelope() is not None])


@pytest.fixture
async def keeping() -> AsyncIterator[Bench]:
    made = Bench(Keeping())
    gc.collect()
    gc.disable()
    yield made
    gc.enable()
    made.desk.close()


async def taken(bench: Bench, *envelopes: list[Any]) -> None:
    await bench.api.take_envelopes(list(envelopes))


async def prepared(bench: Bench, *envelopes: list[Any]) -> None:
    await bench.api.prepare_envelopes(list(envelopes))
    await bench.api.commit_envelopes([envelope[0] for envelope in envelopes])


async def prepared_and_stopped(bench: Bench, *envelopes: list[Any]) -> None:
    await bench.api.prepare_envelopes(list(envelopes))
    for envelope_id, *_ in envelopes:
        await bench.api.stop_envelope(envelope_id)


async def taken_by_events(bench: Bench, *envelopes: list[Any]) -> None:
    for envelope_id, ((begun, name, batches), *_) in envelopes:
        await bench.api.take_event(envelope_id, begun, name, batches, True)


@pytest.mark.parametrize("end", [taken, prepared, prepared_and_stopped, taken_by_events])
@pytest.mark.parametrize("items", [[b"a"], [b"a", b"b"]], ids=["single_items", "several"])
async def test_an_envelope_that_has_ended_is_freed_without_the_cyclic_collector(
    keeping: Bench, end: Callable[..., Awaitable[None]], items: list[bytes]
) -> None:
    author = keeping.author
    assert isinstance(author, Keeping)
    await end(keeping, *(whole(envelope_id, *items) for envelope_id in "ABC"))
    await keeping.desk.give(lambda: None)  # the thread refers to its last job
    await until(lambda: keeping.open == [])
    assert (len(author.seen), author.alive) == (3 * len(items), 0)


async def test_an_event_that_its_author_keeps_can_be_read_beyond_its_end(keeping: Bench) -> None:
    author = keeping.author
    assert isinstance(author, Keeping)
    assert await keeping.api.take_envelopes([with_headers("A", b"keep"), whole("B", b"b")]) == [(True,), (True,)]
    (event,) = author.kept
    assert (event.type_name, event.taken, event.headers["colour"]) == ("notes", 1, "red")
    assert (event.envelope.id, event.envelope.key, event.envelope.is_stopped) == ("A", "key A", False)


async def test_an_envelope_that_was_let_go_is_not_committed_without_its_items(bench: Bench, store: Store) -> None:
    single, several = read_bundle([whole("A", b"a")]) + read_bundle([whole("B", b"b1", b"b2")])
    for delivery in (single, several):
        delivery.let_go()
    ((is_taken, *_), _) = take_all(Calls(store, bench.desk), [single, several], bench.api.deliveries)
    assert is_taken is None
    assert not {"commit A", "commit B"} & {*store.calls}


# -- heartbeats ------------------------------------------------------------------------------------------------------


async def test_heartbeats_tell_of_all_and_show_progress(bench: Bench, store: Store) -> None:
    may_begin = threading.Event()
    bench.desk.give(may_begin.wait)
    taking = bench.api.take_envelopes([whole("A", b"a"), whole("B", b"b1", b"wait"), whole("C", b"c")])
    before = bench.api.work()
    may_begin.set()
    await until(store.waits.is_set)
    now = bench.api.work()
    assert bench.open == ["A", "B", "C"]
    assert all(later["progress"] > earlier["progress"] for earlier, later in zip(before, now, strict=True))
    store.may_go_on.set()
    await taking
    assert bench.api.work() == []
    await bench.api.start_event("D", "E", "notes")
    (work,) = bench.api.deliveries.work()
    assert work["progress"] - bench.desk.steps >= 4, "the items of envelopes that have ended count"


# -- asynchronous ----------------------------------------------------------------------------------------------------


class Asynchronous(Consumer):
    """Takes turns with the loop, and overlaps nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_item(self, event: Event, item: Item) -> None:
        await asyncio.sleep(0)
        self.calls.append(item.data.decode())
        if item.data == b"refuse":
            raise Refusal("too old")

    async def commit(self, envelope: Envelope) -> None:
        await asyncio.sleep(0)
        self.calls.append(f"commit {envelope.id}")

    async def rollback(self, envelope: Envelope) -> None:
        await asyncio.sleep(0)
        self.calls.append(f"rollback {envelope.id}")


async def test_asynchronous_methods_keep_the_same_order() -> None:
    author = Asynchronous()
    bench = Bench(author)
    bad = whole("B", b"refuse")
    answers = await bench.api.take_envelopes([whole("A", b"a1", b"a2"), bad, whole("C", b"c")])
    assert answers == [(True,), (False, [([0], "too old")], event_id(bad)), (True,)]
    assert author.calls == ["a1", "a2", "commit A", "refuse", "rollback B", "c", "commit C"]
    bench.desk.close()


# -- who takes bundles -----------------------------------------------------------------------------------------------


class Bulk(BulkWorker):
    min_bulk_items = 1

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        raise NotImplementedError


class Counting(Worker):
    """Keeps something of an envelope, which it would have to take back."""

    def commit(self, envelope: Envelope) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("author", "announced"), [(Consumer, True), (Worker, True), (Counting, False), (Bulk, False)])
async def test_who_can_end_each_envelope_by_itself_announces_bundles(author: type[Recipient], announced: bool) -> None:
    bench = Bench(author())
    assert bench.api.get_metadata()["xbus"].get("bundles", False) is announced
    bench.desk.close()


# -- workers ---------------------------------------------------------------------------------------------------------


class Capitals(Worker):
    """Writes items in capitals, adds one at the end, and does what some items say."""

    def on_item(self, event: Event, item: Item) -> object:
        if item.data == b"refuse":
            raise Refusal("too old")
        if item.data == b"large":
            return item.data * OUTPUT_BYTES
        return item.data.upper()

    def on_event_end(self, event: Event) -> object:
        return b"end"


@pytest.fixture
async def capitals() -> AsyncIterator[Bench]:
    made = Bench(Capitals())
    yield made
    made.desk.close()


def made_of(*items: bytes) -> tuple[object, ...]:
    """What ``Capitals`` answers to an envelope of one event."""
    made = [*(item.upper() for item in items), b"end"]
    return (True, [[(0, len(made), pack_items(made), [*([place] for place in range(len(items))), []])]])


async def test_a_worker_answers_what_it_made_of_each(capitals: Bench) -> None:
    bad = whole("B", b"refuse")
    answers = await capitals.api.take_envelopes([whole("A", b"a1", b"a2"), bad, whole("C", b"c")])
    assert answers == [made_of(b"a1", b"a2"), (False, [([0], "too old")], event_id(bad)), made_of(b"c")]
    assert capitals.open == []


async def test_a_worker_begins_no_other_once_it_has_made_much(capitals: Bench) -> None:
    answers = await capitals.api.take_envelopes([whole("A", b"a"), whole("B", b"large"), whole("C", b"c")])
    assert answers[0] == made_of(b"a")
    assert answers[1][:2] == (None, ("output_too_large", "what was made of the envelope is too large for a bundle"))
    assert answers[2] == ()


class Strange(Consumer):
    """Refuses with what msgpack can't pack."""

    def __init__(self) -> None:
        self.committed: list[str] = []

    def on_item(self, event: Event, item: Item) -> None:
        if item.data == b"refuse":
            raise Refusal("too old", [object()])  # type: ignore[list-item]
        if item.data == b"fail":
            raise KeyError("\udcff")

    def commit(self, envelope: Envelope) -> None:
        self.committed.append(envelope.id)


@pytest.mark.parametrize("how", [b"refuse", b"fail"])
async def test_what_one_says_that_the_wire_has_no_form_for_does_not_hide_what_was_committed(how: bytes) -> None:
    """Else all of the bundle would come again, and what was committed a second time."""
    author = Strange()
    bench = Bench(author)
    answers = await bench.api.take_envelopes([whole("A", b"a"), whole("B", how)])
    assert author.committed == ["A"]
    assert pack(answers)
    bench.desk.close()


# -- notes -----------------------------------------------------------------------------------------------------------

NOTE: list[Any] = ["shop", "17", None, 42, 1777887000.25, 2]


async def test_a_note_tells_of_the_envelope(bench: Bench, store: Store) -> None:
    seen: list[Envelope] = []
    store.commit = seen.append  # type: ignore[assignment, method-assign]
    assert await bench.api.take_envelopes([[*whole("A", b"a"), NOTE], whole("B", b"b")]) == [(True,)] * 2
    told, silent = seen
    assert (told.emitter, told.key, told.ordering_key, told.position, told.attempt) == ("shop", "17", None, 42, 2)
    assert told.sealed_at == datetime(2026, 5, 4, 9, 30, 0, 250_000, UTC)
    assert (silent.emitter, silent.position, silent.sealed_at, silent.attempt) == (None, None, None, None)


async def test_a_note_of_a_newer_broker_may_tell_more(bench: Bench) -> None:
    assert await bench.api.take_envelopes([[*whole("A", b"a"), [*NOTE, "more"]]]) == [(True,)]


@pytest.mark.parametrize("note", [[], NOTE[:-1], [1, *NOTE[1:]], [*NOTE[:3], "42", *NOTE[4:]]])
async def test_what_is_no_note_is_refused(bench: Bench, note: list[Any]) -> None:
    with pytest.raises(Refused) as refused:
        await bench.api.take_envelopes([[*whole("A", b"a"), note]])
    assert refused.value.code == "wrong_arguments"
    assert bench.open == []
