"""Readers turn a file into entries, and tell where they can't go on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a file: an item, or a fault in its place.

    Args:
        line: its first line, from 1.
        raw: gives the text as in the file, with its line's end.
        item: the item to send.
        fault: the fault, "" for a good entry; it names the field if one is bad.
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
    """Reads the entries of one file, and knows the form of a file with only some of them.

    Attributes:
        encoding: of such a file.
    """

    encoding: str

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over each entry, good or bad, in order.

        Raises:
            Unreadable: the rest can't be divided into entries.
        """

    def remark(self, sentence: str) -> str:
        """Write a line for people; nobody reads it as an entry."""

    def head(self, sentence: str) -> str:
        """Give the text before the entries, with a remark in it; known once the first one has been read."""

    def tail(self) -> str:
        """Give the text behind the entries."""
