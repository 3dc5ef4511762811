"""What is written to a client in one turn of the event loop goes out as a whole; a request comes in its time."""

import asyncio
from asyncio import sslproto
from types import SimpleNamespace
from typing import cast

import pytest
from fastapi import FastAPI

from tests.support.clock import StandingClock
from xbus.config import HttpSettings, MonitorSettings
from xbus.http import program as gateway
from xbus.monitor import program as monitor
from xbus.web.connections import WebConnections
from xbus.web.server import WRITE_BYTES, BoundedProtocol, GatheredWrites, WebServer


class TransportDouble:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.sent

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_head_and_body_are_one_write() -> None:
    inner = TransportDouble()
    writes = GatheredWrites(cast(asyncio.Transport, inner), asyncio.get_running_loop(), 1.0)
    writes.write(b"head")
    writes.write(b"body")
    assert inner.sent == []
    await asyncio.sleep(0)
    assert inner.sent == [b"headbody"]
    writes.write(b"more")
    await asyncio.sleep(0)
    assert inner.sent == [b"headbody", b"more"]


async def test_much_goes_at_once_and_nothing_is_left_behind() -> None:
    inner = TransportDouble()
    writes = GatheredWrites(cast(asyncio.Transport, inner), asyncio.get_running_loop(), 1.0)
    large = bytes(WRITE_BYTES)
    writes.write(b"head")
    writes.write(large)
    assert inner.sent == [b"head" + large], "so that a client that does not read is noticed"
    writes.write(b"end")
    writes.close()
    assert inner.sent[1:] == [b"end", b"closed"]
    await asyncio.sleep(0)
    assert inner.sent[1:] == [b"end", b"closed"]


async def test_a_connection_by_tls_may_be_closed_again() -> None:
    """As when its client goes while the server ends: a transport of asyncio by TLS knows nothing more by then."""
    ended: list[str] = []
    tls = SimpleNamespace(_start_shutdown=lambda: ended.append("closed"), _get_write_buffer_size=lambda: 0)
    loop = asyncio.get_running_loop()
    transport = sslproto._SSLProtocolTransport(loop, cast(sslproto.SSLProtocol, tls))
    writes = GatheredWrites(transport, loop, 1.0)
    for _ in range(3):
        writes.close()
    assert ended == ["closed"]


def server_of(program: str) -> WebServer:
    """The server of a program, with the bounds that it has where the configuration says nothing."""
    application, ends = FastAPI(), SimpleNamespace(stop=print, end=print)
    application.state.gateway = SimpleNamespace(tails=ends)
    application.state.parts = SimpleNamespace(sampler=SimpleNamespace(audience=ends))
    if program == "gateway":
        return gateway.web_server(application, HttpSettings(), StandingClock())
    return monitor.web_server(application, MonitorSettings(), StandingClock())


@pytest.mark.parametrize(
    ("program", "is_known", "seconds"),
    [("gateway", False, 5.0), ("gateway", True, 30.0), ("monitor", False, 5.0)],
)
async def test_a_stranger_has_five_seconds_for_a_head(program: str, is_known: bool, seconds: float) -> None:
    server, loop = server_of(program), asyncio.get_running_loop()
    connection = WebConnections("server", server._limits, StandingClock()).enter("192.0.2.1", print)
    assert connection is not None
    connection.is_known = is_known
    protocol = BoundedProtocol(
        limits=server._limits,
        connection=connection,
        config=server.config,
        server_state=server.server_state,
        app_state={},
    )
    before = loop.time()
    protocol.connection_made(cast(asyncio.Transport, TransportDouble()))
    assert protocol._head is not None
    assert before + seconds <= protocol._head.when() <= loop.time() + seconds
    protocol.connection_lost(None)
