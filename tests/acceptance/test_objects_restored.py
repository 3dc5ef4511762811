"""A bus with its objects in S3 is backed up, lost and restored as docs/backup.md says. Its files arrive."""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.copies import copy_journal
from tests.support.daemon import Daemon, write_config
from tests.support.operating import Operator, run_command, run_xbus, xbus
from tests.support.s3 import address, s3_bucket
from tests.support.sdk import emit
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import eventually
from xbus.emitter import Emitter
from xbus.recipient import Consumer, Envelope, Event

SIZE = 3_000_000


class Saves(Consumer):
    """Saves each file by the name of its event."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.committed: list[str] = []

    def on_event_start(self, event: Event) -> None:
        event.save(self.folder / event.id)

    def commit(self, envelope: Envelope) -> None:
        self.committed.append(envelope.id)

    @property
    def contents(self) -> list[bytes]:
        return sorted(path.read_bytes() for path in self.folder.iterdir())


class Bucket:
    """Folders of objects in S3, handled as an operator does with the tools of the storage."""

    def __init__(self, name: str, port: int) -> None:
        self._name = name
        self._port = port
        self._files, _ = fs.FileSystem.from_uri(self.place("objects"))

    def place(self, folder: str) -> str:
        return address(self._name, folder, self._port)

    def copy(self, source: str, target: str) -> None:
        fs.copy_files(f"{self._name}/{source}", f"{self._name}/{target}", self._files, self._files)

    def remove(self, folder: str) -> None:
        self._files.delete_dir(f"{self._name}/{folder}")

    def objects(self, folder: str) -> list[str]:
        found = self._files.get_file_info(fs.FileSelector(f"{self._name}/{folder}", recursive=True))
        return [info.path for info in found if len(info.base_name) == 64]

    def move(self, path: str, target: str) -> None:
        self._files.move(path, target)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with s3_bucket(monkeypatch) as found:
        yield Bucket(*found)


def in_place(place: str) -> dict[str, dict[str, object]]:
    return {"journal": {"objects": place}}


def made_file(path: Path) -> bytes:
    content = os.urandom(SIZE)
    path.write_bytes(content)
    return content


async def send_file(daemon: Daemon, path: Path) -> str:
    def send(emitter: Emitter) -> str:
        with emitter.envelope() as envelope, envelope.event("plans") as event:
            event.send_file(path)
        return envelope.id

    found: str = await emit(daemon, send)
    return found


def codes_of_doctor(config: Path) -> set[str]:
    told = run_command("doctor", "-c", config, "-o", "json").stdout
    return {json.loads(line)["code"] for line in told.splitlines() if json.loads(line)["part"] == "objects"}


async def test_a_bus_with_objects_in_s3_is_restored(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path, bucket: Bucket
) -> None:
    add_bus(sqlite_url, {"plans": {"store": []}})
    daemon = start_daemon(sqlite_url, in_place(bucket.place("objects")))
    content = made_file(tmp_path / "plan")
    sent = await send_file(daemon, tmp_path / "plan")
    assert bucket.objects("objects")

    # First the database, then the objects, while the broker runs.
    (tmp_path / "backup").mkdir()
    copied = copy_journal(sqlite_url, tmp_path / "backup", None)
    bucket.copy("objects", "backup")
    assert daemon.stop() == 0
    broken = tmp_path / "broken"
    broken.mkdir()
    for lost in tmp_path.glob("xbus.db*"):
        lost.rename(broken / lost.name)
    bucket.remove("objects")

    shutil.copy(copied.removeprefix("sqlite:///"), tmp_path / "xbus.db")
    config = write_config(tmp_path / "restored.ini", sqlite_url, in_place(bucket.place("objects")))
    assert await asyncio.to_thread(codes_of_doctor, config) == {"objects_not_there"}
    write_config(config, sqlite_url, in_place(bucket.place("backup")))
    assert await asyncio.to_thread(codes_of_doctor, config) == {"objects_of_copy"}
    adopt = ("journal", "adopt", "-c", config, "--reason", "the disk broke", "--yes")
    adopted = await asyncio.to_thread(run_command, *adopt)
    assert f"The objects in {bucket.place('backup')} belong to this journal now." in adopted.stdout
    assert await asyncio.to_thread(codes_of_doctor, config) == set()
    assert (await asyncio.to_thread(run_command, "fsck", "-c", config)).returncode == 0

    restored = start_daemon(sqlite_url, in_place(bucket.place("backup")))
    (tmp_path / "in").mkdir()
    saves = Saves(tmp_path / "in")
    async with serving(restored, "store_1", saves):
        await eventually(lambda: saves.committed == [sent], "the file of before arrives")
        later = await send_file(restored, tmp_path / "plan")
        await eventually(lambda: saves.committed == [sent, later], "the bus goes on")
    assert saves.contents == [content] * 2


async def test_an_object_that_s3_lost_is_told_and_arrives_when_it_is_back(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path, bucket: Bucket
) -> None:
    add_bus(sqlite_url, {"plans": {"store": []}})
    daemon = start_daemon(sqlite_url, in_place(bucket.place("objects")))
    content = made_file(tmp_path / "plan")
    sent = await send_file(daemon, tmp_path / "plan")
    (lost,) = bucket.objects("objects")
    elsewhere = lost.replace("/objects/", "/elsewhere/")
    bucket.move(lost, elsewhere)
    (tmp_path / "in").mkdir()
    saves = Saves(tmp_path / "in")
    async with serving(daemon, "store_1", saves):
        states = await become(sqlite_url, sent, store_1="parked")
        assert states["store_1"].code == "object_missing"
        assert Path(lost).name in str(states["store_1"].cause)
        examined = await run_xbus(daemon, "fsck", "-o", "json")
        assert (examined.returncode, Path(lost).name in examined.stdout) == (1, True)
        assert Path(lost).name in await xbus(daemon, "parked", "list", "-o", "json")

        bucket.move(elsewhere, lost)
        await Operator(daemon).give("resume", sent)
        await eventually(lambda: saves.committed == [sent], "it arrives")
    assert saves.contents == [content]


async def test_a_delivery_waits_for_a_store_that_is_away(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """As a folder that is not mounted: that is no reason to park all that is large."""
    add_bus(sqlite_url, {"plans": {"store": []}})
    daemon = start_daemon(sqlite_url, in_place(str(tmp_path / "objects")))
    made_file(tmp_path / "plan")
    sent = await send_file(daemon, tmp_path / "plan")
    (tmp_path / "objects").rename(tmp_path / "away")
    (tmp_path / "in").mkdir()
    saves = Saves(tmp_path / "in")
    async with serving(daemon, "store_1", saves):
        await eventually(lambda: "so nothing of it is there now" in daemon.log, "the delivery has met the lack")
        assert (await run_xbus(daemon, "fsck")).returncode == 3
        (tmp_path / "away").rename(tmp_path / "objects")
        await eventually(lambda: saves.committed == [sent], "it arrives")
