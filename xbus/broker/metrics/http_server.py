"""A small HTTP server for a few pages, independent of the broker; no client can make it large or slow.

Each connection gets one answer. So many are open at once at the most: a new one takes the place of the oldest. A client
that asks properly is served within milliseconds, and is never the oldest for long; one that sends or reads slowly is.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from xbus.config import host_and_port
from xbus.errors import ConfigurationError

log = logging.getLogger(__name__)

HEAD_END = b"\r\n\r\n"

METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of what clients can take.

    Args:
        connections: so many are open at once; more serve more clients at the same time, and take more memory.
        head_bytes: the longest request line with all headers.
        read_seconds: the time for them to arrive.
        write_seconds: the time for the answer to be taken.
    """

    connections: int = 16
    head_bytes: int = 8 * 1024
    read_seconds: float = 5.0
    write_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request for a page.

    Args:
        method: such as GET.
        path: without its query.
        headers: by their names in lower case.
    """

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The page, or the reason why there is none."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class HttpServer:
    """Serves pages at an address.

    Args:
        answer: makes the page; what it raises is answered with 500, and logged.
        limits: of what clients can take.
    """

    def __init__(
        self, answer: Callable[[HttpRequest], Awaitable[HttpAnswer]], limits: HttpLimits | None = None
    ) -> None:
        self._answer = answer
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        """The open connections and the work on each, the oldest first."""

    async def start(self, address: str) -> str:
        """Open the port and serve.

        Args:
            address: ``host:port``; ``*`` for every network of the machine, port 0 for a free one.

        Returns:
            The URL with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        host, port = host_and_port(address)
        try:
            self._server = await asyncio.start_server(
                self._serve, None if host == "*" else host, port, limit=self._limits.head_bytes
            )
        except OSError as error:
            raise _start_error(address, error) from error
        taken = self._server.sockets[0].getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{taken}"

    def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._limits.connections:
            oldest = next(iter(self._connections))
            # An answer that nobody gets is not made either.
            self._connections.pop(oldest).cancel()
            oldest.transport.abort()
        task = asyncio.current_task()
        assert task is not None, "each connection is served in a task"
        self._connections[writer] = task
        try:
            await self._exchange(reader, writer)
        except asyncio.CancelledError:
            # Closed for another one, or with the process. asyncio 3.11 takes a cancelled task for a failed callback.
            writer.transport.abort()
        except (OSError, EOFError):
            # The client has gone, or takes nothing, or was closed for another one.
            writer.transport.abort()
        except Exception:
            # Nothing that a client does here may end the broker.
            log.exception("a page was not served", extra={"action": "page_failed"})
            writer.transport.abort()
        finally:
            self._connections.pop(writer, None)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                head = await reader.readuntil(HEAD_END)
        except TimeoutError:
            request, answer = None, _plain(HTTPStatus.REQUEST_TIMEOUT)
        except asyncio.LimitOverrunError:
            request, answer = None, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            request = _parse(head)
            answer = await self._answered(request)
        async with asyncio.timeout(self._limits.write_seconds):
            writer.write(_written(answer, with_body=request is None or request.method != "HEAD"))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answered(self, request: HttpRequest | None) -> HttpAnswer:
        if request is None:
            return _plain(HTTPStatus.BAD_REQUEST)
        if request.method not in METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await self._answer(request)
        except Exception:
            log.exception("a page was not made", extra={"action": "page_failed"})
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _start_error(address: str, error: OSError) -> ConfigurationError:
    if error.errno == errno.EADDRINUSE:
        next_step = "give each process of this machine a port of its own, or 0 for a free one"
        return ConfigurationError(f"[metrics] listen: {address} is in use", next_step, code="address_in_use")
    cause = f"[metrics] listen: {address} can't be used ({error.strerror or error})"
    return ConfigurationError(cause, "name an address of this machine", code="bad_address")


def _parse(head: bytes) -> HttpRequest | None:
    """Read the head of a request; None if it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        return None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return HttpRequest(words[0], words[1].partition("?")[0], headers)


def _plain(status: HTTPStatus) -> HttpAnswer:
    return HttpAnswer(status, f"{status.phrase}\n".encode())


def _written(answer: HttpAnswer, *, with_body: bool) -> bytes:
    allow = f"Allow: {', '.join(METHODS)}\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        f"{allow}"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.body if with_body else b"")
