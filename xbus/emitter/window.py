"""The window that limits how much may be in flight."""

import asyncio


class SendWindow:
    """Counts the bytes sent and not yet answered; its ``room`` makes a fast sender wait.

    Args:
        max_bytes: from this many bytes on it is full; the batch that passes the limit still goes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def is_open(self) -> bool:
        """Check whether a further batch may go now."""
        return self._bytes < self._max_bytes

    def take(self, size: int) -> None:
        """Count ``size`` bytes as sent."""
        self._bytes += size
        if not self.is_open():
            self._has_room.clear()

    def give(self, size: int) -> None:
        """Count ``size`` bytes as answered or abandoned."""
        self._bytes -= size
        if self.is_open():
            self._has_room.set()

    async def room(self) -> None:
        """Return when a further batch may go."""
        while not self.is_open():
            await self._has_room.wait()
