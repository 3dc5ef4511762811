"""A connection to a subscriber, which takes one call after another. httptools parses the answers."""

import asyncio
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import httptools

HEAD_BYTES = 65_536
"""Bytes of the head of an answer. Fewer refuse long headers, more let subscribers take memory."""

MOST_ANSWER_BYTES = 16_384
"""Bytes of an answer's body that are read, so that the connection serves again. A longer one ends the connection."""

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class CallTarget:
    """The place of a subscriber, to which a connection leads.

    Args:
        host: its name or address.
        is_secret: whether calls are encrypted.
        verify: whether its certificate is checked then.
    """

    host: str
    port: int
    is_secret: bool
    verify: bool


@dataclass(frozen=True, slots=True)
class CallAddress:
    """A URL, taken apart.

    Args:
        authority: host and port as the URL has them.
        path: with the query.
    """

    target: CallTarget
    authority: str
    path: str

    @classmethod
    def of(cls, url: str, *, verify: bool) -> Self:
        """Take a URL apart.

        Raises:
            ValueError: nothing can be called there.
        """
        parts = urlsplit(url)
        if not (parts.hostname and parts.scheme in PORTS and url.isascii() and url.isprintable()) or " " in url:
            raise ValueError(f"{url!r:.200} can't be called")
        target = CallTarget(parts.hostname, parts.port or PORTS[parts.scheme], parts.scheme == "https", verify)
        query = f"?{parts.query}" if parts.query else ""
        return cls(target, parts.netloc.rpartition("@")[2], f"{parts.path or '/'}{query}")


class CallbackConnection(asyncio.Protocol):
    """A connection to a subscriber. It makes one call at a time; httptools calls the methods named ``on_…``.

    Attributes:
        status: of the answer to the newest call; None before it came.
        is_ready: whether it serves another call.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_ready = False
        self.closing: asyncio.TimerHandle | None = None
        """Ends it while it serves nobody."""
        self._transport: asyncio.Transport
        self._answered: asyncio.Future[None] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._size = 0

    async def ask(self, request: bytes) -> None:
        """Send a request, and wait for the whole answer, or for as much of it as is read.

        Raises:
            OSError: the connection ended before a status came.
            ValueError: what came is no answer.
        """
        self.is_ready, self.status, self._size = False, None, 0
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._answered

    def close(self) -> None:
        """End it at once."""
        self.is_ready = False
        if self.closing is not None:
            self.closing.cancel()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for a call."""
        assert isinstance(transport, asyncio.Transport), "it is a connection by TCP"
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """End the call; a status that came counts, whatever its body is."""
        self.is_ready = False
        self._end(ConnectionError(f"the connection ended without an answer ({error})" if error else _ENDED))

    def data_received(self, data: bytes) -> None:
        """Read a part of an answer; what nobody asked for ends the connection."""
        if self._answered is None:
            self.close()
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._cut(ValueError(f"the subscriber speaks no HTTP/1.1 ({error})"))
        if self._answered is not None and self._size > (HEAD_BYTES if self.status is None else MOST_ANSWER_BYTES):
            self._cut(ValueError(f"the head of the answer has more than {HEAD_BYTES} bytes"))

    def on_message_begin(self) -> None:
        """Begin an answer; a second one answers nothing."""
        if self._answered is None:
            self.close()

    def on_headers_complete(self) -> None:
        """Take the status; one before the answer, as 100, says nothing."""
        status = self._parser.get_status_code()
        if self._answered is not None and (status == 101 or status >= 200):
            self.status, self._size = status, 0

    def on_message_complete(self) -> None:
        """End the call, after which the connection may serve again."""
        if self._answered is not None and self.status is not None:
            self.is_ready = self._parser.should_keep_alive()
            self._end()

    def _cut(self, error: Exception) -> None:
        self._end(error)
        self.close()

    def _end(self, error: Exception | None = None) -> None:
        answered, self._answered = self._answered, None
        if answered is None or answered.done():
            return
        if error is None or self.status is not None:
            answered.set_result(None)
        else:
            answered.set_exception(error)


_ENDED = "the connection ended without an answer"
