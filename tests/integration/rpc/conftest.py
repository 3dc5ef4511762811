"""Servers, clients and raw peers on real sockets, all closed when a test is over."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
import zmq

from tests.support.ports import free_port
from tests.support.waiting import wait_until
from xbus.errors import ConfigurationError
from xbus.rpc.client import Client
from xbus.rpc.context import Context, new_context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import ServerLimits
from xbus.rpc.server import Server

Serve: TypeAlias = Callable[..., tuple[Server, str]]
Connect: TypeAlias = Callable[..., Client]
Dial: TypeAlias = Callable[..., "zmq.Socket[bytes]"]

MAX_MESSAGE_BYTES = 100_000

SECONDS = 60.0
"""How long is waited for what comes at once on an idle machine."""


@pytest.fixture
def context() -> Iterator[Context]:
    made = new_context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
async def closing(context: Context) -> AsyncIterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(context: Context, closing: ExitStack) -> Serve:
    """Starts a server of the given objects; returns it and its address."""

    def start(*served: object, address: str = "tcp://127.0.0.1:0", **options: Any) -> tuple[Server, str]:
        options.setdefault("limits", ServerLimits(MAX_MESSAGE_BYTES))
        server = Server(context, Dispatch(*served), name="test server", **options)
        closing.callback(server.close)
        endpoint = server.bind(address)
        server.start()
        return server, endpoint

    return start


@pytest.fixture
def serve_again(serve: Serve) -> Serve:
    """As ``serve``, at an address that libzmq may not have given up yet: it closes sockets in the background."""

    def start(*served: object, address: str) -> tuple[Server, str]:
        started: list[tuple[Server, str]] = []

        def bound() -> bool:
            try:
                started.append(serve(*served, address=address))
            except ConfigurationError:
                return False
            return True

        wait_until(bound, f"{address} is free again")
        return started[0]

    return start


@pytest.fixture
def unused_address() -> str:
    """An address at which nothing listens yet."""
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def connect(context: Context, closing: ExitStack) -> Connect:
    """A client of the server at an address."""

    def start(address: str, **options: Any) -> Client:
        client = Client(context, name="test client", **options)
        closing.callback(client.close)
        client.connect(address)
        return client

    return start


@pytest.fixture
def dial(context: Context, closing: ExitStack) -> Dial:
    """A raw socket connected to an address, for what no client would send."""

    def start(address: str, **options: Any) -> "zmq.Socket[bytes]":
        socket = context.socket(zmq.DEALER)
        closing.callback(socket.close, 0)
        for option, value in options.items():
            socket.set(getattr(zmq, option), value)
        socket.connect(address)
        return socket

    return start
