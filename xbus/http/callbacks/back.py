"""The gateway's way to the broker's back: one connection, by which the calls of all subscriptions go."""

from collections.abc import Sequence

from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.messages import BatchAnswer, RangesAnswer
from xbus.rpc.messages.subscriptions import (
    FailedCallAnswer,
    MeasuredSubscriptions,
    SubscriptionHealthMap,
    SubscriptionsAnswer,
)
from xbus.rpc.shapes import AnswerReader

ANSWER_SECONDS = 10.0
"""Seconds to wait for an answer, beside those for which a call may wait at the back."""

WAIT_SECONDS = 20.0
"""Seconds that a call waits for a batch. More make fewer calls of idle subscriptions."""

MOST_BATCH_BYTES = 512 * 1024
"""Bytes of items at which a batch ends. A gateway keeps a batch of each subscriber that does not answer."""

_RANGES = AnswerReader("xbus.renew_ranges", RangesAnswer)
_LIST = AnswerReader("xbus.list_subscriptions", SubscriptionsAnswer)
_MEASURED = AnswerReader("xbus.measure_subscriptions", MeasuredSubscriptions)
_BATCH = AnswerReader("xbus.read_batch", BatchAnswer)
_NOTED = AnswerReader("xbus.note_callback", FailedCallAnswer)


class GatewayBack:
    """Calls the back by the token of a gateway.

    Each call raises ``CallError``: ``Refused`` where the back refuses it, ``Failed`` where it does not answer.

    Args:
        client: the connection to the back.
        token: an API token of a role whose service is of kind gateway.
    """

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._token = token

    async def subscriptions(self, known: int, wait: float) -> SubscriptionsAnswer:
        """List the subscriptions that are to be served, once something may have changed or the time is over.

        Args:
            known: the ``changes`` of the answer before; -1 for none.
            wait: seconds to wait.
        """
        return _LIST.read(await self._call("xbus.list_subscriptions", known, wait, wait=wait))

    async def measure(self) -> list[SubscriptionHealthMap]:
        """Ask how all subscriptions are; what they were made to do without is told to one gateway only."""
        return _MEASURED.read(await self._call("xbus.measure_subscriptions", True))["subscriptions"]

    async def read(self, program: str, reader: str, done: list[Value] | None) -> BatchAnswer:
        """Settle a batch, and wait for the next one.

        Args:
            program: the UUID of the program that reads.
            reader: the key of the subscription's reader.
            done: of the former batch, see ``ReaderBatch.settled``.
        """
        options: dict[str, Value] = {"reader": reader, "wait": WAIT_SECONDS, "max_bytes": MOST_BATCH_BYTES}
        if done is not None:
            options["done"] = done
        return _BATCH.read(await self._call("xbus.read_batch", program, options, wait=WAIT_SECONDS))

    async def renew(self, program: str, reader: str) -> Sequence[Sequence[int]]:
        """Give a sign of life, which keeps the ranges; returns the number and the counter of each."""
        return _RANGES.read(await self._call("xbus.renew_ranges", program, reader))["ranges"]

    async def leave(self, program: str, reader: str) -> None:
        """Give the ranges up."""
        await self._call("xbus.leave_ranges", program, reader)

    async def note(self, reader: str, outcome: dict[str, Value]) -> FailedCallAnswer:
        """Tell how a call of the subscriber went; an empty outcome is a success. The back decides what follows."""
        return _NOTED.read(await self._call("xbus.note_callback", reader, outcome))

    async def _call(self, verb: str, *arguments: object, wait: float = 0.0) -> Value:
        return await self._client.call(verb, self._token, *arguments, timeout=wait + ANSWER_SECONDS)
