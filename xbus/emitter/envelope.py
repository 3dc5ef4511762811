"""One envelope being sent: all of it arrives, or nothing."""

import logging
from types import TracebackType

from xbus.emitter.event import AsyncEvent
from xbus.emitter.ledger import Call
from xbus.emitter.line import Line
from xbus.emitter.receipt import Receipt
from xbus.errors import CallError, Refused

logger = logging.getLogger(__name__)


class AsyncEnvelope:
    """One envelope, to be used in ``async with``. Leaving the block seals it; leaving it by an exception cancels it.

    Args:
        line: what the emitter's envelopes share.
        ordering_key: roles that want order get envelopes of one key one after the other; None is a key too.

    Attributes:
        id: the envelope's UUID as text.
    """

    def __init__(self, line: Line, ordering_key: str | None = None) -> None:
        self.id = line.new_id()
        self._options = envelope_options(ordering_key)
        self._line = line
        self._stream = line.new_stream()
        self._events = 0
        self._receipt: Receipt | None = None

    @property
    def receipt(self) -> Receipt:
        """The proof that the bus took the envelope; after the block only.

        Raises:
            Refused: the envelope is not sealed (``envelope_open``).
        """
        if self._receipt is None:
            raise Refused(
                "the envelope is not sealed", "ask for the receipt after its `with` block", code="envelope_open"
            )
        return self._receipt

    async def __aenter__(self) -> "AsyncEnvelope":
        seconds = self._line.options.answer_seconds
        self._stream.submit(Call("xbus.start_envelope", (self.id, *self._options), seconds, durable=False))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._seal()
        except BaseException:
            await self._cancel()
            raise
        else:
            if error is not None:
                await self._cancel()
        finally:
            self._line.end(self._stream)

    def event(self, type_name: str, estimate: int = 0) -> AsyncEvent:
        """Begin an event of the envelope, to be used in ``async with``.

        Args:
            type_name: the event type.
            estimate: how many items will come, 0 where that is not known.
        """
        self._events += 1
        return AsyncEvent(self._line, self._stream, self.id, type_name, estimate)

    async def _seal(self) -> None:
        # The front lets it wait behind the replies to its events.
        call = Call("xbus.end_envelope", (self.id, self._events), self._line.reply_seconds)
        answer = await self._stream.submit(call)
        self._receipt = Receipt.of(answer)

    async def _cancel(self) -> None:
        self._stream.abandon(Refused("the envelope is cancelled", "send it as a new one", code="envelope_closed"))
        try:
            await self._line.session.call("xbus.cancel_envelope", self.id, seconds=self._line.options.probe_seconds)
        except CallError as error:
            # It stays open, seen by nobody.
            logger.warning(
                "envelope not cancelled",
                extra={"action": "emitter_cancel_failed", "envelope_id": self.id, "code": error.code},
            )


def envelope_options(ordering_key: str | None) -> tuple[dict[str, str], ...]:
    """The options of an envelope as the last argument of the call that begins it; nothing where there are none."""
    return () if ordering_key is None else ({"ordering_key": ordering_key},)
