"""Items of the ordinary path on their way to Spark: kept in a file, and read from there as an event of its own."""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_worker.items.pieces import NewSegment
from spark_worker.items.source import Early, ItemsReader, ItemsSource
from xbus.errors import Failed
from xbus.recipient import Batch, Item
from xbus.rpc.codec import pack_items

SPOOL = "xbus_spool"
"""The name of the scan of a spool, also in Spark's plans."""

_HEADER = struct.Struct("<IIqI")
"""The number of following items, the bytes of data, the first index, and the bytes of sources; 0 for none."""

_INDEX = struct.Struct("<q")


class Spool:
    """The items of an event so far, in a file that is removed with it.

    Args:
        path: the file, which is made.

    Raises:
        Failed: the disk can't take it now.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items = 0
        self.origins = Origins()
        with self._disk_errors():
            self._file: BinaryIO = path.open("xb")
        self._places: list[tuple[int, int]] = []

    def add(self, batch: Batch) -> None:
        """Keep a batch.

        Raises:
            Failed: the disk can't take it now.
        """
        piece = self._piece(batch)
        sources = piece.sources or b""
        with self._disk_errors():
            self._places.append((self._file.tell(), piece.items))
            self._file.write(_HEADER.pack(piece.items, len(piece.data), piece.first_index, len(sources)))
            self._file.write(piece.data + sources)
        self.items += piece.items

    def finish(self) -> None:
        """Finish the spool, and let others read all of it.

        Raises:
            Failed: the disk can't take it now.
        """
        with self._disk_errors():
            self._file.close()

    def remove(self) -> None:
        """Remove the file; safe to repeat."""
        try:
            self._file.close()
        except OSError:
            pass  # what could not be written is not wanted any more
        self.path.unlink(missing_ok=True)

    def cut(self, parts: int) -> list[tuple[int, int]]:
        """Find begin and end of about even parts of the file; at least one."""
        if not self._places:
            return [(0, 0)]
        end = self.path.stat().st_size
        starts: list[int] = []
        before = 0
        for offset, items in self._places:
            if before * parts >= len(starts) * self.items:
                starts.append(offset)
            before += items
        return list(zip(starts, [*starts[1:], end], strict=True))

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cause = f"the spool {self.path} can't be written ({error.strerror})"
            raise Failed(cause, "see that its disk has room", code="spool_failed") from error

    def _piece(self, batch: Batch) -> NewSegment:
        items = list(batch)
        data = pack_items(batch.data)
        if all(item.is_original for item in items) and items:
            self.origins.note_following(items[0].index, len(items))
            return NewSegment(len(items), data, items[0].index, None)
        self.origins.note(items)
        return NewSegment(len(items), data, 0, b"".join(_INDEX.pack(item.index) for item in items))


def read_spool(spark: SparkSession, spool: Spool, parts: int, inline: bool, early: Early) -> DataFrame:
    """Read the items of a spool.

    Args:
        spark: the session.
        spool: which is finished.
        parts: how many partitions are wanted.
        inline: whether the items travel with the job, as executors on other machines can't read the file.
        early: as of ``reading.read_ranges``.
    """
    spark.dataSource.register(SpooledItems)
    places = ",".join(f"{start}:{end}" for start, end in spool.cut(parts))
    options = {"file": str(spool.path), "places": places, "inline": str(int(inline)), "early": early.option}
    return spark.read.format(SPOOL).options(**options).load()


@dataclass(frozen=True)
class Region:
    """A part of a spool: its place, or its content."""

    path: str
    start: int
    end: int
    data: bytes | None = None

    def read(self) -> bytes:
        """Read its content."""
        if self.data is not None:
            return self.data
        with open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.end - self.start)


@dataclass
class SpoolPart(InputPartition):
    """A partition of a spool."""

    value: Region


class SpooledItems(ItemsSource):
    """A spool as rows."""

    @classmethod
    def name(cls) -> str:
        return SPOOL

    def reader(self, schema: Any) -> DataSourceReader:
        places = [tuple(map(int, place.split(":"))) for place in self.options["places"].split(",")]
        regions = [Region(self.options["file"], start, end) for start, end in places]
        return RegionReader(regions, self.options["inline"] == "1", self.early)


class RegionReader(ItemsReader):
    """Reads parts of a spool."""

    def __init__(self, regions: list[Region], inline: bool, early: Early) -> None:
        super().__init__(early)
        self._regions = regions
        self._inline = inline

    def partitions(self) -> list[InputPartition]:
        if self._inline:
            return [SpoolPart(Region(each.path, each.start, each.end, each.read())) for each in self._regions]
        return [SpoolPart(each) for each in self._regions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self.made(unframed(partition.value.read()))


def unframed(data: bytes) -> Iterator[NewSegment]:
    """Iterate over the batches in a part of a spool."""
    place = 0
    while place < len(data):
        items, data_bytes, first_index, source_bytes = _HEADER.unpack_from(data, place)
        begin = place + _HEADER.size
        middle = begin + data_bytes
        place = middle + source_bytes
        yield NewSegment(items, data[begin:middle], first_index, data[middle:place] if source_bytes else None)


def spool_path(folder: Path, event_id: str) -> Path:
    """Make the path of an event's file, another one each time: the first run may still end during a redelivery."""
    return folder / f"{event_id}-{os.urandom(4).hex()}.spool"


class Origins:
    """The items of the event behind the items that came; a row of Spark keeps only the first of several.

    Attributes:
        end: beyond the highest index. With items left out, it exceeds their number.
    """

    def __init__(self) -> None:
        self.end = 0
        self._lists: dict[int, list[int] | None] = {}
        # A byte for each index: an event may have millions.
        self._alone = bytearray()

    @property
    def several(self) -> dict[int, list[int]]:
        """All the indexes behind an index, if it is the first of several.

        An index with different meanings is left out: nobody knows which of the items made a row, and no wrong item must
        be named.
        """
        return {
            first: indices for first, indices in self._lists.items() if indices is not None and not self._alone[first]
        }

    def note_following(self, first: int, items: int) -> None:
        """Note items that are of one each, from an index on."""
        self._reach(first + items - 1)
        self._alone[first : first + items] = b"\x01" * items

    def note(self, items: Sequence[Item]) -> None:
        """Note items that are of any."""
        for item in items:
            self._reach(max(item.indices, default=-1))
            if len(item.indices) > 1:
                same = self._lists.setdefault(item.index, item.indices) == item.indices
                self._lists[item.index] = item.indices if same else None
            elif item.indices:
                self._alone[item.index] = 1

    def _reach(self, index: int) -> None:
        self.end = max(self.end, index + 1)
        self._alone.extend(bytes(self.end - len(self._alone)))
