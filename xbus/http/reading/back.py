"""The gateway's way to the broker's back: one connection, by which the calls of all tokens go."""

from contextlib import AsyncExitStack
from types import TracebackType

from xbus.clock import Clock
from xbus.emitter.patience import EmitterPatience, insist
from xbus.http.front import connected
from xbus.recipient.ways import MAX_MESSAGE_BYTES
from xbus.rpc.client import Client
from xbus.rpc.codec import Value


class BackConnection:
    """The connection to the back, to be used in ``async with``.

    Args:
        address: of the back.
        clock: tells the time.
        insist_seconds: how long a call is repeated that gets no answer. Each verb of readers may be repeated.
    """

    def __init__(self, address: str, clock: Clock, insist_seconds: float) -> None:
        self._address = address
        self._clock = clock
        self._insist_seconds = insist_seconds
        self._exit = AsyncExitStack()
        self._client: Client

    async def __aenter__(self) -> "BackConnection":
        self._client = await self._exit.enter_async_context(connected(self._address, self._clock, MAX_MESSAGE_BYTES))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def call(self, verb: str, token: str, *arguments: object, wait: float = 0.0) -> Value:
        """Call a verb.

        Args:
            verb: its name.
            token: of the request.
            arguments: behind the token.
            wait: seconds that the back itself may wait.

        Raises:
            Refused: the back refuses it.
            Failed: no answer came for as long as the gateway insists.
        """

        async def attempt(seconds: float) -> Value:
            return await self._client.call(verb, token, *arguments, timeout=seconds + wait)

        patience = EmitterPatience(self._insist_seconds, self._clock)
        return await insist(patience, self._insist_seconds, attempt)
