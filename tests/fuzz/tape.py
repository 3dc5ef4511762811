"""Random bytes, read as a row of choices."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Tape:
    """Gives choices until its bytes end; from there on it gives the first one each time.

    Args:
        data: any bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The bytes that are left."""
        return len(self._data) - self._at

    def number(self, below: int) -> int:
        """Choose a number from 0 up to one below ``below``, of up to 16 bits."""
        if below > 256:
            return int.from_bytes(self.bytes(2), "little") % below
        at = self._at
        if at == len(self._data):
            return 0
        self._at = at + 1
        return self._data[at] % below

    def one_of(self, choices: Sequence[T]) -> T:
        """Choose one."""
        return choices[self.number(len(choices))]

    def rarely(self, of: int = 8) -> bool:
        """Say yes once in so many times; no where the tape has ended."""
        return self.number(of) == of - 1

    def bytes(self, length: int) -> bytes:
        """Take so many bytes, or those that are left."""
        taken = self._data[self._at : self._at + length]
        self._at = min(self._at + length, len(self._data))
        return taken

    def text(self, longest: int) -> str:
        """Take a text; bytes that are no UTF-8 become surrogates, which no text of the wire has."""
        return self.bytes(self.number(longest + 1)).decode("utf-8", "replace")
