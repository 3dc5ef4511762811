"""Writes and reads large files past the page cache, where system and file system allow it.

A page of the cache costs its first write, some 2 s of the processor for a gigabyte on a virtual machine, and it takes
the place of what others read. Such writes need memory and sizes in whole blocks, so all goes through a buffer. Where it
is not allowed, the same calls use the cache.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

BUFFER_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""Bytes that are written or read at once: a piece of a file with all that stands around it."""

_BLOCK_BYTES = 4096
_DIRECT = getattr(os, "O_DIRECT", 0)  # Linux has it


class DirectBuffers:
    """Lends buffers to threads, and keeps them: memory that is new costs more than the copy.

    Args:
        most: the buffers that are kept; more are made where more threads need one.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._free: list[mmap.mmap] = []

    @contextmanager
    def lend(self) -> Iterator[mmap.mmap]:
        """Give a buffer for the time of a block."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = mmap.mmap(-1, BUFFER_BYTES)
        yield buffer
        if len(self._free) < self._most:
            self._free.append(buffer)


class DirectFile:
    """Writes a file anew; to be used in ``with``, or closed.

    Args:
        path: of the file.
        mode: of a new file.
        buffer: of ``DirectBuffers``; None for one of its own.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666, buffer: mmap.mmap | None = None) -> None:
        self._buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES) if buffer is None else buffer)
        self._filled = 0
        self._size = 0
        self._descriptor, self._is_direct = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        self._is_closed = False

    def __enter__(self) -> "DirectFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, data: bytes) -> None:
        """Write behind what was written; it may stay in the buffer until ``sync``.

        Raises:
            OSError: it can't be written.
        """
        rest = memoryview(data)
        while rest:
            took = min(len(rest), len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + took] = rest[:took]
            self._filled += took
            self._size += took
            rest = rest[took:]
            if self._filled == len(self._buffer):
                self._put(self._filled)

    def sync(self) -> None:
        """Make durable all that was written. Nothing can follow.

        Raises:
            OSError: it can't be written.
        """
        if self._filled:
            # Whole blocks are written, and what is too much is cut off.
            self._put(-(-self._filled // _BLOCK_BYTES) * _BLOCK_BYTES)
            os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close it, whatever is written."""
        if not self._is_closed:
            self._is_closed = True
            self._buffer.release()
            os.close(self._descriptor)

    def _put(self, size: int) -> None:
        rest = self._buffer[:size]
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                if error.errno != errno.EINVAL or not self._is_direct:
                    raise
                # The file system has larger blocks, or took a part of one.
                self._is_direct = False
                _use_cache(self._descriptor)
        self._filled = 0


def read_direct(path: str | os.PathLike[str], buffer: mmap.mmap) -> bytes:
    """Read a whole file.

    Args:
        buffer: of ``DirectBuffers``.

    Raises:
        OSError: it can't be read.
    """
    descriptor, is_direct = _open(path, os.O_RDONLY)
    try:
        try:
            return _read_all(descriptor, buffer)
        except OSError as error:
            if error.errno != errno.EINVAL or not is_direct:
                raise
            _use_cache(descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            return _read_all(descriptor, buffer)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, buffer: mmap.mmap) -> bytes:
    parts: list[bytes] = []
    with memoryview(buffer) as view:
        while size := os.readv(descriptor, [view]):
            parts.append(bytes(view[:size]))
            if size % _BLOCK_BYTES:
                break  # the end: no further read would begin at a block
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> tuple[int, bool]:
    """Open a file past the cache, or through it; returns its descriptor, and whether it is past the cache."""
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT, mode), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags, mode), False


def _use_cache(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT)
