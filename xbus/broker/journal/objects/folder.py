"""Objects as files in a folder: ``ab/abcd...``, each written beside its place, synced, and then renamed to it."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from xbus.broker.journal.objects.stores import MARK, ListedObject, away, missing, store_errors
from xbus.system.direct import DirectBuffers, DirectFile, read_direct
from xbus.system.disk import sync_folder

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
