"""The ways on which alerts reach a person: a program that the broker starts, and a webhook."""

import asyncio
import base64
import contextlib
import json
import os
import shlex
import signal
import ssl
from asyncio.subprocess import DEVNULL, PIPE
from urllib.parse import unquote, urlsplit

from xbus.config import OPTIONS, AlertSettings
from xbus.supervision.alerts import Alert, AlertChannel, AlertNotSent, AlertRefused

MOST_SAID = 500
"""The most bytes of a program's complaint that are told. It may write more, which is read and forgotten."""

SAID_SECONDS = 0.2
"""Seconds that are waited for the rest of it after its end: a program that it left behind may keep the pipe open."""

REFUSALS = (400, 413, 422)
"""The statuses by which a receiver says that it will never take the same alert: RFC 9110, section 15.5."""

LINE_BYTES = 8 * 1024
"""The longest first line of a webhook's answer."""


def alert_channels(settings: AlertSettings) -> list[AlertChannel]:
    """Make the ways that the configuration names."""
    channels: list[AlertChannel] = []
    if settings.command:
        channels.append(CommandChannel(shlex.split(settings.command)))
    if settings.url:
        channels.append(WebhookChannel(settings.url))
    return channels


class CommandChannel:
    """Starts a program for each alert, which gets it as JSON on its standard input.

    No shell reads its arguments, and nothing of an alert is among them. The variables of secret options are kept from
    its environment.

    Args:
        words: the program and its arguments.
    """

    name = "command"

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._hidden = {option.variable for option in OPTIONS if option.is_secret}

    async def send(self, alert: Alert) -> None:
        complaint = await _Complaint.open()
        try:
            code = await self._run(_packed(alert), complaint.end)
            said = await complaint.read()
        finally:
            complaint.close()
        if code != 0:
            raise AlertNotSent(f"{self._words[0]} ended with {code}{said and f': {said}'}")

    async def _run(self, body: bytes, complaint: int) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in self._hidden}
        try:
            # In a session of its own, so that all it starts ends with it when the time is over.
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=PIPE, stdout=DEVNULL, stderr=complaint, env=environment, start_new_session=True
            )
        except OSError as error:
            raise AlertNotSent(f"{self._words[0]} can't be started ({error.strerror or error})") from error
        assert process.stdin is not None, "it was asked for"
        try:
            # It fits into the pipe. A program that does not read it closes its end, and its exit code counts.
            process.stdin.write(body)
            process.stdin.close()
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


class _Complaint:
    """The standard error of a program: all of it is read, and the beginning is kept.

    A pipe of our own, because asyncio's stays open for as long as a program that the first one left behind holds it.

    Args:
        end: the descriptor that the program writes to.
    """

    def __init__(self, end: int, stream: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.end = end
        self._transport = transport
        self._reading = asyncio.create_task(_beginning(stream))

    @classmethod
    async def open(cls) -> "_Complaint":
        ours, end = os.pipe()
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ours, "rb", buffering=0)
        )
        return cls(end, stream, transport)

    async def read(self) -> str:
        """Give what a program has said that has ended."""
        self._close_end()
        await asyncio.wait([self._reading], timeout=SAID_SECONDS)
        return self._reading.result() if self._reading.done() else ""

    def close(self) -> None:
        self._close_end()
        self._reading.cancel()
        self._transport.close()

    def _close_end(self) -> None:
        end, self.end = self.end, -1
        if end >= 0:
            os.close(end)


async def _beginning(stream: asyncio.StreamReader) -> str:
    """Read to the end, and keep the beginning on one line."""
    kept = b""
    while chunk := await stream.read(4096):
        kept = (kept + chunk)[:MOST_SAID]
    return " ".join(kept.decode(errors="replace").split())


class WebhookChannel:
    """Posts each alert as JSON to an address; an answer with a status of 2xx means that it arrived.

    It follows no redirection, and uses no proxy. Nothing but the name of the machine is told of the address.

    Args:
        url: ``http://`` or ``https://``; a user and a password in it are sent as basic authentication.
    """

    name = "url"

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._tls: ssl.SSLContext | None = None

    async def send(self, alert: Alert) -> None:
        host = self._url.hostname or ""
        try:
            status = await self._post(host, _packed(alert))
        except (OSError, EOFError, ValueError) as error:
            raise AlertNotSent(f"{host} can't be reached ({_reason(error)})") from error
        if status in REFUSALS:
            raise AlertRefused(f"{host} answered with the status {status}")
        if not 200 <= status < 300:
            raise AlertNotSent(f"{host} answered with the status {status}")

    async def _post(self, host: str, body: bytes) -> int:
        if self._url.scheme == "https" and self._tls is None:
            # It reads the certificates of the machine.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        port = self._url.port or (443 if self._tls else 80)
        reader, writer = await asyncio.open_connection(host, port, ssl=self._tls, limit=LINE_BYTES)
        try:
            writer.write(self._head(len(body)) + body)
            await writer.drain()
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise ValueError("its answer is not HTTP") from error
        finally:
            writer.transport.abort()
        words = line.decode("latin-1").split()
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            raise ValueError("its answer is not HTTP")
        return int(words[1])

    def _head(self, length: int) -> bytes:
        url = self._url
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        lines = [
            f"POST {target} HTTP/1.1",
            f"Host: {url.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            "User-Agent: xbus",
            "Connection: close",
        ]
        if url.username is not None:
            login = f"{unquote(url.username)}:{unquote(url.password or '')}"
            lines.append(f"Authorization: Basic {base64.b64encode(login.encode()).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "it closed the connection without an answer"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _packed(alert: Alert) -> bytes:
    return json.dumps(alert).encode() + b"\n"
