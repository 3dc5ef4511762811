"""The server of the pages of metrics, with clients that are slow, rude or many."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from xbus.broker.metrics.http_server import HttpAnswer, HttpLimits, HttpRequest, HttpServer
from xbus.errors import ConfigurationError

PAGE = b"the page\n"
LARGE = b"x" * 32 * 1024 * 1024
"""More than the buffers of both ends hold."""

PATIENT = HttpLimits(read_seconds=60, write_seconds=60)
HASTY = HttpLimits(read_seconds=0.05, write_seconds=0.05)


async def answer(request: HttpRequest) -> HttpAnswer:
    if request.path == "/fault":
        raise RuntimeError("a fault of the page")
    return HttpAnswer(HTTPStatus.OK, LARGE if request.path == "/large" else PAGE)


@asynccontextmanager
async def serving(limits: HttpLimits = PATIENT) -> AsyncIterator[int]:
    """Serve pages; gives the port."""
    server = HttpServer(answer, limits)
    url = await server.start("127.0.0.1:0")
    try:
        yield int(url.rpartition(":")[2])
    finally:
        server.close()


async def connect(port: int, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ask(port: int, said: bytes) -> bytes:
    """Say something, and read to the end."""
    reader, writer = await connect(port, said)
    try:
        return await read_to_the_end(reader)
    finally:
        writer.close()


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    """Read what comes until the connection ends, in whichever way."""
    told: list[bytes] = []
    try:
        while chunk := await reader.read(1024 * 1024):
            told.append(chunk)
    except ConnectionError:
        pass
    return b"".join(told)


async def get(port: int, path: str = "/") -> bytes:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_a_page_is_served_once_for_each_connection() -> None:
    async with serving() as port:
        head, _, body = (await get(port, "/metrics?name=" + "x" * 1000)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Connection: close" in head
        assert f"Content-Length: {len(PAGE)}".encode() in head
        assert body == PAGE
        assert (await ask(port, b"HEAD / HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"G" * 1000 + b" / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /fault HTTP/1.1\r\n\r\n", 500),
    ],
)
async def test_what_is_no_request_for_a_page(said: bytes, status: int) -> None:
    async with serving() as port:
        told = await ask(port, said)
        # Where more was sent than is read, the system may cut the answer off.
        assert told.startswith(f"HTTP/1.1 {status} ".encode()) or (status == 431 and not told)
        assert (await get(port)).endswith(PAGE)


async def test_who_says_nothing_is_sent_away() -> None:
    async with serving(HASTY) as port:
        assert (await ask(port, b"GET / HT")).startswith(b"HTTP/1.1 408 ")


async def test_who_does_not_read_is_cut_off() -> None:
    async with serving(HASTY) as port:
        reader, writer = await connect(port, b"GET /large HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        # From here on the stream takes no more than its small buffer, and the server can't write.
        await asyncio.sleep(4 * HASTY.write_seconds)
        assert len(await read_to_the_end(reader)) < len(LARGE)
        writer.close()


async def test_many_who_are_slow_keep_nobody_waiting() -> None:
    limits = HttpLimits(connections=4, read_seconds=60, write_seconds=60)
    async with serving(limits) as port:
        slow = [await connect(port, b"GET / HTTP/1.1\r\nx: ") for _ in range(20)]
        assert (await get(port)).endswith(PAGE)
        # The oldest were closed for newer ones.
        for reader, _ in slow[: 20 - limits.connections]:
            assert await read_to_the_end(reader) == b""
        for _, writer in slow:
            writer.close()


async def test_a_page_that_nobody_gets_any_more_is_not_made() -> None:
    made: list[str] = []
    begun, gate = asyncio.Semaphore(0), asyncio.Event()

    async def slowly(request: HttpRequest) -> HttpAnswer:
        begun.release()
        await gate.wait()
        made.append(request.path)
        return HttpAnswer(HTTPStatus.OK, PAGE)

    server = HttpServer(slowly, HttpLimits(connections=2, read_seconds=60, write_seconds=60))
    port = int((await server.start("127.0.0.1:0")).rpartition(":")[2])
    try:
        clients = []
        for number in range(10):
            clients.append(await connect(port, b"GET /%d HTTP/1.1\r\n\r\n" % number))
            await begun.acquire()
        gate.set()
        for reader, writer in clients:
            await read_to_the_end(reader)
            writer.close()
    finally:
        server.close()
    assert made == ["/8", "/9"]


async def test_who_goes_away_at_once_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as port:
        for said in (b"", b"GET / HT", b"GET /large HTTP/1.1\r\n\r\n") * 10:
            _, writer = await connect(port, said)
            writer.transport.abort()
        assert (await get(port)).endswith(PAGE)
    assert caplog.records == []


async def test_a_port_that_is_taken() -> None:
    async with serving() as port:
        with pytest.raises(ConfigurationError) as refused:
            await HttpServer(answer).start(f"127.0.0.1:{port}")
    assert refused.value.code == "address_in_use"


@pytest.mark.parametrize("listen", ["203.0.113.7:9180", "no-such-host.invalid:9180"])
async def test_an_address_that_is_not_of_this_machine(listen: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        await HttpServer(answer).start(listen)
    assert refused.value.code == "bad_address"


async def test_a_connection_that_is_closed_for_another_one_is_no_fault_of_the_loop() -> None:
    """The broker ends, or watches no further, where a callback of the loop fails."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    limits = HttpLimits(connections=2, read_seconds=60, write_seconds=60)
    async with serving(limits) as port:
        slow = [await connect(port, b"GET /metr") for _ in range(10)]
        for reader, _ in slow[:8]:
            await read_to_the_end(reader)
        assert PAGE in await get(port)
        for _, writer in slow:
            writer.close()
    await asyncio.sleep(0)
    assert faults == []
