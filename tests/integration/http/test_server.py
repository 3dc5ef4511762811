"""The server of the gateway: slow, greedy and encrypted clients."""

import asyncio
import contextlib
import logging
import resource
import ssl
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.integration.http.conftest import LOOPBACK, Serve, Shop
from tests.support.processes import run
from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.http.program import build
from xbus.web import server as web_server
from xbus.web.requests import KNOWN
from xbus.web.server import OWN_DESCRIPTORS

DEADLINE_SECONDS = 30.0
HEAD = (
    b"POST /v1/types/orders/envelopes HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer %s\r\n"
)

OPENSSL = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


async def exchange(port: int, *parts: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Send parts, and read until the gateway closes the connection."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def request(shop: Shop, body: bytes, *headers: bytes) -> bytes:
    told = b"".join(header + b"\r\n" for header in (*headers, b"Connection: close"))
    return HEAD % shop.tokens["emitter_1"].encode() + told + b"\r\n" + body


async def test_who_sends_no_head_is_cut_off(shop: Shop, serve: Serve) -> None:
    async with serve(slow_seconds=0.2) as port:
        assert await exchange(port) == b""
        assert await exchange(port, b"POST /v1") == b""


async def test_who_sends_no_body_is_refused(shop: Shop, serve: Serve) -> None:
    async with serve(slow_seconds=0.2) as port:
        answer = await exchange(port, request(shop, b"[1", b"Content-Length: 5"))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer


async def test_a_refused_body_that_never_ends_is_cut_off(serve: Serve) -> None:
    async with serve(slow_seconds=0.2) as port, asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/types/orders/envelopes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert b" 401 " in await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"1\r\na\r\n")
                await writer.drain()
                # Signs of life must not keep it open.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await reader.read()
        writer.close()


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_a_crowd_that_says_little_keeps_nobody_out(shop: Shop, serve: Serve, said: bytes) -> None:
    async with serve(max_connections=20) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, writer in held:
            writer.write(said)
            if said.endswith(b"\r\n\r\n"):
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert b" 201 " in await exchange(port, request(shop, b"1", b"Content-Length: 1"))
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(
    ("method", "path", "token", "is_known"),
    [
        ("POST", "/v1/types/orders/envelopes", "emitter_1", True),
        ("POST", "/v1/types/orders/envelopes", "of nobody", False),
        ("GET", "/healthz", "emitter_1", False),
    ],
)
def test_a_connection_hears_whose_token_is_taken(
    shop: Shop, method: str, path: str, token: str, is_known: bool
) -> None:
    """Who is known has longer for a head, and is closed last where there are too many connections."""
    heard: list[str] = []
    gateway = build(shop.settings(), shop.daemon.front, SystemClock(), back=shop.daemon.back)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["state"][KNOWN] = lambda: heard.append(path)
        await gateway(scope, receive, send)

    with TestClient(application, "http://bus.example", client=LOOPBACK) as client:
        headers = {"authorization": f"Bearer {shop.tokens.get(token, token)}"}
        client.request(method, path, json={"number": 1}, headers=headers)
    assert heard == [path] * is_known


async def test_a_connection_too_many_is_closed_where_all_are_busy(shop: Shop, serve: Serve) -> None:
    async with serve(max_connections=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(shop, b"[1", b"Content-Length: 3", b"Expect: 100-continue"))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n"), "it is being answered"
        assert await exchange(port, request(shop, b"1", b"Content-Length: 1")) == b""
        writer.write(b"]")
        assert b" 201 " in await reader.read()
        writer.close()


async def test_as_many_files_may_be_open_as_the_system_allows(serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        async with serve():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connections_leave_files_to_the_rest_of_the_program(
    shop: Shop, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web_server, "raise_limit", lambda: OWN_DESCRIPTORS + 1)
    async with serve(max_connections=1000) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(shop, b"[1", b"Content-Length: 3", b"Expect: 100-continue"))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n"), "it is being answered"
        assert await exchange(port, request(shop, b"1", b"Content-Length: 1")) == b""
        writer.close()
    assert "descriptors_short" in [getattr(record, "action", "") for record in caplog.records]


