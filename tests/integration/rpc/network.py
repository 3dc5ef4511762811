"""A network between client and server that can be told to swallow everything, without ending a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Network:
    """Forwards each connection at ``address`` to ``port`` while it is not ``silent``."""

    def __init__(self, port: int) -> None:
        self.address = ""
        self.silent = False
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += (writer, server_writer)
        for source, target in ((reader, server_writer), (server_reader, writer)):
            self._tasks.append(asyncio.create_task(self._forward(source, target)))

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if not self.silent:
                target.write(data)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, *(w.wait_closed() for w in self._writers), return_exceptions=True)


@asynccontextmanager
async def network_to(address: str) -> AsyncIterator[Network]:
    """A network to the server at ``address``."""
    network = Network(int(address.rpartition(":")[2]))
    async with await asyncio.start_server(network.accept, "127.0.0.1", 0) as listener:
        network.address = f"tcp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        yield network
        listener.close()
        await network.close()
