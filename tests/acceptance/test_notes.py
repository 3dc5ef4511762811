"""Recipients of our SDK are told whose each envelope is, where it stands, and how often it came to them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Envelope, Event, Item, Worker

RETRIES: dict[str, dict[str, object]] = {"back": {"first_delay": 0.01}}


@dataclass(frozen=True)
class Seen:
    """What a recipient knew of an envelope."""

    emitter: str | None
    key: str | None
    ordering_key: str | None
    position: int | None
    attempt: int | None
    sealed_at: datetime | None

    @classmethod
    def of(cls, envelope: Envelope) -> "Seen":
        return cls(
            *(envelope.emitter, envelope.key, envelope.ordering_key),
            *(envelope.position, envelope.attempt, envelope.sealed_at),
        )


class Notes(Consumer):
    """Notes at the commit what it knows; fails at the first attempts where a test wants that."""

    def __init__(self, failures: int = 0) -> None:
        self.seen: dict[int, Seen] = {}
        self.began: list[tuple[int | None, int | None]] = []
        self._failures = failures

    def on_event_start(self, event: Event) -> None:
        self.began.append((event.envelope.position, event.envelope.attempt))

    def on_item(self, event: Event, item: Item) -> None:
        if item.value == "fail" and (event.envelope.attempt or 0) <= self._failures:
            raise RuntimeError("not now")

    def commit(self, envelope: Envelope) -> None:
        assert envelope.position is not None
        self.seen[envelope.position] = Seen.of(envelope)


class Passing(Worker):
    """Passes items on, and notes what it knows."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def on_event_start(self, event: Event) -> None:
        self.seen.append(Seen.of(event.envelope))


def told(seen: Seen) -> tuple[Any, ...]:
    return seen.emitter, seen.key, seen.ordering_key, seen.position, seen.attempt


def assert_recent(*seen: Seen) -> None:
    now = datetime.now(UTC)
    for each in seen:
        assert each.sealed_at is not None
        assert now - timedelta(hours=1) < each.sealed_at <= now + timedelta(seconds=1)


async def test_of_small_envelopes_and_large_ones(database_url: str, start_daemon: StartDaemon) -> None:
    """They come in bundles, in a call for the event, and in a call for each batch; from memory and from the log."""
    add_bus(database_url, {"test_event": {"store": []}, "other": {"store": []}})
    daemon = start_daemon(database_url)
    large = ["x" * 30_000] * 5

    async def send() -> None:
        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            await emitter.put("test_event", ["small"])
            await emitter.put("test_event", ["small"], key="17", ordering_key="client 7")
            await emitter.put("test_event", large, key="18")
            async with emitter.envelope(ordering_key="client 8") as envelope:
                for type_name in ("test_event", "other"):
                    async with envelope.event(type_name) as event:
                        for item in large:
                            await event.send(item)

    wanted = [
        ("emitter_1", None, None, 1, 1),
        ("emitter_1", "17", "client 7", 2, 1),
        ("emitter_1", "18", None, 3, 1),
        ("emitter_1", None, "client 8", 4, 1),
    ]
    present, later = Notes(), Notes()
    async with serving(daemon, "store_1", present):
        await send()
        await eventually(lambda: len(present.seen) == 4, "all are committed")
    assert [told(present.seen[position]) for position in range(1, 5)] == wanted
    assert_recent(*present.seen.values())
    assert present.began == [(1, 1), (2, 1), (3, 1), (4, 1), (4, 1)]

    await send()
    daemon.restart()
    async with serving(daemon, "store_1", later):
        await eventually(lambda: len(later.seen) == 2, "all are read from the log")
    # The two with a key were there already.
    assert [told(later.seen[position]) for position in sorted(later.seen)] == [
        ("emitter_1", None, None, 5, 1),
        ("emitter_1", None, "client 8", 6, 1),
    ]


@pytest.mark.usefixtures("each_way")
async def test_of_attempts(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}})
    daemon = start_daemon(sqlite_url, RETRIES)
    notes = Notes(failures=2)
    async with serving(daemon, "store_1", notes):
        async with AsyncEmitter(daemon.front, "emitter_2", PASSWORD) as emitter:
            await emitter.put("test_event", ["fail"])
            await emitter.put("test_event", ["ok"])
        await eventually(lambda: len(notes.seen) == 2, "both are committed")
    assert [told(notes.seen[1]), told(notes.seen[2])] == [
        ("emitter_2", None, None, 1, 3),
        ("emitter_2", None, None, 2, 1),
    ]
    assert [attempt for position, attempt in notes.began if position == 1] == [1, 2, 3]


async def test_of_workers_and_of_what_is_brought_by_hand(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"passing": ["store"], "store": [], "other": []}})
    daemon = start_daemon(sqlite_url)
    worker, store, other = Passing(), Notes(), Notes()
    async with (
        serving(daemon, "store_1", store),
        serving(daemon, "other_1", other),
        serving(daemon, "passing_1", worker),
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
    ):
        receipt = await emitter.put("test_event", ["small"], key="17")
        await eventually(lambda: store.seen and other.seen, "both are committed")
        await emitter.replay(receipt.envelope_id)
        await eventually(lambda: len(store.seen) == len(other.seen) == 2, "the replay is, too")
    assert told(store.seen[1]) == told(other.seen[1]) == told(worker.seen[0]) == ("emitter_1", "17", None, 1, 1)
    # A replay is an envelope of its own.
    assert told(store.seen[2]) == told(worker.seen[1]) == ("emitter_1", None, None, 2, 1)
    assert_recent(*store.seen.values(), *worker.seen)


@pytest.mark.usefixtures("each_way")
async def test_of_an_event_with_an_immediate_reply(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """It is delivered before its envelope is sealed, so nothing is known of that yet."""

    class Replies(Consumer):
        immediate_reply = ("question",)
        seen: list[Seen]

        def __init__(self) -> None:
            self.seen = []

        def on_event_end(self, event: Event) -> str:
            return "answer"

        def commit(self, envelope: Envelope) -> None:
            self.seen.append(Seen.of(envelope))

    add_bus(sqlite_url, {"question": {"store": []}}, immediate=["question"])
    daemon = start_daemon(sqlite_url)
    replies = Replies()
    async with serving(daemon, "store_1", replies), AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        assert await emitter.ask("question", "?") == "answer"
        await eventually(lambda: replies.seen, "it is committed")
    assert replies.seen == [Seen(None, None, None, None, None, None)]
