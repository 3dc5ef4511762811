"""A file that is written from the items that have come."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from xbus.errors import ProtocolError, Refused
from xbus.files.form import BAD_FILE
from xbus.rpc.codec import unpack
from xbus.system.direct import DirectFile
from xbus.system.disk import sync_folder


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
