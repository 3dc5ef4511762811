"""The emitter's session at the front: logged in, kept alive, and made anew where the front has forgotten it.

A window beside it counts the bytes that are on their way.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from xbus.emitter.options import Options
from xbus.emitter.patience import EmitterPatience, insist
from xbus.errors import CallError, Refused
from xbus.loop_turn import LoopTurn
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.items import ITEM_HEADER_BYTES
from xbus.rpc.messages import FrontLimitsMap, FrontLogin
from xbus.rpc.owed_calls import AnswerTaker
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

RENEWALS_PER_SESSION = 3

FAREWELL_SECONDS = 1.0
"""Seconds to wait for the answer to the last call, such as a logout. Fewer end a program sooner whose bus is away."""

_LOGIN = AnswerReader("xbus.login", FrontLogin)


@dataclass(frozen=True)
class FrontLimits:
    """The limits of the front, from its answer to each login.

    Attributes:
        session_seconds: how long a session lives without any call.
        max_item_bytes: the largest item, which must fit into a batch.
        max_batch_bytes: the largest batch, headers of its items included.
        reply_seconds: how long it waits for a consumer's immediate reply; 0 if it does not say.
        headers: whether it takes headers.
        groups: whether it takes envelopes in groups.
        numbers: whether it takes the numbers of events.
    """

    session_seconds: float
    max_item_bytes: int
    max_batch_bytes: int
    reply_seconds: float
    headers: bool = False
    groups: bool = False
    numbers: bool = False

    @classmethod
    def of(cls, answer: FrontLimitsMap) -> "FrontLimits":
        """Read the limits in the answer of ``xbus.login`` or ``xbus.get_limits``."""
        max_batch_bytes = answer["max_batch_bytes"]
        max_item_bytes = min(answer["max_item_bytes"], max_batch_bytes - ITEM_HEADER_BYTES)
        reply_seconds = answer.get("immediate_reply_timeout", 0.0)
        extras = (answer.get("headers", False), answer.get("groups", False), answer.get("numbers", False))
        return cls(answer["session_seconds"], max_item_bytes, max_batch_bytes, reply_seconds, *extras)

    def check_headers(self) -> None:
        """Let headers pass.

        Raises:
            Refused: the front is too old for them (``headers_unsupported``).
        """
        if not self.headers:
            raise Refused(
                "the broker is too old for headers and partition keys",
                "send without them, or upgrade the broker",
                code="headers_unsupported",
            )


class CallTransport(Protocol):
    """Takes the calls of envelopes: a session at the front, or the outbox in its place."""

    @property
    def limits(self) -> FrontLimits:
        """The limits for items and batches."""

    @property
    def logins(self) -> int:
        """The number of logins so far; each begins another session at the front."""

    @property
    def turn(self) -> LoopTurn:
        """The turn of the loop at whose end puts go; over a plain connection by TCP every call goes then."""

    def call(self, verb: str, *arguments: object, seconds: float) -> asyncio.Future[Value]:
        """Make a call at once; calls arrive in the order made."""

    def ask(self, verb: str, arguments: tuple[object, ...], taker: AnswerTaker, seconds: float) -> None:
        """Make a call as ``call`` does, without a future.

        Args:
            taker: gets the answer in the turn of the loop in which it comes.
        """

    async def restore(self) -> None:
        """Return once calls are taken again."""


class SendWindow:
    """Counts the bytes sent and not yet answered; its ``room`` makes a fast sender wait.

    Args:
        max_bytes: from this many bytes on it is full; the batch that passes the limit still goes.

    Attributes:
        is_open: whether a further batch may go now.
    """

    def __init__(self, max_bytes: int) -> None:
        self.is_open = max_bytes > 0
        self._max_bytes = max_bytes
        self._bytes = 0
        self._has_room = asyncio.Event()
        """Asked only while the window is full."""

    def take(self, size: int) -> None:
        """Count ``size`` bytes as sent."""
        self._bytes += size
        self.is_open = self._bytes < self._max_bytes

    def give(self, size: int) -> None:
        """Count ``size`` bytes as answered or abandoned."""
        self._bytes -= size
        if not self.is_open and self._bytes < self._max_bytes:
            self.is_open = True
            self._has_room.set()

    async def room(self) -> None:
        """Return when a further batch may go."""
        while not self.is_open:
            self._has_room.clear()
            await self._has_room.wait()


class TokenCalls:
    """Puts a token into calls.

    Args:
        client: the connection to the front.
        token: of who calls; empty before there is any.

    Attributes:
        logins: how often a session was begun for the token.
        turn: that of the client, at whose end puts are gathered.
    """

    logins = 1

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._token = token
        self.turn = client.turn

    def call(self, verb: str, *arguments: object, seconds: float) -> asyncio.Future[Value]:
        """Make a call at once; calls arrive in the order made."""
        return self._client.call(verb, self._token, *arguments, timeout=seconds)

    def ask(self, verb: str, arguments: tuple[object, ...], taker: AnswerTaker, seconds: float) -> None:
        """Make a call as ``call`` does; ``taker`` gets the answer in the turn of the loop in which it comes."""
        self._client.ask(verb, (self._token, *arguments), taker, seconds)


class Session(TokenCalls):
    """Logs in, and does so again where the front has forgotten the session.

    Args:
        client: the connection to the front; it reconnects by itself.
        login: the emitter's login.
        password: the emitter's password.
        options: how long to insist.
        patience: measures the failures of ``open``.

    Attributes:
        limits: those in the answer to the last login.
        logins: how often it logged in: each time it is another session to the front.
    """

    limits: FrontLimits

    def __init__(self, client: Client, login: str, password: str, options: Options, patience: EmitterPatience) -> None:
        super().__init__(client, "")
        self._login = login
        self._password = password
        self._options = options
        self._patience = patience
        self._restoring = asyncio.Lock()
        self._restored = 0
        self.logins = 0

    async def open(self) -> None:
        """Log in, and insist while the front does not answer.

        Raises:
            Refused: login or password are wrong (``login_refused``).
            Failed: nothing answered within ``retry_seconds``.
        """
        await insist(self._patience, self._options.probe_seconds, self._log_in)

    async def restore(self) -> None:
        """Return once the front answers and knows the session; one try, shared by all who ask meanwhile.

        Raises:
            Refused: the front does not know the session, and refuses a new one.
            Failed: the front does not answer.
        """
        seen = self._restored
        async with self._restoring:
            if self._restored == seen:
                await self._renew()
                self._restored += 1

    async def keep_alive(self) -> None:
        """Renew the session for ever, so that it outlives any pause between two envelopes."""
        while True:
            await asyncio.sleep(self.limits.session_seconds / RENEWALS_PER_SESSION)
            try:
                await self.restore()
            except CallError as error:
                # Not fatal while nothing is sent: the next call meets the same trouble, insists, and tells its caller.
                logger.warning("session not renewed", extra={"action": "emitter_renew_failed", "code": error.code})

    async def close(self) -> None:
        """Log out; a front that does not answer will let the session expire."""
        try:
            await self.call("xbus.logout", seconds=min(FAREWELL_SECONDS, self._options.probe_seconds))
        except CallError as error:
            logger.info("no answer to logout", extra={"action": "emitter_logout_failed", "code": error.code})

    async def _log_in(self, seconds: float) -> None:
        answer = _LOGIN.read(await self._client.call("xbus.login", self._login, self._password, timeout=seconds))
        self._token = answer["token"]
        self.logins += 1
        self.limits = FrontLimits.of(answer)

    async def _renew(self) -> None:
        try:
            await self.call("xbus.renew", seconds=self._options.probe_seconds)
        except Refused as refusal:
            if refusal.code != "session_unknown":
                raise
            logger.info("session unknown, logging in again", extra={"action": "emitter_login_again"})
            await self._log_in(self._options.probe_seconds)
