"""The gateway's way to the broker's front: one connection for all tokens, and the envelopes of requests.

An envelope of one event goes in one call if it is small, else in parts while it comes.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import ExitStack
from types import TracebackType

from xbus.clock import Clock
from xbus.emitter.batch import check_size
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import AsyncEnvelope, AsyncEvent, EventStart
from xbus.emitter.options import Options
from xbus.emitter.patience import EmitterPatience, insist
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import FrontLimits, TokenCalls
from xbus.errors import Refused
from xbus.ids import Ids
from xbus.rpc.client import Client, open_client
from xbus.rpc.codec import Value
from xbus.rpc.items import ITEM_HEADER_BYTES
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import EnvelopeOptionsMap, FrontLimitsMap
from xbus.rpc.shapes import AnswerReader

SIGNS = LifeSigns(heartbeat_seconds=5.0)
"""The broker gives signs of life beneath the calls. They reveal a vanished machine."""

HEALTH_SECONDS = 2.0
"""Seconds to wait for the front's answer about its health. More let a proxy wait for a broker that is away."""

MOST_TOKENS = 1000
"""Tokens whose limits are remembered. Fewer ask the front more often, more take memory: 1 KiB or so each."""

_LIMITS = AnswerReader("xbus.get_limits", FrontLimitsMap)


class TokenSession(TokenCalls):
    """Puts an API token into calls; it needs no login.

    Args:
        client: the connection to the front.
        token: of the program whose calls these are.
        limits: of the front.
        probe_seconds: how long to wait for a sign of life.
    """

    def __init__(self, client: Client, token: str, limits: FrontLimits, probe_seconds: float) -> None:
        super().__init__(client, token)
        self.limits = limits
        self._probe_seconds = probe_seconds

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
        self._exit = ExitStack()
        self._client: Client

    async def __aenter__(self) -> "FrontConnection":
        self._client = open_client(self._exit, self._address, self._clock, SIGNS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._exit.close()

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


SMALL_BYTES = 262_144
"""Items up to this size go in one call. More spare large requests some calls, and take memory until all has come."""


async def publish(
    line: EmitterContext, start: EventStart, items: AsyncIterator[bytes], options: EnvelopeOptionsMap
) -> Receipt:
    """Send an envelope of one event.

    Args:
        line: the way to the front, by the token of the request.
        start: the event type and the partition key.
        items: packed; they may still be coming.
        options: of the envelope.

    Raises:
        CallError: the front refuses it, or nothing answered for as long as the gateway insists. Nothing is kept then,
            or the same is answered again under the same key.
    """
    limits = line.session.limits
    most = min(SMALL_BYTES, limits.max_batch_bytes)
    first: list[bytes] = []
    size = 0
    async for item in items:
        check_size(len(item), limits.max_item_bytes)
        first.append(item)
        size += len(item) + ITEM_HEADER_BYTES
        if size > most:
            return await _publish_in_parts(line, start, first, items, options)
    if limits.groups:
        return await line.puts.put(start.type_name, start.tags, first, options)
    return await _publish_in_parts(line, start, first, items, options)


async def _publish_in_parts(
    line: EmitterContext,
    start: EventStart,
    first: list[bytes],
    others: AsyncIterator[bytes],
    options: EnvelopeOptionsMap,
) -> Receipt:
    async with _envelope(line, options) as envelope, envelope.begin(start) as event:
        for item in first:
            await event.send(item)
        async for item in others:
            await event.send(item)
    return envelope.receipt


async def ask(
    line: EmitterContext, start: EventStart, items: AsyncIterator[bytes], options: EnvelopeOptionsMap
) -> tuple[Receipt, Value]:
    """Send an envelope of one event, and wait for a consumer's immediate reply to it.

    Raises:
        Refused: the event type has no immediate replies (``no_reply``).
        CallError: as of :func:`publish`, or no reply came.
    """
    async with _envelope(line, options) as envelope:
        async with envelope.begin(start) as event:
            async for item in items:
                await event.send(item)
        reply = await _reply(event, start.type_name)
    return envelope.receipt, reply


async def _reply(event: AsyncEvent, type_name: str) -> Value:
    if not await event.has_reply():
        raise Refused(
            f'events of type "{type_name}" have no immediate reply',
            "send the event without asking, or have the type given immediate_reply = true with xbus apply",
            code="no_reply",
        )
    return await event.reply()


def _envelope(line: EmitterContext, options: EnvelopeOptionsMap) -> AsyncEnvelope:
    async def give_line() -> EmitterContext:
        return line

    return AsyncEnvelope(give_line, line.new_id(), options)
