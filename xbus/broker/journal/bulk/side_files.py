"""Files beside an SQLite journal, in which executors leave the parts of an output: only one process writes to the
journal at a time, so the broker takes them over.

``xbus.db.bulk/<attempt>/<part>.segments`` holds the rows of a part as PostgreSQL's COPY would take them. It is there
from the moment on that all of it is on the disk; what is still being written has another name.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import sqlalchemy as sa

from xbus import private_files
from xbus.errors import JournalUnavailable
from xbus.ids import parse_uuid
from xbus.system.disk import sync_folder

SUFFIX = ".segments"


def folder_of(url: sa.URL) -> Path | None:
    """Give the folder of a journal's side files; None for PostgreSQL and SQLite in memory, which need none."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    assert url.database is not None
    return Path(os.path.abspath(url.database) + ".bulk")


def path_of(folder: Path, attempt_id: UUID, part: int) -> Path:
    """Give the path of a part's file."""
    return folder / str(attempt_id) / f"{part}{SUFFIX}"


def parts_of(folder: Path, attempt_id: UUID) -> list[int]:
    """List the existing parts of an attempt, in order.

    Raises:
        JournalUnavailable: the folder can't be read.
    """
    names = _names_in(folder / str(attempt_id))
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


@contextmanager
def new_file(path: Path) -> Iterator["NewFile"]:
    """Write a file that gets its name, in place of an older one, only if no error ends it.

    Raises:
        JournalUnavailable: the disk is full, or the folder can't be written.
    """
    with disk_errors(path):
        # The outer folder keeps others out of all that is in it.
        path.parent.parent.mkdir(mode=private_files.FOLDER_MODE, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.unfinished")
        file = unfinished.open("xb")
    try:
        with file:
            yield NewFile(file, path)
            with disk_errors(path):
                file.flush()
                os.fsync(file.fileno())
        with disk_errors(path):
            os.replace(unfinished, path)
            sync_folder(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


class NewFile:
    """A file that is being written.

    Args:
        file: open.
        path: its future name.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path

    def write(self, pieces: Iterable[bytes]) -> None:
        """Write some pieces behind what is there.

        Raises:
            JournalUnavailable: the disk is full.
        """
        with disk_errors(self._path):
            self._file.writelines(pieces)


def attempts_with_files(folder: Path) -> list[UUID]:
    """List the attempts that left files, whatever became of them.

    Raises:
        JournalUnavailable: the folder can't be read.
    """
    found = [parse_uuid(name) for name in _names_in(folder)]
    return [attempt_id for attempt_id in found if attempt_id is not None]


def _names_in(folder: Path) -> list[str]:
    """List the names in a folder; none if it does not exist."""
    with disk_errors(folder):
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []


def remove(folder: Path, attempt_id: UUID) -> None:
    """Remove all files of an attempt; what can't be removed now stays for the next time."""
    own = folder / str(attempt_id)
    try:
        for path in own.iterdir():
            path.unlink(missing_ok=True)
        own.rmdir()
    except OSError:
        # An executor that does not know yet that nobody wants it may have just written another one.
        pass


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Let an error of the disk out as one of the journal.

    Args:
        path: what is used.

    Raises:
        JournalUnavailable: it is full, or can't be written.
    """
    try:
        yield
    except OSError as error:
        raise JournalUnavailable(
            f"the side file {path} can't be used ({error.strerror or error})",
            "see that its disk has room and that both broker and worker may write beside the database, then repeat",
        ) from error
