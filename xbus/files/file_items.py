"""Files as items of an event: the end that sends them, and the end that takes them."""

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from xbus.errors import ProtocolError, Refused
from xbus.rpc.codec import pack, unpack
from xbus.rpc.items import ITEM_HEADER_BYTES
from xbus.system.direct import DirectFile
from xbus.system.disk import sync_folder

_BLOCK_BYTES = 4096

PIECE_BYTES = 4 * 1024 * 1024 - _BLOCK_BYTES - ITEM_HEADER_BYTES
"""Bytes of a piece at the most. Larger ones cost fewer calls, commits and syncs, and more memory at each hop.

With its header a piece fills whole blocks of a disk. Two pieces fit into a window of 8 MiB, with what each call adds:
where only one fits, each end waits for the other.
"""

BAD_FILE = "bad_file"
"""The code of items that are no file, or not a whole one."""


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


@dataclass(frozen=True, slots=True)
class FileHead:
    """The first item of a file.

    Args:
        name: as its sender wrote it, with or without folders.
        size: the bytes of all pieces together.
    """

    name: str
    size: int

    @classmethod
    def of_item(cls, item: bytes) -> "FileHead":
        """Read the first item of a file.

        Raises:
            Refused: the item begins no file (``bad_file``).
        """
        try:
            match unpack(item):
                case {"file": str(name), "bytes": int(size)} if size >= 0 and not isinstance(size, bool):
                    return cls(name, size)
        except ProtocolError:
            pass
        raise Refused("the first item does not name a file and its size", "send it by send_file", code=BAD_FILE)

    @property
    def safe_name(self) -> str:
        """The name without folders, for a recipient that trusts the sender's choice of a name.

        Raises:
            Refused: nothing is left of it, or it is hidden (``bad_file``).
        """
        name = self.name.replace("\\", "/").rpartition("/")[2]
        if not name or name.startswith(".") or not name.isprintable() or len(os.fsencode(name)) > 255:
            raise Refused(f"a file can't be called {self.name!r} here", "choose its path yourself", code=BAD_FILE)
        return name


class IncomingFile:
    """Writes a file of items as they come. It appears at its path as a whole, when ``publish`` is called.

    Until then it is a hidden file in the same folder, named by ``mark``. Written again, it begins anew.

    Args:
        path: the place at which it is to appear; an existing folder, for the name that its sender gave it.
        mark: names what is written here, such as the id of the event.

    Raises:
        OSError: nothing can be written there.

    Attributes:
        head: the name and the size that the sender gave; None until the first item has come.
    """

    def __init__(self, path: str | os.PathLike[str], mark: str) -> None:
        self._path = Path(path)
        self._is_folder = self._path.is_dir()
        folder = self._path if self._is_folder else self._path.parent
        self._part = folder / f".{mark}.part"
        self._digest = hashlib.sha256()
        self._written = 0
        self._sent_digest: bytes | None = None
        self.head: FileHead | None = None
        self._file = DirectFile(self._part)

    @property
    def path(self) -> Path:
        """The place at which it is to appear; for a folder not known before the first item has come."""
        return self._path / self.head.safe_name if self._is_folder and self.head is not None else self._path

    def write(self, items: Iterable[bytes]) -> None:
        """Take the next items.

        Raises:
            OSError: they can't be written.
            Refused: they are no file (``bad_file``).
        """
        for item in items:
            if self.head is None:
                self.head = FileHead.of_item(item)
                _ = self.path  # refused now, and not when all has come
            elif self._written < self.head.size:
                self._write_piece(item, self.head.size)
            elif self._sent_digest is None:
                self._sent_digest = _digest_of(item)
            else:
                raise Refused("items follow the end of the file", "send one file in an event", code=BAD_FILE)

    def complete(self) -> None:
        """Make durable what has come, as a whole.

        Raises:
            OSError: it can't be written.
            Refused: something is missing, or differs from what was sent (``bad_file``).
        """
        if self.head is None or self._sent_digest is None:
            size = "an unknown number of" if self.head is None else self.head.size
            raise Refused(f"the file has {self._written} of {size} bytes, and no end", "send it again", code=BAD_FILE)
        if self._digest.digest() != self._sent_digest:
            raise Refused("the file does not have the hash that its sender gave", "send it again", code=BAD_FILE)
        self._file.sync()
        self._file.close()

    def publish(self) -> None:
        """Let the complete file appear at its path, in the place of one that is there.

        Raises:
            OSError: it can't.
        """
        self._part.replace(self.path)
        sync_folder(self._part.parent)

    def discard(self) -> None:
        """Remove what was written, unless it was published."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write_piece(self, item: bytes, size: int) -> None:
        self._written += len(item)
        if self._written > size:
            raise Refused(f"more than the {size} bytes of the file came", "send it again", code=BAD_FILE)
        self._file.write(item)
        self._digest.update(item)


def _digest_of(item: bytes) -> bytes:
    try:
        match unpack(item):
            case {"sha256": bytes(digest)}:
                return digest
    except ProtocolError:
        pass
    raise Refused("the last item does not have the hash of the file", "send it by send_file", code=BAD_FILE)
