"""The body of a request, as it comes, within the gateway's limits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sized
from typing import TypeVar

from xbus.errors import Failed, Refused
from xbus.json_text import parse_json

Text = TypeVar("Text", bound=Sized)
Found = TypeVar("Found")

MOST_VALUES = 1_000_000
"""The values of a document that is read as a whole. More take more memory, many times that of their text."""

VALUE_BYTES = 100
"""Bytes that a value takes in memory, about, with its place in a list or a map."""

UNCOUNTED_BYTES = 65_536
"""Documents up to this size are small enough, whatever is in them."""

SEPARATORS = (b",", b":", b"[", b"{")
"""One of these bytes comes before each value of JSON but the first. Bytes within texts count, too."""


class Room:
    """Bounds the bytes that all requests keep together, of documents and lines that are not complete or not sent yet.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    @property
    def taken(self) -> int:
        """The bytes that are taken."""
        return self.most - self._left

    def held(self, size: int) -> "HeldRoom":
        """Take room until it is closed. A request that wants more than the whole room takes all.

        Raises:
            Failed: ``gateway_full``.
        """
        return HeldRoom(self, min(size, self.most))

    def take(self, size: int) -> None:
        """Take room; a negative size gives some back.

        Raises:
            Failed: other requests have it (``gateway_full``).
        """
        if size > self._left:
            raise Failed("other requests fill the memory of the gateway", "send it again", code="gateway_full")
        self._left -= size


class HeldRoom:
    """Some of the room, until it is closed.

    Args:
        room: all of it.
        size: bytes.
    """

    def __init__(self, room: Room, size: int) -> None:
        room.take(size)
        self._room = room
        self._size = size

    def close(self) -> None:
        """Give it back; again it does nothing."""
        size, self._size = self._size, 0
        self._room.take(-size)


class Body:
    """The body of a request. Its kept bytes take room until it is closed.

    Args:
        parts: as they come.
        room: bounds what is kept of all bodies.
        most_kept: the most bytes of it that are kept at once.
    """

    def __init__(self, parts: AsyncIterator[bytes], room: Room, most_kept: int) -> None:
        self._most_kept = most_kept
        self._parts = parts
        self._room = room
        self._kept = 0
        self._made = 0

    def close(self) -> None:
        """Give the room back."""
        self.keep(-self._kept)
        self.unmake()

    def unmake(self) -> None:
        """Give the room of the values back."""
        made, self._made = self._made, 0
        self._room.take(-made)

    async def json_text(self) -> bytes:
        """Read all of it, and take room for the values that are to be made of it.

        Raises:
            Refused: it is too large for that, or has too many values (``body_too_large``).
            Failed: ``gateway_full``.
        """
        text = await self.whole()
        self.make_of_json(text)
        return text

    async def json(self) -> object:
        """Read all of it as JSON.

        Raises:
            Refused: it is no JSON (``bad_body``), or as of :meth:`json_text`.
            Failed: ``gateway_full``.
        """
        return await off_loop(read_json, await self.json_text())

    def make_of_json(self, text: bytes) -> None:
        """Take room for the values that are to be made of a document or a line.

        Raises:
            Refused: there are too many (``body_too_large``).
            Failed: ``gateway_full``.
        """
        if len(text) > UNCOUNTED_BYTES:
            self.make(1 + sum(map(text.count, SEPARATORS)))

    def make(self, values: int) -> None:
        """Take room for values. A request that needs more than the whole room takes all.

        Raises:
            Refused: there are too many (``body_too_large``).
            Failed: other requests have the room (``gateway_full``).
        """
        if values > MOST_VALUES:
            raise Refused(
                f"the document has {values:,} values, and more than {MOST_VALUES:,} are not read as a whole",
                "send items line by line, as application/x-ndjson",
                code="body_too_large",
            )
        size = min(values * VALUE_BYTES, self._room.most - self._kept - self._made)
        self._room.take(size)
        self._made += size

    def parts(self) -> AsyncIterator[bytes]:
        """Give its parts, as they come. The caller reports kept bytes by :meth:`hold`."""
        return self._parts

    async def whole(self) -> bytes:
        """Read all of it.

        Raises:
            Refused: it is too large for that (``body_too_large``).
            Failed: ``gateway_full``.
        """
        parts: list[bytes] = []
        async for part in self._parts:
            self.keep(len(part))
            parts.append(part)
        return b"".join(parts)

    async def lines(self) -> AsyncIterator[bytes]:
        """Iterate over its lines, each with its end; only the last may lack it.

        Raises:
            Refused: a line is too large (``body_too_large``).
            Failed: ``gateway_full``.
        """
        rest: list[bytes] = []
        of_line = 0
        async for part in self._parts:
            *lines, last = part.split(b"\n")
            for line in lines:
                rest.append(line)
                yield b"".join(rest) + b"\n"
                rest = []
                self.keep(-of_line)
                of_line = 0
            rest.append(last)
            self.keep(len(last))
            of_line += len(last)
        if of_line:
            yield b"".join(rest)

    def hold(self, kept: int) -> None:
        """Take room for so many bytes in all, and give back what was kept beyond.

        Raises:
            Refused: it is more than is allowed at once (``body_too_large``).
            Failed: ``gateway_full``.
        """
        self.keep(kept - self._kept)

    def keep(self, more: int) -> None:
        """Take room for bytes that are kept; a negative number gives some back.

        Raises:
            Refused: more would be kept than is allowed at once (``body_too_large``).
            Failed: ``gateway_full``.
        """
        if self._kept + more > self._most_kept:
            raise Refused(
                f"a document or a line has more than {self._most_kept} bytes",
                "send items line by line, as application/x-ndjson",
                code="body_too_large",
            )
        self._room.take(more)
        self._kept += more


async def off_loop(read: Callable[[Text], Found], text: Text) -> Found:
    """Read a text; a large one in a thread, as it would keep other requests waiting."""
    return read(text) if len(text) <= UNCOUNTED_BYTES else await asyncio.to_thread(read, text)


def read_json(text: bytes, place: str = "the body") -> object:
    """Read a text of JSON.

    Args:
        text: in UTF-8.
        place: where it is, for the error.

    Raises:
        Refused: the text is no JSON, or something of it would get lost (``bad_body``).
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refused(f"{place} is no JSON ({error!s:.160})", "correct it", code="bad_body") from None
