"""Files from an emitter to a consumer, by way of an object store, with the real broker between them."""

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support import postgres
from tests.support.bus import PASSWORD, add_bus
from tests.support.fsck import examined
from tests.support.processes import run, script
from tests.support.sdk import emit
from tests.support.serving import serving
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter, Emitter
from xbus.errors import Refused
from xbus.files import PIECE_BYTES
from xbus.recipient import Consumer, Envelope, Event, Worker

SIZE = 20_000_000


class Saves(Consumer):
    """Saves each file as ``<event>.bin``, and notes what was there at each step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.complete: list[tuple[str, int]] = []
        self.committed: list[Path] = []

    def on_event_start(self, event: Event) -> None:
        event.save(self.folder / f"{event.id}.bin")

    def on_event_end(self, event: Event) -> None:
        assert event.file is not None
        assert event.file.head is not None
        assert not event.file.path.exists()
        self.complete.append((event.file.head.name, event.file.head.size))

    def commit(self, envelope: Envelope) -> None:
        self.committed += [file.path for file in envelope.files if file.path.exists()]


class PassesOn(Worker):
    """Keeps a copy of each file, and passes it on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_event_start(self, event: Event) -> None:
        event.save(self.folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "plan.bin"
    source.write_bytes(os.urandom(SIZE))
    return source


def folder(parent: Path, name: str) -> Path:
    made = parent / name
    made.mkdir()
    return made


def objects(path: Path) -> list[Path]:
    return list(path.glob("??/*"))


def has_more(path: Path, most: int) -> bool:
    return len(objects(path)) > most


async def test_a_file_goes_by_objects_to_worker_and_consumer(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path, source: Path
) -> None:
    add_bus(database_url, {"plans": {"copies": ["store"], "store": []}})
    daemon = start_daemon(database_url, {"journal": {"objects": tmp_path / "objects"}})
    copies, saves = folder(tmp_path, "copies"), Saves(folder(tmp_path, "in"))

    def send(emitter: Emitter) -> Any:
        with emitter.envelope() as envelope, envelope.event("plans") as event:
            event.send_file(source)
            with pytest.raises(Refused) as caught:
                event.send(1)
            assert caught.value.code == "event_has_file"
        return envelope.receipt

    async with serving(daemon, "store_1", saves), serving(daemon, "copies_1", PassesOn(copies)):
        receipt = await emit(daemon, send)
        await eventually(lambda: saves.committed, "the consumer commits")
    assert receipt.items == 2 + -(-SIZE // PIECE_BYTES)
    assert saves.complete == [("plan.bin", SIZE)]
    content = source.read_bytes()
    assert [path.read_bytes() == content for path in saves.folder.iterdir()] == [True]
    assert (copies / "plan.bin").read_bytes() == content
    # Of the pieces only the last one may be small, and stay in the database.
    assert sum(path.stat().st_size for path in objects(tmp_path / "objects")) > SIZE - PIECE_BYTES


async def test_a_file_moves_with_the_journal_and_goes_on_by_two_processes(
    sqlite_url: str, postgres_server: postgres.Server, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    source = tmp_path / "plan.bin"
    add_bus(sqlite_url, {"plans": {"store": []}})
    options: dict[str, dict[str, object]] = {"journal": {"objects": tmp_path / "objects"}}
    saves = Saves(folder(tmp_path, "in"))
    source.write_bytes(os.urandom(PIECE_BYTES + 1))

    def send(emitter: Emitter) -> None:
        with emitter.envelope() as envelope, envelope.event("plans") as event:
            event.send_file(source)

    first = start_daemon(sqlite_url, options)
    await emit(first, send)
    assert first.stop() == 0
    other = postgres_server.create_empty()
    moved = await asyncio.to_thread(run, script("xbus"), "journal", "move", "-c", str(first.config), "--to", other)
    assert moved.returncode == 0, moved.stderr

    options["zmq"] = {"b2fsocket": f"ipc://{tmp_path / 'bell'}"}
    back = start_daemon(other, options, only="back")
    front = start_daemon(other, options, only="front")
    async with serving(back, "store_1", saves):
        await emit(front, send)
        await eventually(lambda: len(saves.committed) == 2, "both files are saved")
    content = source.read_bytes()
    assert [path.read_bytes() == content for path in saves.folder.iterdir()] == [True, True]
    assert examined(other) == []


async def test_a_file_that_can_not_be_read_cancels_its_envelope(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"plans": {"store": []}})
    daemon = start_daemon(sqlite_url)
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        with pytest.raises(FileNotFoundError):
            async with emitter.envelope() as envelope, envelope.event("plans") as event:
                await event.send_file(tmp_path / "nothing")
        with pytest.raises(Refused) as caught:
            async with emitter.envelope() as envelope, envelope.event("plans") as event:
                await event.send(b"before")
                await event.send_file(__file__)
        assert caught.value.code == "event_has_items"
    assert daemon.log_file.exists()


async def test_the_broker_dies_again_and_again_while_a_file_flows(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Nothing is lost or torn, and what deaths left in the store is what the file consists of."""
    add_bus(database_url, {"plans": {"store": []}})
    daemon = start_daemon(database_url, {"journal": {"objects": tmp_path / "objects"}})
    saves = Saves(folder(tmp_path, "in"))
    contents = [os.urandom(SIZE) for _ in range(4)]
    out = folder(tmp_path, "out")
    for number, content in enumerate(contents):
        (out / str(number)).write_bytes(content)

    async def send() -> None:
        async with AsyncEmitter(
            daemon.front, "emitter_1", PASSWORD, answer_seconds=2.0, retry_seconds=120.0
        ) as emitter:
            for path in sorted(out.iterdir()):
                async with emitter.envelope(key=path.name) as envelope, envelope.event("plans") as event:
                    await event.send_file(path)

    async with serving(daemon, "store_1", saves):
        sending = asyncio.create_task(send())
        for deaths in range(3):
            most = 1 + 5 * deaths
            await eventually(partial(has_more, tmp_path / "objects", most), "it flows")
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(daemon.start)
        await sending
        await eventually(lambda: len(set(saves.committed)) >= 4, "all files are there")
    found = [path.read_bytes() for path in saves.folder.glob("*.bin")]
    assert sorted(found) == sorted(contents)
    daemon.stop()
    assert examined(database_url) == []
