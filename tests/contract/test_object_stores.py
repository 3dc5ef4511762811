"""Whose an object store is, and stores in S3: a server of the package moto speaks it over HTTP."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyarrow import fs

from tests.contract.test_put import whole
from tests.support.clock import StandingClock
from tests.support.disks import MEBIBYTE, small_disk
from tests.support.fsck import examined
from tests.support.journal import Scribe, looking
from tests.support.s3 import address, s3_bucket
from tests.torture.proxy import Proxy
from xbus import model
from xbus.broker.housekeeping.objects import LOOK_SECONDS, ObjectRemover
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.fsck.faults import FaultCode
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_segments
from xbus.broker.journal.objects import claiming
from xbus.broker.journal.objects.removal import doom
from xbus.broker.journal.objects.stores import MARK, MISSING, UNAVAILABLE
from xbus.broker.journal.objects.stowing import ObjectPlace
from xbus.errors import ConfigurationError, JournalError, JournalUnavailable, XbusError
from xbus.rpc.codec import pack_items
from xbus.supervision.health import Health

LARGE = [b"x" * 80_000]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A bucket of its own, and the port of its server."""
    with s3_bucket(monkeypatch) as found:
        yield found


@pytest.fixture
def s3(bucket: tuple[str, int]) -> str:
    """A place in a bucket of its own."""
    return address(bucket[0], "objects", bucket[1])