async def test_a_handshake_that_does_not_end_counts_as_a_connection(shop: Shop, serve: Serve, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = run(*OPENSSL, "-subj", "/CN=localhost", "-out", certificate, "-keyout", key)
    assert made.returncode == 0, made.stderr
    context = ssl.create_default_context(cafile=str(certificate))
    context.check_hostname = False
    async with serve(certificate=certificate, certificate_key=key, max_connections=2) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert b" 201 " in await exchange(port, request(shop, b"1", b"Content-Length: 1"), tls=context)
        assert await held[0][0].read() == b""
        for _, writer in held:
            writer.close()


async def test_a_large_head_and_a_large_body_are_refused(shop: Shop, serve: Serve) -> None:
    async with serve() as port:
        assert b" 400 " in await exchange(port, request(shop, b"", b"X-Long: " + b"x" * 100_000))
        answer = await exchange(port, request(shop, b"", b"Content-Length: 1000000000"))
        assert b" 413 " in answer
        headers = [b"X-%d: 1" % number for number in range(300)]
        assert b" 400 " in await exchange(port, request(shop, b"1", b"Content-Length: 1", *headers))
        answer = await exchange(port, request(shop, b"1", b"Content-Length: 1", b"X-Xbus-Note: \xff"))
        assert b"bad_request" in answer


async def test_a_client_that_leaves_in_mid_body_leaves_nothing(
    shop: Shop, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as port:
        part = b"%x\r\n%s\r\n" % (1_000_000, b'"%s"\n' % (b"x" * 97) * 10_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = request(shop, part, b"Transfer-Encoding: chunked").replace(b"application/json", b"application/x-ndjson")
        writer.write(head)
        await writer.drain()
        await eventually(lambda: shop.states()["open"], "the envelope is open")
        writer.close()
        await eventually(lambda: not shop.states()["open"], "it is cancelled")
    del reader
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], "the gateway has no fault"


async def test_https_is_served(shop: Shop, serve: Serve, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = run(*OPENSSL, "-subj", "/CN=localhost", "-out", certificate, "-keyout", key)
    assert made.returncode == 0, made.stderr
    async with serve(certificate=certificate, certificate_key=key) as port:
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        answer = await exchange(port, request(shop, b"1", b"Content-Length: 1"), tls=context)
    assert b" 201 " in answer


async def test_what_has_begun_is_finished_at_the_end(shop: Shop, serve: Serve) -> None:
    async with serve() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(shop, b"[1", b"Content-Length: 3"))
        await writer.drain()

        async def finish() -> bytes:
            await asyncio.sleep(0.2)
            writer.write(b"]")
            await writer.drain()
            return await reader.read()

        finishing = asyncio.create_task(finish())
    assert b" 201 " in await finishing
    writer.close()


BEHIND = b"DELETE /v1/smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "told",
    [
        b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n1",
        b"Content-Length: 1, 1\r\n\r\n1",
        b"Content-Length: +1\r\n\r\n1",
        b"Content-Length: 0x1\r\n\r\n1",
        b"Content-Length: 99999999999999999999999\r\n\r\n1",
        b"Content-Length : 1\r\n\r\n1",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked, identity\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x1\r\n1\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n12\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n1",
        b"Content-Length: 1\r\nX-Folded: a\r\n b\r\n\r\n1",
        b"Content-Length: 1\nX-Bare: line\n\n1",
        b"Content-Length: 1\r\nX-Null: \0\r\n\r\n1",
        b"Content-Length: 1\r\nX Space: 1\r\n\r\n1",
        b"Content-Length: 1\r\nHost: b\r\n\r\n1",
    ],
)
async def test_a_request_that_could_be_read_in_two_ways_is_refused(shop: Shop, serve: Serve, told: bytes) -> None:
    before = shop.states()
    async with serve() as port:
        answer = await exchange(port, HEAD % shop.tokens["emitter_1"].encode() + told, BEHIND)
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert answer.count(b"HTTP/1.1 ") == 1, "the rest is no request of its own"
    assert shop.states()["sealed"] == before["sealed"]
    assert shop.states()["open"] == 0


async def test_a_request_without_a_host_is_refused(serve: Serve) -> None:
    async with serve() as port:
        assert (await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert (await exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_chunks_in_http_1_0_are_refused(shop: Shop, serve: Serve) -> None:
    head = (HEAD % shop.tokens["emitter_1"].encode()).replace(b"HTTP/1.1", b"HTTP/1.0")
    async with serve() as port:
        answer = await exchange(port, head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", BEHIND)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_request_ahead_of_an_answer_is_not_read(shop: Shop, serve: Serve) -> None:
    whole = HEAD % shop.tokens["emitter_1"].encode() + b"Content-Length: 1\r\n\r\n1"
    async with serve() as port:
        answer = await exchange(port, whole + BEHIND * 1_000)
    assert b" 201 " in answer
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_what_stands_behind_a_body_has_no_effect_and_no_room(shop: Shop, serve: Serve) -> None:
    chunked = b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n"
    stranger = (
        HEAD.replace(b"Authorization: Bearer %s\r\n", b"") + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    token = b"Authorization: Bearer " + shop.tokens["emitter_1"].encode()
    async with serve() as port:
        answer = await exchange(port, stranger, b"1\r\n1\r\n0\r\n" + token + b"\r\n\r\n")
        assert b" 401 " in answer
        for endless in (b"0\r\nX: " + b"x" * 100_000, b"1;" + b"x" * 100_000):
            await exchange(port, chunked.replace(b"/healthz", b"/v1/types/orders/envelopes"), endless)


async def test_what_stands_between_the_parts_of_a_body_is_bounded_in_all(shop: Shop, serve: Serve) -> None:
    """RFC 9112, 7.1.1: a server limits the chunk extensions of a request."""
    head = request(shop, b"", b"Transfer-Encoding: chunked")
    async with serve() as port:
        body = b"[" + b"1," * 9_999 + b"1]"
        small = b"".join(b"1;n=%d\r\n%c\r\n" % (number % 10, byte) for number, byte in enumerate(body))
        assert b" 201 " in await exchange(port, head, small, b"0\r\n\r\n")
        greedy = b"1;" + b"x" * 60_000 + b"\r\n \r\n"
        assert b" 400 " in await exchange(port, head, *[greedy] * 4)
