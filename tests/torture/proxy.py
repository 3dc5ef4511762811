"""A connection that can be cut, or held so that nothing passes while both ends think all is well."""

import asyncio
import socket
import time
from collections.abc import Awaitable

CHUNK_BYTES = 65_536


class Proxy:
    """Passes bytes between whoever connects to it and a program on this machine.

    Args:
        target: the port of the program.

    Attributes:
        port: its own, taken already.
        came: when each connection came, in seconds.
    """

    def __init__(self, target: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._target = target
        self.came: list[float] = []
        self._open = asyncio.Event()
        self._open.set()
        self._is_refusing = False
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, sock=self._socket, limit=CHUNK_BYTES)

    async def close(self) -> None:
        """Cut everything, and listen no longer."""
        # asyncio drops a connection without closing it that it has accepted and not attached when its server closes.
        asyncio.get_running_loop().remove_reader(self._socket)
        await self._settle()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._settle()

    @staticmethod
    async def _settle() -> None:
        """Have the loop begin what has just come, and close what was aborted; each takes a few of its turns."""
        for _ in range(5):
            await asyncio.sleep(0)

    def cut(self) -> None:
        """End all connections, and those that come, until :meth:`mend`."""
        self._is_refusing = True
        self._end_all()

    def _end_all(self) -> None:
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()

    def lead_to(self, target: int) -> None:
        """Lead those that come to a program. Where it is another one, the open connections end."""
        if target != self._target:
            self._target = target
            self._end_all()

    def hold(self) -> None:
        """Let nothing pass until :meth:`mend`; what comes meanwhile goes on then."""
        self._open.clear()

    def mend(self) -> None:
        """Be as before."""
        self._is_refusing = False
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        self.came.append(time.monotonic())
        try:
            await self._open.wait()
            if not self._is_refusing:
                await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # one side went away, or it was cut: the other is told below
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until one side ends it."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target, limit=CHUNK_BYTES)
        try:
            await _first_of(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            far_writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        # What was written is still to reach the other side.
        writer.write_eof()
        await writer.drain()


async def _first_of(*works: Awaitable[None]) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        # The end of one direction is as a rule that of the other.
        if pending:
            await asyncio.wait(pending, timeout=1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
