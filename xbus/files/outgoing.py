"""A file that is sent as items."""

import hashlib
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import IO

from xbus.errors import Refused
from xbus.files.form import BAD_FILE, PIECE_BYTES
from xbus.rpc.codec import pack


class OutgoingFile:
    """Reads a file as items; to be used in ``with``.

    Args:
        path: of a regular file.
        name: for its recipients; None for the name that it has.
        piece_bytes: no item is larger, but for the first.

    Raises:
        OSError: it can't be read.
        Refused: it is no regular file (``bad_file``).
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None, piece_bytes: int = PIECE_BYTES) -> None:
        self._path = Path(path)
        self._name = self._path.name if name is None else name
        self._piece_bytes = piece_bytes
        self._digest = hashlib.sha256()
        self._file: IO[bytes] = self._path.open("rb", buffering=0)
        found = os.fstat(self._file.fileno())
        self._size = self._left = found.st_size
        self._is_begun = self._is_ended = False
        if not stat.S_ISREG(found.st_mode):
            self._file.close()
            raise Refused(f"{self._path} is not a regular file", "copy its content to a file first", code=BAD_FILE)

    def __enter__(self) -> "OutgoingFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def next_item(self) -> bytes | None:
        """Read the next item; None behind the last one.

        Raises:
            OSError: the file can't be read on.
            Refused: it became shorter or longer while it was read (``bad_file``).
        """
        if not self._is_begun:
            self._is_begun = True
            return pack({"file": self._name, "bytes": self._size})
        if self._left:
            return self._next_piece()
        if self._is_ended:
            return None
        self._is_ended = True
        if self._file.read(1):
            raise self._changed()
        return pack({"sha256": self._digest.digest()})

    def _next_piece(self) -> bytes:
        piece = self._file.read(min(self._left, self._piece_bytes))
        if not piece:
            raise self._changed()
        self._left -= len(piece)
        self._digest.update(piece)
        return piece

    def _changed(self) -> Refused:
        return Refused(
            f"{self._path} had {self._size} bytes, and changed while it was sent",
            "send it when nobody writes it any more",
            code=BAD_FILE,
        )
