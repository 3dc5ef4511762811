"""The bytes of a file, or of the standard input: counted, and unpacked where gzip has packed them."""

import gzip
import io
import sys
from pathlib import Path
from typing import BinaryIO, cast

STANDARD_INPUT = Path("-")

PACKED = ".gz"

MAGIC = b"\x1f\x8b"
"""The first bytes of what gzip has packed (RFC 1952, 2.3.1). No text begins with them."""


class Source:
    """A file that is being read.

    Args:
        path: the file; ``-`` for the standard input. One that is packed by gzip, or whose name ends in ``.gz``, is
            unpacked.

    Raises:
        OSError: it can't be read.

    Attributes:
        name: for people.
        size: in bytes, packed as it is; None where nobody knows.
        file: gives the bytes, unpacked.
    """

    def __init__(self, path: Path) -> None:
        self._counted: _CountedFile | None = None
        if path == STANDARD_INPUT:
            self.name, self.size = "standard input", None
            self.file = _unpacked(sys.stdin.buffer, is_packed=False)
            return
        self.name, self.size = str(path), path.stat().st_size
        self._counted = _CountedFile(path)
        # FileIO has all that BinaryIO demands but lines.
        buffered = cast(BinaryIO, io.BufferedReader(self._counted))
        self.file = _unpacked(buffered, is_packed=path.suffix.lower() == PACKED)

    @property
    def count(self) -> int:
        """The bytes read so far, packed as they are; 0 of the standard input."""
        return 0 if self._counted is None else self._counted.count

    def close(self) -> None:
        """Close the file; the standard input is not ours."""
        if self._counted is not None:
            self._counted.close()


def _unpacked(file: BinaryIO, *, is_packed: bool) -> BinaryIO:
    if is_packed or (isinstance(file, io.BufferedReader) and file.peek(len(MAGIC)).startswith(MAGIC)):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    return file


class _CountedFile(io.FileIO):
    """A file that knows how much of it has been read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.count = 0
        """In bytes."""

    def readinto(self, buffer: bytearray) -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self.count += count or 0
        return count
