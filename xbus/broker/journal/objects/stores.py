"""An object store as the journal sees it, in a folder or elsewhere. Every call may block: none runs on the loop."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from xbus.errors import JournalError, JournalUnavailable
from xbus.system.direct import DirectBuffers, DirectFile, read_direct
from xbus.system.disk import sync_folder

UNAVAILABLE = "objects_unavailable"
"""The code of the error of a store that can't be read or written now."""

MISSING = "object_missing"
"""The code of the error of an object that a segment refers to, and that its store does not have."""

MARK = "xbus-objects.json"
"""The file by which a store tells to which journal it belongs."""


class ListedObject(NamedTuple):
    """An object that a store has; ``written_at`` in seconds since 1970, by the clock of the store."""

    hash: bytes
    written_at: float


class ObjectStore(Protocol):
    """Keeps objects by the SHA-256 of their data.

    Every method raises JournalUnavailable (``objects_unavailable``) where the store can't do it now.
    """

    place: str

    def put(self, digest: bytes, data: bytes) -> None:
        """Make an object durable; one that is there already stays, if it has this data."""

    def get(self, digest: bytes) -> bytes:
        """Give an object as it is stored.

        Raises:
            JournalError: it is not there (``object_missing``).
        """

    def remove(self, digest: bytes) -> None:
        """Remove an object; it may not be there."""

    def listed(self) -> Iterator[ListedObject]:
        """Iterate over all objects, and clean up what broken-off writes have left."""

    def read_mark(self) -> bytes | None:
        """Give the content of the file that tells whose the store is; None without it."""

    def write_mark(self, content: bytes) -> None:
        """Write that file, as a whole."""

    def is_empty(self) -> bool:
        """Check whether the store is empty, so that a journal may claim it; a missing store is empty, too."""


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turn errors of the operating system into ours.

    Raises:
        JournalUnavailable: the store can't do it now (``objects_unavailable``).
    """
    try:
        yield
    except OSError as error:
        raise JournalUnavailable(
            f"the object store {place} can't be used now ({error.strerror or error})",
            "see that it is there, has room, and belongs to the broker's user",
            code=UNAVAILABLE,
        ) from error


def away(place: str) -> JournalUnavailable:
    """Make the error for a store without its mark: all of it is away, not one object."""
    return JournalUnavailable(
        f"the object store {place} has no {MARK}, so nothing of it is there now",
        "see that it is mounted, or restore all of it from a copy",
        code=UNAVAILABLE,
    )


def missing(place: str, digest: bytes) -> JournalError:
    """Make the error for an object that is not there."""
    return JournalError(
        f"the object {digest.hex()} is not in {place}",
        "see that the store is mounted and whole, or restore the object from a copy",
        code=MISSING,
    )


# -- folder ------------------------------------------------------------------------------------------------------------
# Objects as files in a folder: ``ab/abcd...``, each written beside its place, synced, and then renamed to it.

PARTS = "parts"
"""The folder of files that are being written."""

LEFT_SECONDS = 3600.0
"""Seconds after which a file that is being written was left by a crash."""

BUFFERS = 4
"""Buffers that are kept for as many threads."""


class FolderStore:
    """Keeps objects in a folder of this machine, or one that is mounted.

    Args:
        folder: made with the first object, readable by its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder
        self._buffers = DirectBuffers(BUFFERS)

    def put(self, digest: bytes, data: bytes) -> None:
        with store_errors(self.place):
            path = self._path(digest)
            if not _holds(path, data):
                self._write(path, data)
            # Also of one that was there: its writer may have died before it did so.
            sync_folder(path.parent)
            # Looked for behind the writing: without it all of this lies in the empty folder below the right one.
            if not (self._folder / MARK).exists():
                raise away(self.place)

    def get(self, digest: bytes) -> bytes:
        with store_errors(self.place):
            try:
                with self._buffers.lend() as buffer:
                    return read_direct(self._path(digest), buffer)
            except FileNotFoundError:
                raise missing(self.place, digest) from None

    def remove(self, digest: bytes) -> None:
        with store_errors(self.place):
            self._path(digest).unlink(missing_ok=True)

    def listed(self) -> Iterator[ListedObject]:
        with store_errors(self.place):
            self._remove_left_parts()
            for folder in sorted(self._folder.glob("[0-9a-f][0-9a-f]")):
                for entry in os.scandir(folder):
                    if _is_name(entry.name):
                        yield ListedObject(bytes.fromhex(entry.name), entry.stat().st_mtime)

    def read_mark(self) -> bytes | None:
        with store_errors(self.place):
            try:
                return (self._folder / MARK).read_bytes()
            except FileNotFoundError:
                return None

    def write_mark(self, content: bytes) -> None:
        with store_errors(self.place):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(self._folder / MARK, content)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)

    def is_empty(self) -> bool:
        with store_errors(self.place):
            return not self._folder.exists() or not any(name != PARTS for name in os.listdir(self._folder))

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._folder / name[:2] / name

    def _write(self, path: Path, data: bytes) -> None:
        parts = self._folder / PARTS
        part = parts / f"{path.name}.{uuid.uuid4().hex}"
        for folder in (parts, path.parent):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_folder(self._folder)
        try:
            with self._buffers.lend() as buffer, DirectFile(part, 0o600, buffer) as file:
                file.write(data)
                file.sync()
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _remove_left_parts(self) -> None:
        parts = self._folder / PARTS
        for name in os.listdir(parts) if parts.is_dir() else ():
            part = parts / name
            try:
                if part.stat().st_mtime < time.time() - LEFT_SECONDS:
                    part.unlink()
            except FileNotFoundError:
                continue  # it has its place by now


def _holds(path: Path, data: bytes) -> bool:
    """Check whether a file has this content: a damaged one is written anew."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _is_name(name: str) -> bool:
    return len(name) == 64 and not set(name) - set("0123456789abcdef")
