"""Text in lines, or in pieces of one length, out of a file that need not be text everywhere."""

import codecs
import io
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from xbus.admin.files.entry import Unreadable
from xbus.errors import XbusError

DEFAULT_ENCODING = "utf-8"

NO_TEXT = "not text in"
"""Is in the sentence about bytes that the encoding does not have."""

LONGEST_LINE = 16_777_216
"""Characters of the longest line. A file with a longer one has no lines."""

MARK = "#xbus# "
"""Begins a remark."""

TITLE = "bad lines of "
"""Begins the first remark. Only a file that begins with it has any: no line of another one is taken for a remark."""

_NO_TEXT = re.compile("[\ud800-\udfff]")
"""The characters that ``surrogateescape`` makes of bytes that are no text."""


class TextLine(NamedTuple):
    number: int
    text: str


class TextPiece(NamedTuple):
    line: int
    number: int
    offset: int
    text: str


class Text:
    """A file as text.

    Args:
        file: gives the bytes.
        encoding: a name that Python knows; UTF-8 may begin with a byte order mark.
        newline: the end of a line: "\n", or "" for any of CR, LF and CRLF.

    Raises:
        XbusError: the encoding does not exist (``unknown_encoding``).
    """

    def __init__(self, file: BinaryIO, encoding: str, newline: str = "") -> None:
        self.encoding = encoding
        try:
            name = codecs.lookup(encoding).name
            # What can't be decoded must not end the reading: it is one bad line, and goes out again as it came in.
            self._text = io.TextIOWrapper(
                file, "utf-8-sig" if name == "utf-8" else name, errors="surrogateescape", newline=newline
            )
        except LookupError as error:
            raise XbusError(
                f'there is no encoding "{encoding}"', "name one that Python knows, as latin-1", code="unknown_encoding"
            ) from error

    def lines(self) -> Iterator[TextLine]:
        """Iterate over each line with its end, without remarks.

        Raises:
            Unreadable: the file is not text in this encoding in a way that leaves no lines to tell apart.
        """
        number, has_remarks = 0, False
        while text := self._read_line(number + 1):
            number += 1
            has_remarks = text.startswith(MARK + TITLE) if number == 1 else has_remarks
            if not (has_remarks and text.startswith(MARK)):
                yield TextLine(number, text)

    def pieces(self, length: int) -> Iterator[TextPiece]:
        """Iterate over pieces of ``length`` characters, of which the last may be shorter, without remarks.

        Raises:
            Unreadable: as ``lines``.
        """
        line, number, offset, ahead = 1, 0, 0, ""
        has_remarks: bool | None = None
        while ahead := ahead + self._read(max(length, len(MARK + TITLE)) - len(ahead), line):
            has_remarks = ahead.startswith(MARK + TITLE) if has_remarks is None else has_remarks
            if has_remarks and ahead.startswith(MARK):
                if "\n" not in ahead:
                    ahead += self._read_line(line)
                ahead = ahead.partition("\n")[2]
                line += 1
            else:
                text, ahead = ahead[:length], ahead[length:]
                number += 1
                yield TextPiece(line, number, offset, text)
                line += text.count("\n")
                offset += len(text)

    def fault(self, text: str) -> str:
        """Find the fault of a text as such, "" for a good one."""
        return "" if text.isascii() or not _NO_TEXT.search(text) else f"this is {NO_TEXT} {self._label}"

    @property
    def _label(self) -> str:
        return self.encoding.upper()

    def _read_line(self, line: int) -> str:
        try:
            text = self._text.readline(LONGEST_LINE)
        except UnicodeDecodeError as error:
            raise Unreadable(line, f"the rest is {NO_TEXT} {self._label}") from error
        if len(text) >= LONGEST_LINE:
            raise Unreadable(line, f"the line is longer than {LONGEST_LINE:,} characters")
        return text

    def _read(self, characters: int, line: int) -> str:
        try:
            return self._text.read(max(characters, 0))
        except UnicodeDecodeError as error:
            raise Unreadable(line, f"the rest is {NO_TEXT} {self._label}") from error


class TextReader:
    """The common base of readers of ``Text``: a file with only some of their entries is text too.

    Args:
        text: the file.
    """

    def __init__(self, text: Text) -> None:
        self.encoding = text.encoding
        self._text = text
        self._head: list[str] = []
        """Lines that stand before the entries."""

    def remark(self, sentence: str) -> str:
        return remark(sentence)

    def head(self, sentence: str) -> str:
        return "".join([remark(sentence), *self._head])

    def tail(self) -> str:
        return ""


def ended(text: str) -> str:
    """Complete a line with its end, which the last one of a file may lack."""
    return text if text.endswith(("\n", "\r")) else text + "\n"


def remark(sentence: str) -> str:
    """Write a sentence as a line that ``Text`` leaves out."""
    return f"{MARK}{' '.join(sentence.split())}\n"
