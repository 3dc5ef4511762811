"""Rows on their way from the tasks to the envelope: few ones in messages, many in files.

A file holds batches one after the other: the number of items and of bytes, 4 bytes big endian each, then the items as
msgpack bins. Only files that a message names count; a task that fails, or is done twice, leaves others, which are
removed with their folder.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs
from pyspark.sql.datasource import WriterCommitMessage

from spark_worker.spark.options import bad_option
from xbus.errors import Failed, Refused
from xbus.rpc.codec import pack_items, unpack_items

HEADER = struct.Struct("!II")

CHUNK_ITEMS = 1_000
"""As an emitter gathers them, too."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The staged items of a task.

    Args:
        partition: its number among the tasks; the envelope has their items in this order.
        items: the number of items.
        data: the batches themselves, if they are few.
        path: the file with them, otherwise.
        query: the streaming query; empty without one.
    """

    partition: int
    items: int
    data: bytes = b""
    path: str = ""
    query: str = ""


class Staging:
    """A folder for staged rows.

    Args:
        place: its path, or a URL that Arrow knows.

    Raises:
        ConfigurationError: Arrow does not know it.
    """

    def __init__(self, place: str) -> None:
        self._files: fs.FileSystem = fs.LocalFileSystem()
        self._root = place
        if "://" in place:
            self._files, self._root = _known(place)

    def stage(
        self, batches: Iterable[pa.RecordBatch], folder: Sequence[str], inline_bytes: int, partition: int, query: str
    ) -> Staged:
        """Stage the rows of a task.

        Args:
            batches: with a column ``data``.
            folder: below this one, where a file is needed.
            inline_bytes: up to so many bytes no file is needed.
            partition: the task's place.
            query: the streaming query; empty without one.

        Raises:
            Refused: a row has no data (``bad_items``).
            Failed: the folder can't be written (``staging_failed``).
        """
        held = BytesIO()
        chunks = _chunks(batches)
        items = 0
        for found in chunks:
            items += _write(held, found)
            if held.tell() > inline_bytes:
                with self._new_file(folder, partition) as (path, output):
                    output.write(held.getvalue())
                    items += sum(_write(output, following) for following in chunks)
                return Staged(partition, items, path=path, query=query)
        return Staged(partition, items, held.getvalue(), query=query)

    def items(self, staged: Staged) -> Iterator[list[bytes]]:
        """Iterate over the staged items of a task, batch by batch.

        Raises:
            Failed: the file does not exist, or has less than was written (``staging_lost``).
        """
        found = 0
        for batch in self._batches(staged):
            found += len(batch)
            yield batch
        if found != staged.items:
            raise _lost(staged, f"holds {found} items of {staged.items}")

    def remove(self, *folder: str) -> None:
        """Remove a folder, if it is there."""
        path = "/".join((self._root, *folder))
        if self._files.get_file_info(path).type is fs.FileType.Directory:
            self._files.delete_dir(path)

    def remove_empty(self, *folder: str) -> None:
        """Remove a folder, if it is there and nothing is in it."""
        if not self.names("/".join(folder)):
            self.remove(*folder)

    def remove_file(self, staged: Staged) -> None:
        """Remove a task's file, if it has one and it is there."""
        if staged.path and self._files.get_file_info(staged.path).type is fs.FileType.File:
            self._files.delete_file(staged.path)

    def names(self, folder: str) -> list[str]:
        """List the names in a folder; none if it does not exist."""
        selector = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        return [found.base_name for found in self._files.get_file_info(selector)]

    @contextmanager
    def _new_file(self, folder: Sequence[str], partition: int) -> Iterator[tuple[str, pa.NativeFile]]:
        parent = "/".join((self._root, *folder))
        # A task that is done again, or twice at a time, must not touch what the other one wrote.
        path = f"{parent}/{partition}-{uuid4().hex}.items"
        try:
            if isinstance(self._files, fs.LocalFileSystem):
                # Items are nobody else's business, and the folder may be one that all share.
                Path(self._root).mkdir(mode=0o700, parents=True, exist_ok=True)
                _check_owner(Path(self._root))
            self._files.create_dir(parent, recursive=True)
            with self._files.open_output_stream(path) as output:
                yield path, output
        except OSError as error:
            raise Failed(
                f"the folder {self._root}, where rows wait to be sent, can't be written ({error})",
                "give option stagingDir a folder that the driver and all executors can write",
                code="staging_failed",
            ) from error

    def _batches(self, staged: Staged) -> Iterator[list[bytes]]:
        if not staged.path:
            yield from _read(BytesIO(staged.data))
            return
        try:
            stream = self._files.open_input_stream(staged.path)
        except FileNotFoundError as error:
            raise _lost(staged, "is not there") from error
        with stream:
            yield from _read(stream)


def _check_owner(folder: Path) -> None:
    """Let a folder pass that belongs to this user or to root: its owner could put other items into the place of ours.

    Raises:
        Refused: it belongs to somebody else (``staging_not_ours``).
    """
    owner = folder.stat().st_uid
    if owner not in (os.geteuid(), 0):
        raise Refused(
            f"the folder {folder}, where rows wait to be sent, belongs to the user with the number {owner}",
            "give option stagingDir a folder of the user that Spark runs as",
            code="staging_not_ours",
        )


def _known(place: str) -> tuple[fs.FileSystem, str]:
    try:
        files, root = fs.FileSystem.from_uri(place)
    except (OSError, pa.ArrowException) as error:
        raise bad_option("stagingDir", place, f"is no folder that Arrow reaches ({error})") from error
    return files, root


def _lost(staged: Staged, how: str) -> Failed:
    return Failed(
        f"what a task staged in {staged.path or 'its message'} {how}",
        "give option stagingDir a folder that the driver and all executors see",
        code="staging_lost",
    )


def _write(output: Any, items: list[bytes]) -> int:
    data = pack_items(items)
    output.write(HEADER.pack(len(items), len(data)))
    output.write(data)
    return len(items)


def _read(stream: Any) -> Iterator[list[bytes]]:
    while len(header := stream.read(HEADER.size)) == HEADER.size:
        items, size = HEADER.unpack(header)
        data = stream.read(size)
        if len(data) < size:
            return
        yield unpack_items(data, items)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[list[bytes]]:
    for batch in batches:
        column = batch.column("data")
        if column.null_count:
            raise Refused("a row has no data", "leave out the rows whose column data is null", code="bad_items")
        # A text becomes the bytes of its encoding, UTF-8.
        items = column.cast(pa.binary()).to_pylist()
        for start in range(0, len(items), CHUNK_ITEMS):
            yield items[start : start + CHUNK_ITEMS]
