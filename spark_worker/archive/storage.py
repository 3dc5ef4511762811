"""Storage of archives: a folder, or a URI that pyarrow or fsspec can reach. A file appears whole or not at all."""

import glob
import os
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as fs

from xbus.errors import ConfigurationError, JournalError
from xbus.system.disk import sync_folder

LOCAL = "file://"


_LOCAL_ONE_SLASH = re.compile(r"file:(?=/(?!/))")


def absolute(place: str) -> str:
    """Complete the address of a folder or URI that a person named.

    Raises:
        ConfigurationError: the URI names a kind of storage and no place there, or contains a password, which the
            journal would keep and show.
    """
    if "://" not in place:
        return str(Path(_LOCAL_ONE_SLASH.sub("", place, 1)).absolute())
    if not place.partition("://")[2].strip("/"):
        raise ConfigurationError(f"{place} names no place", "write it like s3://bucket/archive")
    if "@" in place.partition("://")[2].partition("/")[0]:
        raise ConfigurationError(
            "the place contains a key or password, which everybody would see who looks at the archive",
            "give it by the storage's own means, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return place


def below(place: str, relative: str) -> str:
    """Give the address of something below a place; the part of a URI behind a ``?`` stays behind it."""
    base, question, options = place.partition("?") if "://" in place else (place, "", "")
    return f"{base.rstrip('/')}/{relative}{question}{options}"


def publish(location: str, write: Callable[[IO[bytes] | Any], None]) -> int:
    """Let a file appear with all that ``write`` puts into it, or not at all, safe from power loss.

    Returns:
        Its size in bytes.

    Raises:
        OSError: it can't be written.
    """
    local = _local_path(location)
    if local is not None:
        return _publish_locally(local, write)
    filesystem, path = reach(location)
    if not isinstance(filesystem, fs.S3FileSystem):
        filesystem.create_dir(os.path.dirname(path), recursive=True)
    try:
        # An object appears when it is closed, which Arrow does after an error, too.
        with filesystem.open_output_stream(path) as sink:
            write(sink)
    except BaseException:
        with suppress(OSError):
            filesystem.delete_file(path)
        raise
    return int(filesystem.get_file_info(path).size)


def _publish_locally(path: Path, write: Callable[[IO[bytes]], None]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers of the folder pass over names that begin with a dot.
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    # The folders' own entries too: a day's, its type's and theirs may all be new.
    for folder in list(path.parents)[:4]:
        sync_folder(folder)
    return path.stat().st_size


def remove(location: str) -> None:
    """Remove a file with all that is left of tries to write it; it may not be there.

    Raises:
        OSError: it can't be removed.
    """
    local = _local_path(location)
    if local is not None:
        try:
            local.unlink(missing_ok=True)
        except NotADirectoryError:
            # What should have been a folder is a file: nothing was ever written there.
            return
        for part in local.parent.glob(f".{glob.escape(local.name)}.*.part"):
            part.unlink(missing_ok=True)
        return
    filesystem, path = reach(location)
    try:
        filesystem.delete_file(path)
    except FileNotFoundError:
        pass


def read(location: str) -> pa.NativeFile:
    """Open a file by pyarrow.

    Raises:
        JournalError: there is none (``archive_missing``).
        OSError: it can't be read.
    """
    filesystem, path = reach(location)
    try:
        return filesystem.open_input_file(path)
    except FileNotFoundError as error:
        cause = f"{location}, a file of the archive, is not there"
        raise JournalError(cause, "bring it back to this place, as from a copy", code="archive_missing") from error


def reach(location: str) -> tuple[fs.FileSystem, str]:
    """Find the file system of a location, and the path in it.

    Raises:
        ConfigurationError: no file system fits such an address.
    """
    local = _local_path(location)
    if local is not None:
        return fs.LocalFileSystem(), str(local)
    try:
        filesystem, path = fs.FileSystem.from_uri(location)
    except pa.ArrowInvalid as error:
        return _by_fsspec(location, error)
    return filesystem, path


def _by_fsspec(location: str, error: Exception) -> tuple[fs.FileSystem, str]:
    try:
        import fsspec  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigurationError(
            f"no installed file system reaches {location} ({error})",
            "install fsspec and its package for such addresses",
        ) from error
    try:
        filesystem, path = fsspec.core.url_to_fs(location)
    except (ValueError, ImportError) as unknown:
        raise ConfigurationError(f"{location} can't be reached ({unknown})", "give --to another address") from unknown
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def damaged(location: str, cause: str) -> JournalError:
    """Make the error for a file with other content than it should have."""
    return JournalError(f"{location} is damaged: {cause}", "restore it from a copy", code="archive_differs")


def _local_path(location: str) -> Path | None:
    if location.startswith(LOCAL):
        return Path(location.removeprefix(LOCAL))
    return None if "://" in location else Path(location)
