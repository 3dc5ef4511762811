"""The front: where emitters' envelopes come in. ``verbs.py`` and ``batch_verbs.py`` put it on the wire."""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes import Limits, OpenEnvelope, envelope_unknown
from xbus.broker.front.futures import pass_on, unheard
from xbus.broker.front.live import LiveEnvelope
from xbus.broker.front.repeats import PastEnvelope
from xbus.broker.journal.catalog import EventType
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.reading import StoredEnvelope, read_envelope
from xbus.broker.journal.writes import Receipt, StartEnvelope
from xbus.clock import Clock
from xbus.errors import JournalError, ProtocolError, Refused, XbusError
from xbus.rpc.codec import unpack_items
from xbus.rpc.later import Later
from xbus.states import EnvelopeState

log = logging.getLogger(__name__)

Known: TypeAlias = LiveEnvelope | PastEnvelope
Act: TypeAlias = Callable[[Known | None], Any]
"""What a call does with its envelope; None stands for one that there is not."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event of an envelope that comes in one call; ``data`` as in ``model.segment``."""

    event_id: UUID
    type_name: str
    items: int
    data: bytes


@dataclass(slots=True)
class _Lookup:
    """Calls that wait, in order of arrival, until the journal has told what it knows of their envelope."""

    waiting: list[tuple[Act, "asyncio.Future[Any]"]] = field(default_factory=list)


