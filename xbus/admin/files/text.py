"""Text in lines, or in pieces of one length, out of a file that need not be text everywhere."""

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, cast

from xbus.files.entry import Unreadable
from xbus.files.text_lines import NO_TEXT, LineDecoder, TextDecoder, TextLine, say_nothing

MARK = "#xbus# "
"""Begins a remark."""

TITLE = "bad lines of "
"""Begins the first remark. Only a file that begins with it has any: no line of another one is taken for a remark."""

CHUNK_BYTES = 16_384
"""Bytes that are read at once. More are read ahead of what is sent, fewer cost more calls."""


class TextPiece(NamedTuple):
    line: int
    number: int
    offset: int
    text: str


class Text:
    """A file as text.

    Args:
        file: gives the bytes.
        encoding: a name that Python knows; "" for UTF-8. A byte order mark says it, too.
        tell: takes the encoding that a mark shows, where another one is named.
        is_universal: whether any of CR, LF and CRLF ends a line, or LF alone.

    Raises:
        Refused: the encoding does not exist (``unknown_encoding``).
    """

    def __init__(
        self,
        file: BinaryIO,
        encoding: str = "",
        tell: Callable[[str], object] = say_nothing,
        *,
        is_universal: bool = True,
    ) -> None:
        self.decoder = TextDecoder(encoding, tell)
        self._is_universal = is_universal
        # Pipes and unpacked files give what they have at once.
        self._read = cast(Callable[[int], bytes], getattr(file, "read1", file.read))

    def lines(self) -> Iterator[TextLine]:
        """Iterate over each line with its end, without remarks.

        Raises:
            Unreadable: the file is not text in this encoding in a way that leaves no lines to tell apart.
        """
        decoder, has_remarks, is_last = LineDecoder(self.decoder, is_universal=self._is_universal), False, False
        while not is_last:
            data = self._read(CHUNK_BYTES)
            is_last = not data
            for line in decoder.take(data, is_last=is_last):
                has_remarks = line.text.startswith(MARK + TITLE) if line.number == 1 else has_remarks
                if not (has_remarks and line.text.startswith(MARK)):
                    yield line

    def pieces(self, length: int) -> Iterator[TextPiece]:
        """Iterate over pieces of ``length`` characters, of which the last may be shorter, without remarks.

        Raises:
            Unreadable: as ``lines``.
        """
        ahead = _Ahead(self)
        line, number, offset, least = 1, 0, 0, max(length, len(MARK + TITLE))
        has_remarks = ahead.has(least) and ahead.starts_with(MARK + TITLE)
        while ahead.has(least, line):
            if has_remarks and ahead.starts_with(MARK):
                ahead.skip_line()
                line += 1
            else:
                text = ahead.take(length)
                number += 1
                yield TextPiece(line, number, offset, text)
                line += text.count("\n")
                offset += len(text)

    def next_text(self, line: int) -> str | None:
        """Read some text, which may be empty; None at the end.

        Raises:
            Unreadable: the rest is no text.
        """
        if self.decoder.is_broken:
            raise Unreadable(line, f"the rest is {NO_TEXT} {self.decoder.label}")
        data = self._read(CHUNK_BYTES)
        text = self.decoder.take(data, is_last=not data)
        return text if data or text else None


class _Ahead:
    """The text that is read ahead of the present piece.

    Args:
        text: the file.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._read = ""
        self._place = 0

    def has(self, characters: int, line: int = 1) -> bool:
        """Read until there are so many characters, or the file ends; say whether there are any."""
        while len(self._read) - self._place < characters and (more := self._text.next_text(line)) is not None:
            self._read, self._place = self._read[self._place :] + more, 0
        return len(self._read) > self._place

    def starts_with(self, text: str) -> bool:
        """Check what comes next."""
        return self._read.startswith(text, self._place)

    def take(self, characters: int) -> str:
        """Take so many characters, or what there is."""
        begin, self._place = self._place, min(self._place + characters, len(self._read))
        return self._read[begin : self._place]

    def skip_line(self) -> None:
        """Leave out everything up to the end of the line."""
        while (end := self._read.find("\n", self._place)) < 0:
            self._place = len(self._read)
            if not self.has(1):
                return
        self._place = end + 1


class TextReader:
    """The common base of readers of ``Text``: a file with only some of their entries is text too.

    Args:
        text: the file.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._head: list[str] = []
        """Lines that stand before the entries."""

    @property
    def encoding(self) -> str:
        return self._text.decoder.encoding

    def remark(self, sentence: str) -> str:
        return remark(sentence)

    def head(self, sentence: str) -> str:
        return "".join([remark(sentence), *self._head])

    def tail(self) -> str:
        return ""


def remark(sentence: str) -> str:
    """Write a sentence as a line that ``Text`` leaves out."""
    return f"{MARK}{' '.join(sentence.split())}\n"
