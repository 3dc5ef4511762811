"""Posts a body to a subscriber, within bounds of time and size. It follows no redirect, and uses no proxy.

Each connection is looked at before it is made: its address may lead to places that nobody shall reach.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpcore2
from httpcore2 import SOCKET_OPTION

from xbus.errors import Refused
from xbus.http.targets import AllowedAddresses

MOST_LOOKUPS_OF_A_HOST = 2
"""Lookups of one name that are under way at once: one that never ends must not take all threads."""


class CalledStream(httpcore2.AsyncNetworkStream):
    """A connection that ends with a call that is cancelled amid the handshake of TLS; httpcore2 would keep it open.

    Args:
        inner: the connection.
    """

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self.read = inner.read  # type: ignore[method-assign]
        self.write = inner.write  # type: ignore[method-assign]
        self.aclose = inner.aclose  # type: ignore[method-assign]
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Shake hands; the arguments and errors are those of httpcore2."""
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            await self._inner.aclose()
            raise


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses only.

    Args:
        allowed: says which these are.
        inner: makes the connections.
        lookups: the threads that look names up.
    """

    def __init__(self, allowed: AllowedAddresses, inner: httpcore2.AsyncNetworkBackend, lookups: Executor) -> None:
        self._allowed = allowed
        self._inner = inner
        self._lookups = lookups
        self._under_way: Counter[str] = Counter()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve a host, and connect to the first of its allowed addresses that answers.

        Raises:
            Refused: no address is allowed (``callback_not_allowed``).
            httpcore2.ConnectError: the name is unknown, or no address answers.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._connect(host, port, socket_options)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} did not answer within {timeout:g} s") from None

    async def _connect(
        self, host: str, port: int, socket_options: Iterable[SOCKET_OPTION] | None
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError(host)
        for address in self._allowed.chosen(host, await self._look_up(host, port)):
            try:
                return CalledStream(await self._inner.connect_tcp(address, port, socket_options=socket_options))
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def _look_up(self, host: str, port: int) -> list[str]:
        if self._under_way[host] >= MOST_LOOKUPS_OF_A_HOST:
            raise httpcore2.ConnectError(f"the name server has not answered yet for {host}")
        lookup = self._lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        self._under_way[host] += 1
        # A call may give up; the thread goes on until the name server answers.
        looking = asyncio.wrap_future(lookup)
        looking.add_done_callback(lambda ended: self._ended(host, ended))
        try:
            found = await asyncio.shield(looking)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the name {host} is not known ({error})") from error
        return [str(each[4][0]) for each in found]

    def _ended(self, host: str, lookup: "asyncio.Future[Any]") -> None:
        if not lookup.cancelled():
            lookup.exception()  # read, as nobody may wait for it any more
        self._under_way[host] -= 1
        if not self._under_way[host]:
            del self._under_way[host]

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool wants it between tries of a connection."""
        await asyncio.sleep(seconds)


MOST_ANSWER_BYTES = 16_384
"""Bytes of an answer's body that are read, so that the connection serves again. A longer one ends the connection."""

MOST_ERROR_LETTERS = 200
"""Letters of an error that the log shows: a subscriber writes them, and may repeat our own headers."""

MOST_CONNECTIONS = 1000
IDLE_CONNECTIONS = 100
IDLE_SECONDS = 30.0

LOOKUPS_AT_ONCE = 64
"""Names of hosts that are looked up at once. A name server that is silent holds a thread of these, and no other one."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """The bounds of a call.

    Args:
        connect: seconds to connect, TLS included.
        answer: seconds for the answer after that.
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

    Args:
        allowed: the addresses that calls may go to.
        times: the bounds of a call.
        verifies: whether the certificate of any subscriber is checked.
    """

    def __init__(self, allowed: AllowedAddresses, times: CallTimes = TIMES, *, verifies: bool = True) -> None:
        self._times = times
        self._verifies = verifies
        self._lookups = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="xbus names of subscribers")
        network = CheckedNetwork(allowed, httpcore2.AnyIOBackend(), self._lookups)
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        self._pools = {
            verify: httpcore2.AsyncConnectionPool(
                ssl_context=context,
                max_connections=MOST_CONNECTIONS,
                max_keepalive_connections=IDLE_CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=network,
            )
            for verify, context in ((True, ssl.create_default_context()), (False, unverified))
        }

    async def __aenter__(self) -> "CallbackClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.aclose()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, verify: bool) -> CallOutcome:
        """Post a body; whatever the subscriber does, this ends in time and raises nothing.

        Args:
            url: of the subscriber.
            headers: of the call.
            body: of the call.
            verify: whether the certificate of the subscriber is checked, as far as the gateway checks any.
        """
        outcome: CallOutcome | None = None
        times = self._times
        timeouts = {"connect": times.connect, "read": times.answer, "write": times.answer, "pool": times.answer}
        try:
            async with (
                asyncio.timeout(times.connect + times.answer),
                self._pools[verify and self._verifies].stream(
                    "POST",
                    url,
                    headers=[(name.encode(), value.encode()) for name, value in headers.items()],
                    content=body,
                    extensions={"timeout": timeouts},
                ) as answer,
            ):
                outcome = outcome_of(answer.status)
                await _read_some(answer)
                return outcome
        except httpcore2.PoolTimeout:
            return CallOutcome("callback_unreachable", "the gateway has too many calls under way")
        except (httpcore2.ConnectTimeout, httpcore2.ConnectError) as error:
            return CallOutcome("callback_unreachable", f"{error}"[:MOST_ERROR_LETTERS] or "no connection")
        except (TimeoutError, httpcore2.TimeoutException):
            return outcome or CallOutcome("callback_timed_out", f"no answer within {times.connect + times.answer:g} s")
        except Refused as refusal:
            return CallOutcome(refusal.code, f"{refusal.cause}: {refusal.next_step}")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError, ValueError) as error:
            said = f"{error}"[:MOST_ERROR_LETTERS] or type(error).__name__
            return outcome or CallOutcome("callback_failed", said)


async def _read_some(answer: httpcore2.Response) -> None:
    """Read the body of an answer up to a bound; the status counts, whatever the body is."""
    size = 0
    async for part in answer.aiter_stream():
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            return


def outcome_of(status: int) -> CallOutcome:
    """Say what a status means: 2xx takes the batch, 410 ends the subscription."""
    if 200 <= status < 300:
        return CallOutcome()
    if status == 410:
        return CallOutcome("callback_gone", "the subscriber answered 410: it wants no more", is_end=True)
    hint = ", and redirects are not followed" if 300 <= status < 400 else ""
    return CallOutcome("callback_refused", f"the subscriber answered {status}{hint}")