class Front:
    """What emitters can do, whichever verbs they speak.

    Open envelopes are kept in memory; of all others, and after a failed write, the journal tells what is so.

    Args:
        ring: called whenever an envelope was sealed.
    """

    def __init__(
        self, journal: Journal, configuration: Configuration, clock: Clock, limits: Limits, ring: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._clock = clock
        self._limits = limits
        self._ring = ring
        self._live: dict[UUID, LiveEnvelope] = {}
        self._unsettled: dict[UUID, LiveEnvelope] = {}
        self._lookups: dict[UUID, _Lookup] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Let calls come; what they leave running runs in ``tasks``."""
        self._tasks = tasks

    def has_open_envelope(self, emitter_id: int) -> bool:
        """Whether an emitter is in the midst of sending."""
        return any(envelope.emitter_id == emitter_id for envelope in self._live.values())

    # -- the calls -------------------------------------------------------------------------------------------------

    def start_envelope(self, emitter_id: int, envelope_id: UUID, *, is_new: bool) -> Any:
        """Open an envelope; it promises nothing and need not be waited for. A repeat changes nothing.

        Args:
            is_new: whether the id was made here and now, so that the journal can't know it.
        """

        def start(known: Known | None) -> UUID:
            if known is None:
                self._open(emitter_id, envelope_id)
            else:
                _check_owner(known, emitter_id, envelope_id)
            return envelope_id

        return start(None) if is_new else self._with_envelope(envelope_id, start)

    def start_event(self, emitter_id: int, envelope_id: UUID, event_id: UUID, type_name: str, estimate: int) -> Any:
        """Begin an event; it promises nothing and need not be waited for.

        Raises:
            Refused: unknown_type, type_not_allowed, envelope_unknown, envelope_closed, content_differs.
        """
        return self._call(emitter_id, envelope_id, lambda known: known.start_event(event_id, type_name, estimate))

    def append(
        self, emitter_id: int, envelope_id: UUID, event_id: UUID, first_index: int | None, items: int, data: bytes
    ) -> Any:
        """Take items; answered with how many the event holds up to these, durably. See ``LiveEnvelope.append``.

        Raises:
            Refused: batch_too_large, item_too_large, bad_items, and those of ``LiveEnvelope.append``.
        """
        self._check_items(items, data)
        return self._call(emitter_id, envelope_id, lambda known: known.append(event_id, first_index, items, data))

    def append_item(self, emitter_id: int, envelope_id: UUID, event_id: UUID, packed: bytes) -> Any:
        """Take one item, already packed and checked, behind all others. See ``LiveEnvelope.append``."""
        return self._call(emitter_id, envelope_id, lambda known: known.append(event_id, None, 1, packed))

    def end_event(self, emitter_id: int, envelope_id: UUID, event_id: UUID, items: int | None) -> Any:
        """End an event; answered with how many items it holds, durably. See ``LiveEnvelope.end_event``."""
        return self._call(emitter_id, envelope_id, lambda known: known.end_event(event_id, items))

    def end_envelope(self, emitter_id: int, envelope_id: UUID, events: int | None) -> Any:
        """Seal an envelope; answered with its receipt. See ``LiveEnvelope.seal``."""
        return self._call(emitter_id, envelope_id, lambda known: self._seal(known, events))

    def cancel_envelope(self, emitter_id: int, envelope_id: UUID) -> Any:
        """Give an envelope up; answered with True. See ``LiveEnvelope.cancel``."""
        return self._call(emitter_id, envelope_id, lambda known: known.cancel("cancelled by its emitter"))

    def put_envelope(self, emitter_id: int, envelope_id: UUID, events: Sequence[NewEvent]) -> Any:
        """Take a whole envelope in one call; answered with its receipt, and so is a repeat.

        Raises:
            Refused: as the single calls would; then nothing of it is kept.
        """

        def put(known: Known | None) -> Any:
            if known is not None:
                _check_owner(known, emitter_id, envelope_id)
                return self._later(self._put_again(known, events))
            self._check_whole(emitter_id, envelope_id, events)
            envelope = self._open(emitter_id, envelope_id)
            unheard(self._fill(envelope, events))
            return self._seal(envelope, len(events))

        return self._with_envelope(envelope_id, put)

    # -- how they are done -----------------------------------------------------------------------------------------

    def _seal(self, known: Known, events: int | None) -> Later[Receipt]:
        return known.seal(events).then(self._sealed)

    def _sealed(self, receipt: Receipt) -> Receipt:
        self._ring()
        return receipt

    def _check_whole(self, emitter_id: int, envelope_id: UUID, events: Sequence[NewEvent]) -> None:
        """Let an envelope pass in which nothing will be refused any more, so that nothing of a refused one is kept."""
        for event in events:
            self._event_type(emitter_id, event.type_name)
            if event.items or event.data:
                self._check_items(event.items, event.data)
        if len({event.event_id for event in events}) < len(events):
            raise Refused("two events have the same id", "make an id for each event", code="wrong_arguments")
        items, data_bytes = sum(event.items for event in events), sum(len(event.data) for event in events)
        OpenEnvelope(envelope_id, emitter_id).check_room(items, data_bytes, self._limits)

    @staticmethod
    def _fill(known: Known, events: Sequence[NewEvent]) -> list[Later[int]]:
        answers = []
        for event in events:
            known.start_event(event.event_id, event.type_name, event.items)
            if event.items:
                answers.append(known.append(event.event_id, 0, event.items, event.data))
            answers.append(known.end_event(event.event_id, event.items))
        return answers

    async def _put_again(self, known: Known, events: Sequence[NewEvent]) -> Receipt:
        """What was kept of the first time is compared; what was not, because the broker went down, is done now."""
        await asyncio.gather(*self._fill(known, events))
        return await self._seal(known, len(events))

    def _event_type(self, emitter_id: int, type_name: str) -> EventType:
        catalog = self._configuration.catalog
        event_type = catalog.event_types.get(type_name)
        emitter = catalog.emitters.get(emitter_id)
        if event_type is None:
            raise Refused(
                f'there is no event type "{type_name}"', "see xbus export for those there are", code="unknown_type"
            )
        if emitter is None or type_name not in emitter.event_types:
            raise Refused(
                f'the emitter\'s profile does not allow event type "{type_name}"',
                "add the type to the profile with xbus apply",
                code="type_not_allowed",
            )
        return event_type

    def _check_items(self, items: int, data: bytes) -> None:
        if len(data) > self._limits.batch_bytes:
            raise Refused(
                f"a batch of {len(data)} bytes is over the limit of {self._limits.batch_bytes}",
                "send smaller batches, or raise max_batch_bytes in the broker's configuration",
                code="batch_too_large",
            )
        try:
            largest = max(map(len, unpack_items(data, items)))
        except (ProtocolError, ValueError) as error:
            raise Refused(
                f"the batch does not hold {items} items ({error})",
                "send each item as a msgpack bin, one after the other, and count them",
                code="bad_items",
            ) from error
        if largest > self._limits.item_bytes:
            raise item_too_large(largest, self._limits)

    # -- finding envelopes -----------------------------------------------------------------------------------------

    def _call(self, emitter_id: int, envelope_id: UUID, act: Callable[[Known], Any]) -> Any:
        def act_as_owner(known: Known | None) -> Any:
            if known is None:
                raise envelope_unknown(envelope_id)
            _check_owner(known, emitter_id, envelope_id)
            return act(known)

        return self._with_envelope(envelope_id, act_as_owner)

    def _with_envelope(self, envelope_id: UUID, act: Act) -> Any:
        """Do ``act`` with an envelope: at once where it is in memory, else in order when the journal has been asked."""
        lookup = self._lookups.get(envelope_id)
        if lookup is None:
            known = self._live.get(envelope_id)
            if known is not None:
                return act(known)
            lookup = self._lookups[envelope_id] = _Lookup()
            self._spawn(self._look_up(envelope_id, lookup))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        lookup.waiting.append((act, answer))
        return answer

    async def _look_up(self, envelope_id: UUID, lookup: _Lookup) -> None:
        error: XbusError | None = None
        known: Known | None = None
        try:
            await self._settle(envelope_id)
            stored = await self._journal.read(read_envelope, envelope_id)
            known = None if stored is None else self._know(stored)
        except XbusError as caught:
            error = caught
        # From here on nothing is awaited: what comes next finds the envelope in memory, behind these.
        del self._lookups[envelope_id]
        for act, answer in lookup.waiting:
            if answer.done():
                continue
            if error is not None:
                answer.set_exception(error)
                continue
            try:
                outcome = act(self._live.get(envelope_id, known))
            except XbusError as refusal:
                answer.set_exception(refusal)
                continue
            pass_on(outcome, answer)

    async def _settle(self, envelope_id: UUID) -> None:
        """Wait until the journal has answered all that was written of an envelope before it was forgotten."""
        unsettled = self._unsettled.get(envelope_id)
        if unsettled is not None:
            try:
                await unsettled.durable()
            except JournalError:
                log.debug("it was forgotten for this", extra={"action": "settled", "envelope_id": envelope_id})

    def _know(self, stored: StoredEnvelope) -> Known:
        if stored.state is not EnvelopeState.OPEN:
            return PastEnvelope(stored, self._journal)
        return self._keep(OpenEnvelope.of_stored(stored))

    def _open(self, emitter_id: int, envelope_id: UUID) -> LiveEnvelope:
        envelope = self._keep(OpenEnvelope(envelope_id, emitter_id))
        envelope.write(StartEnvelope(envelope_id, emitter_id, self._clock.now()))
        return envelope

    def _keep(self, state: OpenEnvelope) -> LiveEnvelope:
        find_type = functools.partial(self._event_type, state.emitter_id)
        envelope = LiveEnvelope(state, self._journal, self._clock, self._limits, find_type, self._forget)
        self._live[state.envelope_id] = envelope
        return envelope

    def _forget(self, envelope: LiveEnvelope) -> None:
        envelope_id = envelope.state.envelope_id
        if self._live.get(envelope_id) is envelope:
            del self._live[envelope_id]
            last_write = envelope.state.last_write
            if last_write is not None and not last_write.done():
                self._unsettled[envelope_id] = envelope
                last_write.add_done_callback(lambda _: self._unsettled.pop(envelope_id, None))

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None, "the front is not started"
        self._tasks.create_task(work)

    def _later(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
        """The answer that ``work`` will give; its error is the caller's, and no death of a task."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def give() -> None:
            try:
                outcome = await work
            except XbusError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(outcome)

        self._spawn(give())
        return answer


def item_too_large(size: int, limits: Limits) -> Refused:
    """The answer to an item over the limit, both in bytes."""
    return Refused(
        f"an item of {size} bytes is over the limit of {limits.item_bytes}",
        "send smaller items, or raise max_item_bytes in the broker's configuration",
        code="item_too_large",
    )


def _check_owner(known: Known, emitter_id: int, envelope_id: UUID) -> None:
    if known.emitter_id != emitter_id:
        raise envelope_unknown(envelope_id)
