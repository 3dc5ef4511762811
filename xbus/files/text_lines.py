"""Text and its lines, out of bytes that come in parts and need not be text everywhere. Pure."""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from xbus.errors import Refused


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


DEFAULT_ENCODING = "utf-8"

NO_TEXT = "not text in"
"""Is in the sentence about bytes that the encoding does not have."""

LONGEST_LINE = 16_777_216
"""Characters of a line at the most. More would let one line fill the memory; items of the bus are no larger by far."""

_NO_TEXT = re.compile("[\ud800-\udfff]")
"""The characters that ``surrogateescape`` makes of bytes that are no text."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)")

_SIGN = re.compile(r"[\t\r\n -@\[-`{-~]")
_LETTER = re.compile("[A-Za-z]")
_END = re.compile(r"[\r\n]")

_MARK_BYTES = 4
"""The bytes of the longest byte order mark."""

_LOOK_BYTES = 4_096
"""Bytes that may show the encoding of a text without a mark. More delay a first line without an end."""

_NUL = "\0"
"""UTF-16 and UTF-32 have it beside each letter of ASCII. No text in UTF-8 has it."""

_WITHOUT_NUL = ("utf-8", "ascii")
"""The encodings in which a NUL is a fault. Files of mainframes may have it as a filler."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""The byte order marks. That of UTF-32 begins as that of UTF-16, so it comes first."""

_LONGEST_NAME = 80
"""Characters of the name of an encoding. Python keeps each name that it does not know: more fill memory."""

_ESCAPES = ("unicode-escape", "raw-unicode-escape")
"""Codecs for literals of Python. A backslash in a file would begin another character."""

_WIDE = ("utf-16", "utf-32")
"""The encodings whose order of bytes only a mark tells."""


MARKS = tuple(mark for mark, _ in _MARKS)


def say_nothing(sentence: str) -> None:
    """Keep a sentence from whoever does not want it."""


class TextLine(NamedTuple):
    """A line of a file.

    Args:
        number: from 1.
        text: with its end, which only the last line may lack.
    """

    number: int
    text: str


class TextDecoder:
    """Decodes bytes that come in parts. A byte order mark decides the encoding, whatever else names one.

    Bytes that are no text become lone surrogates, so that one bad line does not end the reading, and goes out as it
    came in.

    Args:
        encoding: a name that Python knows; "" for UTF-8.
        tell: takes the encoding that a mark shows, where another one is named.

    Raises:
        Refused: the encoding does not exist (``unknown_encoding``).

    Attributes:
        encoding: of a file with some of these lines. It is final once the first text has come.
        is_broken: whether nothing can be decoded any more.
    """

    def __init__(self, encoding: str = "", tell: Callable[[str], object] = say_nothing) -> None:
        self.encoding = encoding or DEFAULT_ENCODING
        self.is_broken = False
        self._is_named = bool(encoding)
        self._name = _known(self.encoding)
        self._tell = tell
        self._first = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    @property
    def label(self) -> str:
        """The encoding, for people."""
        return self.encoding.upper()

    def take(self, data: bytes, *, is_last: bool = False) -> str:
        """Decode the next bytes.

        Raises:
            Unreadable: the text has no mark, and an encoding that nobody named.
        """
        if self.is_broken:
            return ""
        if self._decoder is None:
            self._first += data
            if not is_last and not self._shows_enough(self._first):
                return ""
            self._decoder, data = self._begun(self._first)
        try:
            return self._decoder.decode(data, is_last)
        except UnicodeDecodeError as error:
            self.is_broken = True
            return bytes(error.object[: error.start]).decode(self._name, "replace")

    def fault(self, text: str) -> str:
        """Find the fault of a text as such, "" for a good one."""
        if not text.isascii() and _NO_TEXT.search(text):
            return f"this is {NO_TEXT} {self.label}"
        return f"this is {NO_TEXT} {self.label}: it has a NUL" if _NUL in text and self._name in _WITHOUT_NUL else ""

    def _shows_enough(self, first: bytes) -> bool:
        """Check whether the first bytes show the encoding. No line is complete before, so nobody waits longer."""
        if len(first) < _MARK_BYTES:
            return False
        if first.startswith(MARKS) or len(first) >= _LOOK_BYTES:
            return True
        return order_of(first) != "" if self._name in _WIDE else b"\n" in first or b"\r" in first

    def _begun(self, first: bytes) -> tuple[codecs.IncrementalDecoder, bytes]:
        """Choose the decoder by the first bytes; give it, and what follows the mark."""
        for mark, marked in _MARKS:
            if first.startswith(mark):
                first = first[len(mark) :]
                self._follow_mark(marked)
                break
        else:
            self._check_order(order_of(first))
        return codecs.getincrementaldecoder(self._name)("surrogateescape"), first

    def _follow_mark(self, marked: str) -> None:
        general = marked[:6] if marked.startswith(_WIDE) else marked
        if self._name not in (marked, general):
            if self._is_named:
                self._tell(f"its mark says {general.upper()}, so it is not read as {self.label}")
            # A copy of some of its lines has a mark, too.
            self.encoding = general
        self._name = marked

    def _check_order(self, order: str) -> None:
        if self._name in _WIDE:
            if not order.startswith(self._name):
                reason = f"this is {NO_TEXT} {self.label} with a mark, and nothing shows the order of its bytes"
                raise Unreadable(1, reason, f"{self._name}-be")
            self._name = self.encoding = order
        elif order and self._name in _WITHOUT_NUL:
            raise Unreadable(1, f"this is {NO_TEXT} {self.label}: it looks like {order.upper()} without a mark", order)


