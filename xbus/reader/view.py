"""Reads a part of the log without a lease and without a checkpoint."""

from collections.abc import AsyncIterator, Sequence

from xbus.reader.batch import EventBatch
from xbus.reader.options import ReaderOptions
from xbus.reader.session import ReaderSession
from xbus.rpc.codec import Value
from xbus.rpc.messages import LogAnswer
from xbus.rpc.shapes import AnswerReader

_ANSWER = AnswerReader("xbus.read_log", LogAnswer)


class AsyncLogView:
    """A part of the log, from a place on. Iterating over it gives batches, up to the end of the log.

    Args:
        session: makes the calls.
        options: how large batches are, and how long a call waits.
        start: where to begin: a place, a moment in ISO 8601, ``oldest`` or ``head``.
        key: the partition key of the wanted events, or the ordering key of those without one; None for all.
        types: the wanted event types; None for all of the reader.
        follow: whether to wait for more at the end of the log, for ever.
    """

    def __init__(
        self,
        session: ReaderSession,
        options: ReaderOptions,
        start: str,
        key: str | None,
        types: Sequence[str] | None,
        follow: bool,
    ) -> None:
        self._session = session
        self._options = options
        self._wait = options.wait if follow else 0.0
        self._follow = follow
        self._asked: dict[str, Value] = {"from": start, "key": key}
        if types is not None:
            self._asked["types"] = list(types)

    async def next_batch(self) -> EventBatch | None:
        """Read the next batch; None at the end of the log.

        Raises:
            Refused: the start is none (``place_invalid``, ``moment_invalid``, ``place_beyond_end``), a type is unknown
                (``type_unknown``) or not the reader's (``type_not_read``).
        """
        while True:
            asked = {**self._options.on_wire(self._wait), **self._asked}
            answer = _ANSWER.read(await self._session.call("xbus.read_log", asked, wait=self._wait))
            self._asked["from"] = [*answer["to"]]
            if answer["events"]:
                return EventBatch(answer["events"], answer["from"], answer["to"])
            if not self._follow:
                return None

    async def __aiter__(self) -> AsyncIterator[EventBatch]:
        while (batch := await self.next_batch()) is not None:
            yield batch
