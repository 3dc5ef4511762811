"""The server of the monitor: crowds of clients that say little."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.integration.monitor.conftest import PASSWORD, Monitor
from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.config import MonitorSettings
from xbus.monitor.program import MOST_CONNECTIONS, web_server
from xbus.rights import Right
from xbus.web.server import WebServer, open_port

DEADLINE_SECONDS = 60.0
LOG_IN = b"GET /log-in HTTP/1.1\r\nHost: monitor\r\nConnection: close\r\n\r\n"
HALF = b"GET /log-in HTTP/1.1\r\nHost"


@asynccontextmanager
async def serving(frame: FastAPI) -> AsyncIterator[tuple[WebServer, int]]:
    """Serve the monitor at a port."""
    server = web_server(frame, MonitorSettings(), SystemClock())
    listening = open_port("monitor", "127.0.0.1:0")
    task = asyncio.create_task(server._serve([listening]))
    await eventually(lambda: server.started, "it serves")
    try:
        yield server, listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def ask(port: int, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_thousand_half_requests_keep_nobody_out(monitor: Monitor, frame: FastAPI) -> None:
    async with serving(frame) as (_, port), asyncio.timeout(DEADLINE_SECONDS):
        held = []
        for _ in range(MOST_CONNECTIONS + 50):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HALF)
            held.append((reader, writer))
        assert (await ask(port, LOG_IN)).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.transport.abort()


async def test_a_body_that_does_not_come_ends(monitor: Monitor, frame: FastAPI) -> None:
    head = b"POST /log-in HTTP/1.1\r\nHost: monitor\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    async with serving(frame) as (_, port), asyncio.timeout(DEADLINE_SECONDS):
        answer = await ask(port, head + b"Connection: close\r\nContent-Length: 9\r\n\r\nname")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer


@pytest.mark.parametrize("ends", ["log_out", "password", "disable"])
async def test_a_stream_ends_with_its_session(monitor: Monitor, frame: FastAPI, ends: str) -> None:
    monitor.add("root", Right.MANAGER)
    monitor.add("vera", Right.VIEWER)
    browsers = [monitor.enter("vera"), monitor.enter("vera")]
    async with serving(frame) as (_, port), asyncio.timeout(DEADLINE_SECONDS):
        streams = [await stream_of(port, browser) for browser in browsers]
        if ends == "log_out":
            browsers[0].post("/log-out")
        elif ends == "password":
            browsers[0].post("/do/me/password", data={"present": PASSWORD, "password": "a new long password"})
        else:
            monitor.enter("root").post("/do/people/disable", data={"name": "vera"})
        (of_ended, _), (of_other, _) = streams
        frame.state.parts.sampler.audience.tell()
        await of_ended.readuntil(b"event: end")
        frame.state.parts.sampler.audience.tell()
        if ends == "log_out":
            assert b"event: end" not in await of_other.readuntil(b"event: sample")
        else:
            await of_other.readuntil(b"event: end")
        for _, writer in streams:
            writer.close()


async def stream_of(port: int, browser: TestClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the stream of a browser's session, and read its first event."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    writer.write(f"GET /live HTTP/1.1\r\nHost: monitor\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n".encode())
    assert (await reader.readuntil(b"data:\n\n")).startswith(b"HTTP/1.1 200")
    return reader, writer


@pytest.mark.parametrize(
    "said",
    [
        b"GET /log-in HTTP/1.1\r\n\r\n",
        b"GET /log-in HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /log-in HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_makes_no_sense_is_refused(monitor: Monitor, frame: FastAPI, said: bytes) -> None:
    async with serving(frame) as (_, port), asyncio.timeout(DEADLINE_SECONDS):
        assert (await ask(port, said)).startswith(b"HTTP/1.1 400")


class NoDescriptorIsFree:
    """A port at which somebody waits, while the process may open no more files."""

    def __init__(self) -> None:
        self.asked = 0

    def accept(self) -> None:
        self.asked += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_without_a_descriptor_the_log_gets_a_line_and_the_port_waits(
    monitor: Monitor, frame: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    port = NoDescriptorIsFree()
    async with serving(frame) as (server, _), asyncio.timeout(DEADLINE_SECONDS):
        with caplog.at_level(logging.WARNING):
            for _ in range(100):
                server._acceptor._accept(cast(socket.socket, port))
    assert port.asked == 100, "once for each time that the loop tells of it"
    ours = [record for record in caplog.records if record.name.startswith("xbus.")]
    assert [record.__dict__["action"] for record in ours] == ["connection_not_taken"]
