"""The gateway's way to the broker's front: one connection, by which the calls of all tokens go."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from types import TracebackType

from xbus.clock import Clock
from xbus.emitter.context import EmitterContext
from xbus.emitter.options import Options
from xbus.emitter.patience import EmitterPatience, insist
from xbus.emitter.session import FrontLimits
from xbus.errors import Refused
from xbus.ids import Ids
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.context import new_context
from xbus.rpc.exchange import AnswerTaker
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import FrontLimitsMap
from xbus.rpc.shapes import AnswerReader

HEARTBEAT_SECONDS = 5.0
"""Seconds between the signs of life that the broker gives beneath the calls. They reveal a vanished machine."""


@asynccontextmanager
async def connected(address: str, clock: Clock, max_message_bytes: int = -1) -> AsyncIterator[Client]:
    """Connect for as long as the block lasts.

    Args:
        address: of the front or the back; with keys for an encrypted one.
        clock: stamps the requests.
        max_message_bytes: a larger frame ends the connection; -1 for no limit.

    Raises:
        ConfigurationError: the address makes no sense, or names a key file that can't be used.
    """
    with ExitStack() as exit_stack:
        context = new_context()
        exit_stack.callback(context.destroy)
        signs = LifeSigns(heartbeat_seconds=HEARTBEAT_SECONDS)
        client = Client(context, name=address, clock=clock, max_message_bytes=max_message_bytes, life_signs=signs)
        exit_stack.callback(client.close)
        client.connect(address)
        yield client


HEALTH_SECONDS = 2.0
"""Seconds to wait for the front's answer about its health. More let a proxy wait for a broker that is away."""

MOST_TOKENS = 1000
"""Tokens whose limits are remembered. Fewer ask the front more often, more take memory: 1 KiB or so each."""

_LIMITS = AnswerReader("xbus.get_limits", FrontLimitsMap)


class TokenSession:
    """Puts an API token into calls; it needs no login.

    Args:
        client: the connection to the front.
        token: of the program whose calls these are.
        limits: of the front.
        probe_seconds: how long to wait for a sign of life.
    """

    logins = 1

    def __init__(self, client: Client, token: str, limits: FrontLimits, probe_seconds: float) -> None:
        self.limits = limits
        self.turn = client.turn
        self._client = client
        self._token = token
        self._probe_seconds = probe_seconds

    def call(self, verb: str, *arguments: object, seconds: float) -> asyncio.Future[Value]:
        """Make a call at once; calls arrive in the order made."""
        return self._client.call(verb, self._token, *arguments, timeout=seconds)

    def ask(self, verb: str, arguments: tuple[object, ...], taker: AnswerTaker, seconds: float) -> None:
        """Make a call as ``call`` does; ``taker`` gets the answer in the turn of the loop in which it comes."""
        self._client.ask(verb, (self._token, *arguments), taker, seconds)

    async def restore(self) -> None:
        """Return once the front answers and knows the token.

        Raises:
            Refused: the token was revoked (``session_unknown``).
            Failed: the front does not answer.
        """
        await self.call("xbus.renew", seconds=self._probe_seconds)


class FrontConnection:
    """The connection to the front, to be used in ``async with``.

    Args:
        address: of the front.
        clock: tells the time.
        ids: makes the ids of envelopes and events.
        options: how long a request insists, and how much is in flight for a token.
    """

    def __init__(self, address: str, clock: Clock, ids: Ids, options: Options) -> None:
        self._address = address
        self._clock = clock
        self._ids = ids
        self._options = options
        self._lines: OrderedDict[str, EmitterContext] = OrderedDict()
        self._exit = AsyncExitStack()
        self._client: Client

    async def __aenter__(self) -> "FrontConnection":
        self._client = await self._exit.enter_async_context(connected(self._address, self._clock))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        await self._exit.aclose()

    async def line(self, token: str) -> EmitterContext:
        """Give what the envelopes of a token share. The front checks the token anew with each of their calls.

        Raises:
            Refused: the front does not know the token (``session_unknown``).
            Failed: the front does not answer.
        """
        line = self._lines.get(token)
        if line is None:
            limits = await self._limits(token)
            session = TokenSession(self._client, token, limits, self._options.probe_seconds)
            line = self._lines[token] = EmitterContext(session, self._options, self._clock, self._ids)
            if len(self._lines) > MOST_TOKENS:
                self._lines.popitem(last=False)
        self._lines.move_to_end(token)
        return line

    async def _limits(self, token: str) -> FrontLimits:
        async def ask(seconds: float) -> Value:
            return await self._client.call("xbus.get_limits", token, timeout=seconds)

        patience = EmitterPatience(self._options.retry_seconds, self._clock)
        return FrontLimits.of(_LIMITS.read(await insist(patience, self._options.probe_seconds, ask)))

    async def call(self, token: str, verb: str, *arguments: object) -> Value:
        """Make one call for a token, and wait for its answer.

        Raises:
            Refused: the front refuses it; ``session_unknown`` for an unknown token.
            Failed: the front does not answer.
        """
        return await self._client.call(verb, token, *arguments, timeout=self._options.retry_seconds)

    async def check(self, token: str) -> None:
        """Let a token pass that the front knows at this moment.

        Raises:
            Refused: ``session_unknown``.
            Failed: the front does not answer.
        """
        try:
            await self._client.call("xbus.renew", token, timeout=self._options.retry_seconds)
        except Refused:
            self._lines.pop(token, None)
            raise

    async def health(self) -> Value:
        """Ask the front how it is.

        Raises:
            Failed: it does not answer.
        """
        return await self._client.call("xbus.health", timeout=HEALTH_SECONDS)
