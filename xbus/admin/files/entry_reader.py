"""Readers turn a file into entries, and tell where they can't go on."""

from collections.abc import Iterator
from typing import Protocol

from xbus.files.entry import Entry


class EntryReader(Protocol):
    """Reads the entries of one file, and knows the form of a file with only some of them."""

    @property
    def encoding(self) -> str:
        """The encoding of such a file; known once the first entry has been read."""

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
