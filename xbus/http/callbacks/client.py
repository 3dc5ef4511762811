"""Posts a body to a subscriber, within bounds of time and size. It follows no redirect, and uses no proxy."""

import asyncio
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from xbus.errors import Refused
from xbus.http.callbacks.addresses import AllowedAddresses, CheckedNetwork
from xbus.http.callbacks.connections import CallAddress, CallbackConnection, CallTarget

MOST_ERROR_LETTERS = 200
"""Letters of an error that the log shows: a subscriber writes them, and may repeat our own headers."""

MOST_CONNECTIONS = 1000
"""Calls that are under way at once, each by a connection of its own."""

IDLE_CONNECTIONS = 100
IDLE_SECONDS = 30.0
"""So many connections wait for their next call, for so long. More spare subscribers new ones, and take descriptors."""

LOOKUPS_AT_ONCE = 64
"""Names of hosts that are looked up at once. A name server that is silent holds a thread of these, and no other one."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """The bounds of a call.

    Args:
        connect: seconds to look the name up and to connect, TLS included.
        answer: seconds for the answer after that, and before it for a turn among many calls.
    """

    connect: float = 2.0
    answer: float = 20.0


TIMES = CallTimes()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The end of a call.

    Args:
        code: of the failure; empty where the subscriber has taken the batch.
        error: the failure in words.
        is_end: whether the subscriber wants no more.
    """

    code: str = ""
    error: str = ""
    is_end: bool = False

    @property
    def is_taken(self) -> bool:
        """Check whether the subscriber has taken the batch."""
        return not self.code


class CallbackClient:
    """Makes calls, to be used in ``async with``.

    Connections that are not in use serve the next call of the same subscriber.

    Args:
        allowed: the addresses that calls may go to.
        times: the bounds of a call.
    """

    def __init__(self, allowed: AllowedAddresses, times: CallTimes = TIMES) -> None:
        self._times = times
        self._lookups = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="xbus names of subscribers")
        self._network = CheckedNetwork(allowed, self._lookups)
        self._contexts = {True: _tls(verify=True), False: _tls(verify=False)}
        self._turns = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: dict[CallbackConnection, CallTarget] = {}

    async def __aenter__(self) -> "CallbackClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in [*self._idle]:
            self._drop(connection)
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, verify: bool) -> CallOutcome:
        """Post a body; whatever the subscriber does, this ends in time and raises nothing.

        Args:
            url: of the subscriber.
            headers: of the call.
            body: of the call.
            verify: whether the certificate of the subscriber is checked.
        """
        try:
            address = CallAddress.of(url, verify=verify)
            async with asyncio.timeout(self._times.answer):
                await self._turns.acquire()
        except ValueError as error:
            return CallOutcome("callback_failed", _told(error))
        except TimeoutError:
            return CallOutcome("callback_unreachable", "the gateway has too many calls under way")
        try:
            return await self._post(address, written_request(address, headers, body))
        finally:
            self._turns.release()

    async def _post(self, address: CallAddress, request: bytes) -> CallOutcome:
        try:
            async with asyncio.timeout(self._times.connect):
                connection = await self._connection(address.target)
        except Refused as refusal:
            return CallOutcome(refusal.code, f"{refusal.cause}: {refusal.next_step}")
        except TimeoutError:
            cause = f"{address.target.host} did not answer within {self._times.connect:g} s"
            return CallOutcome("callback_unreachable", cause)
        except OSError as error:
            return CallOutcome("callback_unreachable", _told(error))
        try:
            return await self._ask(connection, request)
        finally:
            self._keep_or_close(connection, address.target)

    async def _ask(self, connection: CallbackConnection, request: bytes) -> CallOutcome:
        try:
            async with asyncio.timeout(self._times.answer):
                await connection.ask(request)
            failure = CallOutcome("callback_failed", "the subscriber gave no status")
        except TimeoutError:
            failure = CallOutcome("callback_timed_out", f"no answer within {self._times.answer:g} s")
        except (OSError, ValueError) as error:
            failure = CallOutcome("callback_failed", _told(error))
        # The status counts, whatever the body is.
        return failure if connection.status is None else outcome_of(connection.status)

    # -- connections -----------------------------------------------------------------------------------------------

    async def _connection(self, target: CallTarget) -> CallbackConnection:
        """Give a connection that is not in use, or a new one.

        Raises:
            Refused: calls may not go there.
            OSError: nothing answers there.
        """
        while (idle := next((each for each, of in reversed(self._idle.items()) if of == target), None)) is not None:
            self._take_out(idle)
            if idle.is_ready:
                return idle
        return await self._network.connect(target.host, target.port, partial(self._connect, target))

    async def _connect(self, target: CallTarget, address: str, port: int) -> CallbackConnection:
        context = self._contexts[target.verify] if target.is_secret else None
        name = target.host if target.is_secret else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            CallbackConnection, address, port, ssl=context, server_hostname=name
        )
        return connection

    def _keep_or_close(self, connection: CallbackConnection, target: CallTarget) -> None:
        if not connection.is_ready:
            connection.close()
            return
        if len(self._idle) >= IDLE_CONNECTIONS:
            self._drop(next(iter(self._idle)))
        self._idle[connection] = target
        connection.closing = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop, connection)

    def _take_out(self, connection: CallbackConnection) -> None:
        del self._idle[connection]
        if connection.closing is not None:
            connection.closing.cancel()

    def _drop(self, connection: CallbackConnection) -> None:
        self._take_out(connection)
        connection.close()


def _tls(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def written_request(address: CallAddress, headers: Mapping[str, str], body: bytes) -> bytes:
    """Write a call."""
    fields = {"host": address.authority, **headers, "content-length": str(len(body))}
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    return b"".join([f"POST {address.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode(), body])


def _told(error: Exception) -> str:
    return f"{error}"[:MOST_ERROR_LETTERS] or type(error).__name__


def outcome_of(status: int) -> CallOutcome:
    """Say what a status means: 2xx takes the batch, 410 ends the subscription."""
    if 200 <= status < 300:
        return CallOutcome()
    if status == 410:
        return CallOutcome("callback_gone", "the subscriber answered 410: it wants no more", is_end=True)
    hint = ", and redirects are not followed" if 300 <= status < 400 else ""
    return CallOutcome("callback_refused", f"the subscriber answered {status}{hint}")
