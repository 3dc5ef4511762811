"""The ways to treat a bad line: stop, skip it, or collect it in a file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

from xbus.admin.files.item_file import ItemFile
from xbus.admin.files.text import TITLE
from xbus.errors import XbusError
from xbus.files.entry import Entry
from xbus.files.text_lines import NO_TEXT


class StopAtBadLine:
    """Ends everything at the first bad line."""

    count = 0

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the fault.

        Raises:
            XbusError: always (``bad_line``).
        """
        other = ", or name its encoding with --encoding" if NO_TEXT in fault else ""
        step = f"correct the line and send the file again{other}"
        raise XbusError(file.describe(entry, fault), step, code="bad_line")

    def finish(self) -> None:
        """Do nothing: it has no file."""

    def __enter__(self) -> "StopAtBadLine":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SkipBadLines(StopAtBadLine):
    """Tells each bad line and goes on.

    Args:
        tell: takes what is wrong with each.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.count = 0
        """Bad lines so far."""

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the line and count it."""
        self.count += 1
        self._tell(file.describe(entry, fault))


class CollectBadLines(SkipBadLines):
    """Tells each bad line and writes it into a file, which can be sent once they are corrected.

    Args:
        tell: takes what is wrong with each.
        path: the file, which must not be there yet; it is written when the first bad line comes, and taken away again
            when the sending ends in an error before ``finish``.

    Raises:
        XbusError: the file is there (``file_exists``).
    """

    def __init__(self, tell: Callable[[str], object], path: Path) -> None:
        super().__init__(tell)
        self.path = path
        self._file: TextIO | None = None
        self._tail = ""
        self._is_finished = False
        if path.exists():
            self._refuse_present()

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the line, count it and write it.

        Raises:
            XbusError: the file can't be written (``unwritable_file``, ``file_exists``).
        """
        super().meet(file, entry, fault)
        reader = file.reader
        try:
            if self._file is None:
                self._file = self.path.open("x", encoding=reader.encoding, errors="surrogateescape", newline="")
                self._file.write(reader.head(f"{TITLE}{file.name}: correct them below the remarks, and send this file"))
                self._tail = reader.tail()
            self._file.write(reader.remark(file.describe(entry, fault)) + entry.raw())
        except FileExistsError:
            self._refuse_present()
        except OSError as error:
            self._refuse_writing(error)

    def finish(self) -> None:
        """See that what was written stays, before anything is sealed without it.

        Raises:
            XbusError: the file can't be written (``unwritable_file``).
        """
        if self._file is not None:
            try:
                self._file.write(self._tail)
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                self._refuse_writing(error)
        self._is_finished = True

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError:
            pass  # Told by finish, or by the error that ends all this.
        if not self._is_finished:
            self.path.unlink(missing_ok=True)

    def _refuse_present(self) -> NoReturn:
        raise XbusError(f"{self.path} exists already", "name a new file for the bad lines", code="file_exists")

    def _refuse_writing(self, error: OSError) -> NoReturn:
        raise XbusError(
            f"{self.path} can't be written ({error.strerror})",
            "make room, or name another file",
            code="unwritable_file",
        ) from error
