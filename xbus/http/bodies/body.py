"""The body of a request, as it comes, within the gateway's limits."""

from collections.abc import AsyncIterator

from xbus.errors import Failed, Refused


class Room:
    """Bounds the bytes that all requests keep together, while a document or a line is not complete or not sent yet.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def held(self, size: int) -> "HeldRoom":
        """Take room until it is closed. One that wants more than there is takes all.

        Raises:
            Failed: ``gateway_full``.
        """
        return HeldRoom(self, min(size, self._most))

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
    """The body of a request. What it keeps takes room until it is closed.

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

    def close(self) -> None:
        """Give the room back."""
        self.keep(-self._kept)

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
