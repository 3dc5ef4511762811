"""A broker stands by beside the one that leads, and serves when that one is gone."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import READY_SECONDS, Daemon, write_config
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.processes import run, script
from tests.support.serving import serving
from tests.support.waiting import eventually, wait_until
from xbus.emitter import AsyncEmitter, Emitter
from xbus.errors import CallError
from xbus.recipient import Consumer, Event, Item

GRAPH: dict[str, dict[str, list[str]]] = {"test_event": {"c": []}}
STARTS_ANEW = 3


@pytest.fixture
def lease() -> float:
    """How long a broker leads without renewing that, in seconds."""
    return 3.0


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path, lease: float) -> Iterator[tuple[Daemon, Daemon]]:
    """One that leads, and one that stands by."""
    add_bus(postgres_url, GRAPH)
    options = {"broker": {"standby": "true", "lease": lease}}
    first, second = (Daemon(tmp_path / name, postgres_url, options) for name in ("first", "second"))
    try:
        first.start()
        second.begin()
        wait_until(lambda: "standing by" in second.log, "the second one stands by")
        yield first, second
    finally:
        first.kill()
        second.kill()


def works(daemon: Daemon) -> None:
    async def emit() -> None:
        async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
            await consumer.wait_for([await emitter.emit(b"x")])

    asyncio.run(emit())


def address_of(daemon: Daemon, part: str) -> str:
    """An address of a broker that has told nobody that it is ready."""
    lines = daemon.config.read_text().splitlines()
    return next(line.partition(" = ")[2] for line in lines if line.startswith(f"{part}socket"))


def refusal(daemon: Daemon) -> CallError:
    front = address_of(daemon, "front")
    with pytest.raises(CallError) as caught, Emitter(front, "emitter_1", PASSWORD, retry_seconds=0.5) as emitter:
        emitter.put("test_event", [b"x"])
    return caught.value


def test_one_that_stands_by_names_the_leader_and_serves_when_that_one_was_killed(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    works(first)
    failed = refusal(second)
    assert failed.code == "not_leading"
    assert first.front in str(failed)
    first.crash()
    second.wait_ready()
    works(second)


class Notes(Consumer):
    """Notes what it gets."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def on_item(self, event: Event, item: Item) -> None:
        self.items.append(str(item.value))


@pytest.mark.parametrize("in_order", [True, False])
async def test_emitters_and_recipients_find_the_next_broker_by_themselves(
    pair: tuple[Daemon, Daemon], in_order: bool
) -> None:
    """They have both addresses. Where the broker that stands by comes first, they turn to the other one."""
    first, second = pair
    order = pair if in_order else (second, first)
    front, back = (",".join(address_of(daemon, part) for daemon in order) for part in ("front", "back"))
    notes = Notes()
    keys = [f"invoice {number}" for number in range(200)]
    async with serving(first, "c_1", notes, back=back), AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
        puts = asyncio.gather(*(emitter.put("test_event", [key], key=key) for key in keys))
        await eventually(lambda: len(notes.items) > 0, "the first one delivers")
        first.kill()
        receipts = await puts
        more = [f"invoice {number}" for number in range(200, 210)]
        receipts += [await emitter.put("test_event", [key], key=key) for key in more]
        await eventually(lambda: {*notes.items} == {*keys, *more}, "the second one delivers all")
    assert len({receipt.position for receipt in receipts}) == len(receipts)


def test_a_command_asks_the_broker_that_answers(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    backs = f"{first.back},{address_of(second, 'back')}"
    first.kill()
    told = run(script("xbus"), "health", "--url", backs)
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("lease", [10 * READY_SECONDS])
def test_one_that_is_stopped_hands_over_and_stands_by_when_it_comes_back(pair: tuple[Daemon, Daemon]) -> None:
    """The lease lasts for longer than the test: whoever leads next got it from the one before."""
    first, second = pair
    assert first.stop() == 0
    second.wait_ready()
    works(second)
    first.begin()
    wait_until(lambda: first.log.count("standing by") == 2, "the first one stands by")
    works(second)
    assert second.stop() == 0
    first.wait_ready()
    works(first)


async def test_a_leader_that_was_frozen_ends_when_it_wakes_up(pair: tuple[Daemon, Daemon]) -> None:
    """Its programs have turned to the other one meanwhile, though the system keeps their connections."""
    first, second = pair
    front, back = (",".join(address_of(daemon, part) for daemon in pair) for part in ("front", "back"))
    notes = Notes()
    async with serving(first, "c_1", notes, back=back), AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
        await emitter.put("test_event", ["before"])
        await eventually(lambda: notes.items == ["before"], "the first one delivers")
        first.process.signal(signal.SIGSTOP)
        try:
            await emitter.put("test_event", ["meanwhile"], key="meanwhile")
            await eventually(lambda: "meanwhile" in notes.items, "the second one delivers")
        finally:
            first.process.signal(signal.SIGCONT)
        assert await asyncio.to_thread(first.process.wait) == STARTS_ANEW
        await emitter.put("test_event", ["after"])
        await eventually(lambda: "after" in notes.items, "the second one goes on")


def test_one_that_stands_by_is_stopped_like_any_other(pair: tuple[Daemon, Daemon]) -> None:
    first, second = pair
    assert second.stop() == 0
    works(first)


@pytest.mark.parametrize("command_line", [True, False])
def test_nobody_stands_by_on_sqlite(sqlite_url: str, tmp_path: Path, command_line: bool) -> None:
    add_bus(sqlite_url, GRAPH)
    config = write_config(tmp_path / "c.ini", sqlite_url, {} if command_line else {"broker": {"standby": "true"}})
    ended = run(script("start_xbusbroker"), "-c", config, *(["--standby"] if command_line else []))
    assert ended.returncode == 1
    assert "[standby_needs_postgresql]" in ended.stderr


def test_one_part_does_not_stand_by_alone(postgres_url: str, tmp_path: Path) -> None:
    add_bus(postgres_url, GRAPH)
    config = write_config(tmp_path / "c.ini", postgres_url)
    ended = run(script("start_xbusbroker"), "-c", config, "--standby", "--only", "front")
    assert ended.returncode == 1
    assert "[standby_apart]" in ended.stderr
