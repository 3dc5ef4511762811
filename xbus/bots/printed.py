"""The end of what a child prints, bounded."""

import asyncio
import os


class Printed:
    """Reads a pipe, so that nobody who prints has to wait, and keeps the end.

    Args:
        source: the number of the pipe's end; it is closed with this object.
        most: the bytes that are kept.
    """

    def __init__(self, source: int, most: int) -> None:
        self._source = source
        self._most = most
        self._kept = bytearray()
        os.set_blocking(source, False)
        asyncio.get_running_loop().add_reader(source, self._read)

    def take(self) -> str:
        """Give what was printed since the last time, with all that is in the pipe now."""
        self._read(most_reads=1000)
        found = self._kept.decode(errors="replace")
        self._kept.clear()
        return found

    def _read(self, most_reads: int = 1) -> None:
        for _ in range(most_reads):
            try:
                data = os.read(self._source, 65_536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._source)
                return
            self._kept += data
            del self._kept[: -self._most]

    def close(self) -> None:
        """Read nothing more."""
        asyncio.get_running_loop().remove_reader(self._source)
        os.close(self._source)
