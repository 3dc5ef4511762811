"""The proxies of the torture pass, hold and cut."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator

import pytest

from tests.torture.proxy import Proxy


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """In front of a server that says what it is told."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    yield proxy
    await proxy.close()
    server.close()


async def test_it_passes_and_ends_as_the_one_behind_it(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def test_what_it_holds_comes_later(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.hold()
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(5), 0.2)
    proxy.mend()
    assert await reader.readexactly(5) == b"hello"
    writer.close()


async def test_what_it_cuts_is_gone_until_it_is_mended(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"hello")
    await reader.readexactly(5)
    proxy.cut()
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await reader.read() == b""
    writer.close()
    proxy.mend()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()


async def test_it_leaves_no_connection_open_that_it_took_just_before_it_was_closed() -> None:
    """1. The loop accepts a connection. 2. The proxy is closed. 3. asyncio attaches the connection to the server."""
    proxy = Proxy(1)
    await proxy.start()
    with socket.create_connection(("127.0.0.1", proxy.port)):
        for _ in range(2):
            await asyncio.sleep(0)
        await proxy.close()
    # What was left open becomes a warning of its collection, which fails this test.
    gc.collect()
