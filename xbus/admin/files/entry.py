"""Readers turn a file into entries, and tell where they can't go on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands at one place of a file: an item, or what is wrong there.

    Args:
        line: where it begins, from 1.
        raw: gives the text as it stands in the file, with its line's end.
        item: what is to be sent.
        fault: what is wrong, "" for a good entry; names the field where it is one's.
    """

    line: int
    raw: Callable[[], str]
    item: Any = None
    fault: str = ""


class Unreadable(Exception):
    """A file from which nothing more can be read.

    Args:
        line: where, from 1.
        reason: why, without a final full stop.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


class EntryReader(Protocol):
    """Reads the entries of one file. Knows how a file that holds only some of them must look.

    Attributes:
        encoding: of such a file.
    """

    encoding: str

    def __iter__(self) -> Iterator[Entry]:
        """Each entry, good or bad, in order.

        Raises:
            Unreadable: what follows can't be told apart.
        """

    def remark(self, sentence: str) -> str:
        """A line for people; it is not read as an entry."""

    def head(self, sentence: str) -> str:
        """What goes before the entries, a remark among it; known once the first one has been read."""

    def tail(self) -> str:
        """What goes behind the entries."""
