"""Calls of subscribers that redirect, never end, never answer, end it, or are not who they say; each ends in time."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpcore2
import pytest

from xbus.http.callbacks.client import CallbackClient, CallOutcome, CallTimes, CheckedNetwork
from xbus.http.targets import AllowedAddresses

Answer: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LOOPBACK = AllowedAddresses(["127.0.0.0/8"])
TIMES = CallTimes(connect=1.0, answer=0.5)
"""The subscribers that never answer are waited for so long, in seconds."""


def says(text: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text.encode())
        await writer.drain()

    return answer


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def endless_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: " + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.read()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def subscriber(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/hook"


async def call(url: str, allowed: AllowedAddresses = LOOPBACK, *, verify: bool = True) -> CallOutcome:
    async with asyncio.timeout(30), CallbackClient(allowed, TIMES) as client:
        return await client.post(url, {"webhook-id": "msg_1"}, b"[]", verify=verify)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (says("HTTP/1.1 204 No Content\r\n\r\n"), ""),
        (says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), ""),
        (says("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"), "callback_gone"),
        # The status counts, whatever the body is.
        (says("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok"), ""),
        (says("HTTP/1.1 410 Gone\r\ncontent-length: 10\r\n\r\n"), "callback_gone"),
        (slow_body, ""),
        (says("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"), "callback_refused"),
        (says("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"), "callback_refused"),
        (says("I am no web server\r\n\r\n"), "callback_failed"),
        (says(""), "callback_failed"),
        (endless, ""),
        (endless_head, "callback_failed"),
        (silent, "callback_timed_out"),
    ],
)
async def test_a_call_ends_whatever_the_subscriber_does(answer: Answer, code: str) -> None:
    async with subscriber(answer) as url:
        outcome = await call(url)
    assert outcome.code == code
    assert outcome.is_end == (code == "callback_gone")


async def test_a_call_that_is_cancelled_amid_the_handshake_leaves_no_connection() -> None:
    """A subscriber that serves one connection after the other would wait for its end, and answer nobody."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def silent_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        began.set()
        while await reader.read(4096):
            pass
        ended.set()

    async with asyncio.timeout(30), subscriber(silent_handshake) as url, CallbackClient(LOOPBACK) as client:
        calling = asyncio.create_task(client.post(url.replace("http:", "https:"), {}, b"[]", verify=False))
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await ended.wait()


async def test_a_private_address_is_not_called_unless_it_is_named() -> None:
    came = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))

    async with subscriber(note) as url:
        assert (await call(url, AllowedAddresses([]))).code == "callback_not_allowed"
        # A name is looked at by its address, as the one that it gives now.
        assert (await call(url.replace("127.0.0.1", "localhost"), AllowedAddresses([]))).code == "callback_not_allowed"
        assert (await call(url, AllowedAddresses(["10.0.0.0/8"]))).code == "callback_not_allowed"
    assert came == []


async def test_a_redirect_to_a_machine_inside_is_not_followed() -> None:
    came = []

    async def inside(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))

    async with subscriber(inside) as target:
        for status in (301, 302, 303, 307, 308):
            away = says(f"HTTP/1.1 {status} Away\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n")
            async with subscriber(away) as url:
                assert (await call(url)).code == "callback_refused"
    assert came == []


class Noted(httpcore2.AsyncNetworkBackend):
    """Notes where connections would go, and makes none."""

    def __init__(self) -> None:
        self.places: list[str] = []

    async def connect_tcp(self, host: str, *args: Any, **given: Any) -> httpcore2.AsyncNetworkStream:
        self.places.append(host)
        raise httpcore2.ConnectError(host)


@pytest.mark.parametrize(
    ("looks", "places"),
    [
        # A name that is outside at the first look and inside at the second is called where it was looked at.
        ([["93.184.216.34"], ["127.0.0.1"]], ["93.184.216.34"]),
        # Of both kinds only those outside are called, even if they do not answer.
        ([["127.0.0.1", "93.184.216.34", "10.0.0.1", "::ffff:192.168.0.1"]], ["93.184.216.34"]),
    ],
)
async def test_a_name_leads_nowhere_but_to_the_address_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[str]], places: list[str]
) -> None:
    answers = iter(looks)

    def look_up(host: str, port: int, **given: Any) -> list[Any]:
        return [(0, 0, 0, "", (address, port)) for address in next(answers)]

    monkeypatch.setattr("xbus.http.callbacks.client.socket.getaddrinfo", look_up)
    noted = Noted()
    with ThreadPoolExecutor(1) as threads:
        network = CheckedNetwork(AllowedAddresses([]), noted, threads)
        with pytest.raises(httpcore2.ConnectError):
            await network.connect_tcp("rebound.example", 443, timeout=30)
    assert noted.places == places


def self_signed(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    names = ("-subj", "/CN=localhost", "-keyout", key, "-out", certificate)
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_self_signed_certificate_needs_a_subscription_that_says_so(tmp_path: Path) -> None:
    context = self_signed(tmp_path)
    async with subscriber(says("HTTP/1.1 204 No Content\r\n\r\n"), context) as url:
        assert (await call(url)).code == "callback_unreachable"
        assert (await call(url, verify=False)).code == ""
        async with CallbackClient(LOOPBACK, TIMES, verifies=False) as client:
            assert (await client.post(url, {}, b"[]", verify=True)).code == "", "the gateway checks no certificate"


async def test_nobody_is_there() -> None:
    async with subscriber(silent) as url:
        pass
    assert (await call(url)).code == "callback_unreachable"
