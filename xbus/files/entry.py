"""The entries of a file of text: rows, lines or records, each an item or a fault."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
        encoding: the encoding that the file seems to have, "" where nothing shows one.
    """

    def __init__(self, line: int, reason: str, encoding: str = "") -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.encoding = encoding