class Storage(Proxy):
    """The way to a server of S3, which may be busy."""

    is_busy = False

    def be_busy(self) -> None:
        """Refuse all requests, also of those who are connected, as a server does that has too many."""
        self.cut()
        self.mend()
        self.is_busy = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_busy:
            await super()._serve(reader, writer)
            return
        with contextlib.suppress(EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.write_eof()
            await reader.read()

    def recover(self) -> None:
        """Serve again."""
        self.is_busy = False
        self.mend()


def journal_at(url: str, place: str | Path) -> Journal:
    return Journal(create_engine(url), "broker", objects=ObjectPlace(str(place), 64 * 1024))


async def put_large(journal: Journal, items: list[bytes] = LARGE) -> bytes:
    put = whole(await Scribe.of(journal), items)
    await journal.write(put)
    (segment,) = await journal.read(read_segments, put.events[0].event_id, 0, 10**6)
    assert segment.data == pack_items(items)
    row = model.log_segment.c
    return await journal.run(lambda connection: bytes(connection.execute(sa.select(row.hash).limit(1)).scalar_one()))


async def refused(url: str, place: str | Path) -> XbusError:
    with pytest.raises(XbusError) as caught:
        async with journal_at(url, place):
            pass
    return caught.value


async def test_objects_lie_in_s3(file_url: str, s3: str) -> None:
    async with journal_at(file_url, s3) as journal:
        digest = await put_large(journal)
        assert examined(file_url) == []
        clock = StandingClock()
        remover = ObjectRemover(journal, clock, Health("broker", clock))
        clock.go_on(LOOK_SECONDS)
        await remover.look()
        await journal.run(doom, [(1, digest)])
        await remover.look()
        # It is used, and so spared.
        assert await put_large(journal) == digest
        await journal.run(lambda connection: connection.execute(sa.delete(model.segment)))
        await journal.run(doom, [(1, digest)])
        await remover.look()
    async with journal_at(file_url, s3):
        pass
    assert "another journal" in (await refused_copy(file_url, s3)).cause


async def refused_copy(url: str, place: str) -> XbusError:
    """Have another journal use the place."""
    with looking(url) as connection:
        connection.execute(sa.delete(model.object_store))
    return await refused(url, place)


async def test_an_object_that_s3_lost_is_an_error(file_url: str, s3: str) -> None:
    async with journal_at(file_url, s3) as journal:
        put = whole(await Scribe.of(journal), LARGE)
        await journal.write(put)
        files, root = fs.FileSystem.from_uri(s3)
        for info in files.get_file_info(fs.FileSelector(root, recursive=True)):
            if len(info.base_name) == 64:
                files.delete_file(info.path)
        with pytest.raises(JournalError) as caught:
            await journal.read(read_segments, put.events[0].event_id, 0, 10**6)
    assert caught.value.code == MISSING


async def test_a_full_disk_refuses_by_code_and_leaves_nothing(file_url: str, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * MEBIBYTE) as disk:
        async with journal_at(file_url, disk.folder / "objects") as journal:
            put = whole(await Scribe.of(journal), LARGE)
            filler = disk.fill()
            with pytest.raises(JournalUnavailable, match="No space left") as caught:
                await journal.write(put)
            assert caught.value.code == UNAVAILABLE
            assert await segments(journal) == 0
            assert journal.pending_bytes == 0
            assert [path for path in (disk.folder / "objects").rglob("*") if path.is_file()] == [
                disk.folder / "objects" / MARK
            ]
            filler.unlink()
            await journal.write(put)
            (segment,) = await journal.read(read_segments, put.events[0].event_id, 0, 10**6)
            assert segment.data == pack_items(LARGE)


@pytest.mark.parametrize("fault", [Storage.be_busy, Storage.cut, Storage.hold], ids=["busy", "away", "silent"])
async def test_a_store_that_fails_is_told_by_code_within_the_time(
    file_url: str, bucket: tuple[str, int], fault: Callable[[Storage], None]
) -> None:
    storage = Storage(bucket[1])
    await storage.start()
    try:
        place = ObjectPlace(address(bucket[0], "objects", storage.port), 64 * 1024)
        async with Journal(create_engine(file_url), "broker", objects=place, answer_seconds=2.0) as journal:
            put = whole(await Scribe.of(journal), LARGE)
            small = whole(await Scribe.of(journal), [b"small"])
            fault(storage)
            large = journal.write(put)
            await journal.write(small)
            with pytest.raises(JournalUnavailable) as caught:
                await large
            assert caught.value.code == UNAVAILABLE
            assert (await segments(journal), journal.pending_bytes) == (1, 0), "the small one alone"
            storage.recover()
            await again(lambda: journal.write(put))
            (segment,) = await journal.read(read_segments, put.events[0].event_id, 0, 10**6)
            assert segment.data == pack_items(LARGE)
    finally:
        await storage.close()


async def again(write: Callable[[], Awaitable[object]]) -> None:
    """Repeat a write, as emitters do, until the store takes it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await write()
                return
            except JournalUnavailable:
                continue


async def segments(journal: Journal) -> int:
    statement = sa.select(sa.func.count()).select_from(model.log_segment)
    return await journal.read(lambda connection: int(connection.execute(statement).scalar_one()))


async def test_a_folder_of_others_is_refused(file_url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("mine")
    assert (await refused(file_url, tmp_path / "home")).code == claiming.FOREIGN
    (tmp_path / "home" / MARK).write_text("{}")
    assert (await refused(file_url, tmp_path / "home")).code == claiming.FOREIGN
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["letter", MARK]


async def test_a_place_that_can_not_be_used_is_refused(file_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert (await refused(file_url, tmp_path / "file")).code == UNAVAILABLE
    for place in ("s3://key:secret@bucket/objects", "nowhere://bucket"):
        error = await refused(file_url, place)
        assert isinstance(error, ConfigurationError)
    assert (await refused("sqlite://", tmp_path / "objects")).code == "bad_configuration"


async def test_a_folder_that_is_not_mounted_is_refused(file_url: str, tmp_path: Path) -> None:
    async with journal_at(file_url, tmp_path / "objects") as journal:
        await put_large(journal)
    (tmp_path / "objects").rename(tmp_path / "away")
    (tmp_path / "objects").mkdir()
    assert (await refused(file_url, tmp_path / "objects")).code == claiming.NOT_THERE


async def test_data_stays_readable_where_it_was_and_a_moved_folder_is_found(file_url: str, tmp_path: Path) -> None:
    async with journal_at(file_url, tmp_path / "first") as journal:
        await put_large(journal)
    async with journal_at(file_url, tmp_path / "second") as journal:
        await put_large(journal)
        assert examined(file_url) == []
    (tmp_path / "first").rename(tmp_path / "third")
    with pytest.raises(JournalUnavailable) as caught:
        examined(file_url)
    assert caught.value.code == UNAVAILABLE
    async with journal_at(file_url, tmp_path / "third"):
        assert examined(file_url) == []


async def test_a_backup_of_the_journal_and_then_its_objects_is_whole(file_url: str, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    async with journal_at(file_url, tmp_path / "objects") as journal:
        await put_large(journal)
        shutil.copytree(tmp_path / "objects", backup / "too early")
        await put_large(journal, [b"z" * 300_000])
        with contextlib.closing(sqlite3.connect(tmp_path / "xbus.db")) as connection:
            connection.execute("VACUUM INTO ?", [str(backup / "xbus.db")])
        await put_large(journal, [b"later" * 60_000])
        shutil.copytree(tmp_path / "objects", backup / "objects")
    (tmp_path / "objects").rename(tmp_path / "lost")

    restored = f"sqlite:///{backup / 'xbus.db'}"
    (backup / "too early").rename(tmp_path / "objects")
    (lacking,) = examined(restored)
    assert (lacking.code, str(tmp_path / "objects") in lacking.cause) == (FaultCode.SEGMENT_CHANGED, True)
    shutil.rmtree(tmp_path / "objects")

    assert (await refused(restored, backup / "objects")).code == claiming.ELSEWHERE
    with looking(restored) as connection:
        assert claiming.adopt(connection, str(backup / "objects")) == [str(backup / "objects")]
    assert examined(restored) == []
    async with journal_at(restored, backup / "objects") as journal:
        objects = list((backup / "objects").glob("??/*"))
        await put_large(journal, [b"goes on" * 60_000])
        assert len(list((backup / "objects").glob("??/*"))) == len(objects) + 1


async def test_a_copy_of_the_journal_keeps_off_until_it_is_adopted(file_url: str, tmp_path: Path) -> None:
    async with journal_at(file_url, tmp_path / "objects") as journal:
        await put_large(journal)
    copy = tmp_path / "copy.db"
    shutil.copy(tmp_path / "xbus.db", copy)
    copy_url = f"sqlite:///{copy}"
    assert (await refused(copy_url, tmp_path / "objects")).code == claiming.ELSEWHERE
    assert examined(copy_url) == []
    with looking(copy_url) as connection:
        assert claiming.adopt(connection) == [str(tmp_path / "objects")]
    async with journal_at(copy_url, tmp_path / "objects") as journal:
        await put_large(journal)
    assert (await refused(file_url, tmp_path / "objects")).code == claiming.ELSEWHERE