def _known(encoding: str) -> str:
    """Give the usual name of an encoding of text."""
    try:
        if len(encoding) > _LONGEST_NAME:
            raise LookupError(encoding)
        name = codecs.lookup(encoding).name
        text = "x".encode(encoding)
        # Codecs of host names raise for the way in which files are read.
        codecs.getincrementaldecoder(name)("surrogateescape").decode(text, final=True)
        if name in _ESCAPES:
            raise LookupError(encoding)
    except (LookupError, UnicodeError, ValueError) as error:
        raise Refused(
            f'there is no encoding "{encoding:.80}"', "name one that Python knows, as latin-1", code="unknown_encoding"
        ) from error
    return "utf-8" if name == "utf-8-sig" else name


def order_of(first: bytes) -> str:
    """Find the encoding of a text in UTF-16 or UTF-32 without a mark; "" where nothing shows it.

    Args:
        first: the first bytes. Blanks, digits, delimiters and ends of lines among them show the order.
    """
    head = first[:_LOOK_BYTES]
    if b"\0" not in head:
        return ""
    for wide in ("utf-32-be", "utf-32-le"):
        text = _decoded(head[: len(head) // 4 * 4], wide)
        if text and _NUL not in text:
            return wide
    return _order_of_pairs(head[: len(head) // 2 * 2])


def _decoded(data: bytes, encoding: str) -> str:
    """Decode bytes; "" where some of them are no text."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return ""


def _order_of_pairs(head: bytes) -> str:
    """Find the order of UTF-16 by the characters of ASCII: signs, or letters where neither order has signs."""
    texts = {order: head.decode(order, "replace") for order in ("utf-16-be", "utf-16-le")}
    counts = {order: len(_SIGN.findall(text)) for order, text in texts.items()}
    if not any(counts.values()):
        counts = {order: len(_LETTER.findall(text)) for order, text in texts.items()}
    worse, better = sorted(texts, key=counts.__getitem__)
    # An ideographic space of one order is a digit of the other, so a few signs prove nothing.
    if counts[better] <= 2 * counts[worse]:
        return ""
    # A line of UTF-8 with a NUL in it ends without one.
    ends = len(_END.findall(texts[better]))
    return better if 2 * ends >= head.count(b"\n") + head.count(b"\r") else ""


class LineDecoder:
    """Divides text that comes in parts into lines.

    Args:
        decoder: of the text.
        is_universal: whether CR alone ends a line, too.
        longest: characters of the longest line.
    """

    def __init__(self, decoder: TextDecoder, *, is_universal: bool, longest: int = LONGEST_LINE) -> None:
        self._decoder = decoder
        self._is_universal = is_universal
        self._longest = longest
        self._begun: list[str] = []
        self.kept = 0
        """Characters of the line that is not complete."""
        self._number = 0

    def take(self, data: bytes, *, is_last: bool = False) -> Iterator[TextLine]:
        """Iterate over the lines that are complete with the next bytes.

        Raises:
            Unreadable: the rest is no text, or a line is too long.
        """
        for text in self._divided(self._decoder.take(data, is_last=is_last), is_last=is_last):
            self._begun.append(text)
            line = "".join(self._begun)
            self._begun.clear()
            self.kept = 0
            self._check(len(line))
            self._number += 1
            yield TextLine(self._number, line)
        self._check(self.kept)
        if self._decoder.is_broken:
            raise Unreadable(self._number + 1, f"the rest is {NO_TEXT} {self._decoder.label}")

    def _divided(self, text: str, *, is_last: bool) -> Iterator[str]:
        """Iterate over the ends of lines in the text, and keep what follows the last one."""
        if self._is_universal and self._begun and self._begun[-1].endswith("\r"):
            # Only what follows says whether CR is the end, or the first half of it.
            text = self._begun.pop() + text
        if self._is_universal and "\r" in text:
            held = len(text) - 1 if text.endswith("\r") and not is_last else len(text)
            ends = _LINE.findall(text, 0, held)
            rest = text[sum(map(len, ends)) :]
            yield from ends
        else:
            *ends, rest = text.split("\n")
            for end in ends:
                yield end + "\n"
        if rest and is_last:
            yield rest
        elif rest:
            self._begun.append(rest)
        elif is_last and self._begun:
            yield ""
        self.kept = sum(map(len, self._begun))

    def _check(self, length: int) -> None:
        if length > self._longest:
            raise Unreadable(self._number + 1, f"the line is longer than {self._longest:,} characters")
