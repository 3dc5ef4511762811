"""Reads the responses of a recipient to calls about envelopes, strictly."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from xbus.broker.back.log import RunBatch, check_given
from xbus.broker.back.recipients.failures import LEAVING_CODES, RecipientFailed, failure_of_call, nonsense, refusal
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.errors import CallError, Failed, ProtocolError
from xbus.rpc.codec import Value


@dataclass(frozen=True, slots=True)
class EventResponse:
    """The answer of a recipient to the end of an event.

    Args:
        reply: a consumer's immediate reply; of meaning only where somebody waits for it.
        made: what a worker kept back until then.
    """

    reply: Value
    made: Sequence[RunBatch] = ()


class BundleStatus(Enum):
    """The result of an envelope of a bundle, of which no recipient says more.

    Attributes:
        COMMITTED: the consumer has committed it.
        PREPARED: the consumer has taken it, and waits to be told whether to commit.
        NOT_BEGUN: its recipient has not begun it; it may go in the next bundle.
        GOES_ALONE: no worker could transform it in a bundle; it goes in a run, which tells why.
    """

    COMMITTED = "committed"
    PREPARED = "prepared"
    NOT_BEGUN = "not begun"
    GOES_ALONE = "goes alone"


@dataclass(frozen=True, slots=True)
class Transformed:
    """The result of an envelope of a bundle at a worker.

    Args:
        batches: for each event of the envelope the items that the worker made.
    """

    batches: Sequence[Sequence[RunBatch]]


BundleResult: TypeAlias = BundleStatus | Transformed | RecipientFailed


class Responses:
    """Reads the answers of one recipient; each method raises ``RecipientFailed`` and nothing else.

    Args:
        role_id: which role it serves.
        is_worker: whether it may answer items, made of those that it was given.
        names_types: whether it announced that it names event types for items.
        on_leaving: called with the code by which it says that it is about to go.
    """

    def __init__(
        self, role_id: int, *, is_worker: bool, on_leaving: Callable[[str], None], names_types: bool = False
    ) -> None:
        self._role_id = role_id
        self._is_worker = is_worker
        self._names_types = names_types
        self._on_leaving = on_leaving
        self._given: dict[UUID, int] = {}

    def begin(self, event_id: UUID) -> None:
        """Begin an event, of which nothing is given yet."""
        self._given[event_id] = 0

    def forget(self, event_id: UUID) -> None:
        """Keep nothing of an event that is over."""
        self._given.pop(event_id, None)

    def note_given(self, event_id: UUID, batch: RunBatch) -> None:
        """Note the items that are handed over: of these a worker may make others."""
        last = batch.first_index + batch.items - 1
        if batch.indices is not None:
            last = max((index for indices in batch.indices for index in indices), default=-1)
        self.note_given_up_to(event_id, last)

    def note_all_given(self, event: LogEvent) -> None:
        """Note that no item comes any more: at the end a worker may name any of the event.

        That is also one which did not reach it, as another worker left it out: what is made of large events as a whole
        is held to the same.
        """
        self.note_given_up_to(event.event_id, event.items - 1)

    def note_given_up_to(self, event_id: UUID, last: int) -> None:
        """Note that items up to this index are."""
        self._given[event_id] = max(self._given.get(event_id, 0), last + 1)

    async def answered(self, verb: str, event_id: UUID | None, call: "asyncio.Future[Value]") -> Value:
        """The answer to a call."""
        try:
            return await call
        except CallError as error:
            raise self._failed(verb, event_id, error) from error

    def _failed(self, verb: str, event_id: UUID | None, error: CallError) -> RecipientFailed:
        self._note_leaving(error.code)
        return failure_of_call(self._role_id, verb, event_id, error)

    async def parts(self, verb: str, event_id: UUID | None, call: "asyncio.Future[Value]") -> list[Value]:
        """Give the values behind True in the answer to a call."""
        answer = await self.answered(verb, event_id, call)
        match answer:
            case [True, *parts]:
                return parts
            case [False, *parts]:
                raise refusal(self._role_id, verb, event_id, parts[0] if parts else None)
        raise nonsense(self._role_id, verb, event_id, answer)

    async def detail(self, verb: str, event_id: UUID | None, call: "asyncio.Future[Value]") -> Value:
        """Give the first value behind True in the answer to a call; None if it has no value."""
        parts = await self.parts(verb, event_id, call)
        return parts[0] if parts else None

    def bundle(
        self,
        verb: str,
        envelopes: Sequence[LogEnvelope],
        answer: Value,
        error: CallError | None,
        well: BundleStatus,
    ) -> list[BundleResult]:
        """The result of each envelope of a bundle.

        Args:
            answer: to the call.
            error: in its place.
            well: the status of one that went well at a consumer.
        """
        if error is not None:
            raise self._failed(verb, None, error) from error
        if not isinstance(answer, list) or len(answer) != len(envelopes):
            raise nonsense(self._role_id, verb, None, answer)
        results = [
            self._bundle_result(verb, envelope, said, well) for envelope, said in zip(envelopes, answer, strict=True)
        ]
        if results and results[0] is BundleStatus.NOT_BEGUN:
            # Nothing is before it for which it could have been left: asked again it might be left for ever.
            results[0] = nonsense(self._role_id, verb, None, answer)
        return results

    def _bundle_result(self, verb: str, envelope: LogEnvelope, answer: Value, well: BundleStatus) -> BundleResult:
        match answer:
            case [True] if not self._is_worker:
                return well
            case [True, [*of_events]] if self._is_worker and len(of_events) == len(envelope.events):
                return self._made(verb, envelope, of_events)
            case []:
                return BundleStatus.NOT_BEGUN
            case [False, errors, str() | None as event]:
                return refusal(self._role_id, verb, _event_id(event), errors)
            case [None, [str(code), str(cause)], str() | None as event]:
                self._note_leaving(code)
                return failure_of_call(self._role_id, verb, _event_id(event), Failed(cause, code=code))
        return nonsense(self._role_id, verb, None, answer)

    def _made(self, verb: str, envelope: LogEnvelope, of_events: Sequence[Value]) -> Transformed | RecipientFailed:
        try:
            return Transformed(
                [
                    self._read_batches(batches, event.items)
                    for event, batches in zip(envelope.events, of_events, strict=True)
                ]
            )
        except ProtocolError as error:
            return nonsense(self._role_id, verb, None, error.cause)

    def _note_leaving(self, code: str) -> None:
        if code in LEAVING_CODES:
            self._on_leaving(code)

    def end(self, verb: str, event_id: UUID, parts: Sequence[Value]) -> EventResponse:
        """Read ``(reply, batches)``, of which either may be missing."""
        reply, batches, *_ = (*parts, None, None)
        return EventResponse(reply, self.batches(verb, event_id, batches))

    def batches(self, verb: str, event_id: UUID, answer: Value) -> list[RunBatch]:
        """Read the batches of items that a worker made; a consumer makes none."""
        if not self._is_worker or answer is None:
            return []
        try:
            return self._read_batches(answer, self._given.get(event_id, 0))
        except ProtocolError as error:
            raise nonsense(self._role_id, verb, event_id, error.cause) from error

    def _read_batches(self, answer: Value, given: int) -> list[RunBatch]:
        if not isinstance(answer, list):
            raise ProtocolError("an answer is not a list of batches")
        batches = [RunBatch.of_wire(value, given) for value in answer]
        if not self._names_types and any(batch.event_type is not None for batch in batches):
            raise ProtocolError("an answer names an event type, which the recipient has not announced (outs)")
        return [batch for batch in batches if batch.items]

    def singles(self, event_id: UUID, answer: Value) -> list[tuple[list[int], bytes]]:
        """Read the items that a worker of the old kind made of one item, each with its indices."""
        if not self._is_worker:
            return []
        singles: list[tuple[list[int], bytes]] = []
        said: list[Any] = answer if isinstance(answer, list) else [answer]
        for made in said:
            match made:
                case [indices, bytes(item)] if indices:
                    try:
                        check_given(indices, self._given[event_id])
                    except ProtocolError as error:
                        raise nonsense(self._role_id, "send_item", event_id, error.cause) from error
                    singles.append((indices, item))
                case _:
                    raise nonsense(self._role_id, "send_item", event_id, answer)
        return singles


def _event_id(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None
