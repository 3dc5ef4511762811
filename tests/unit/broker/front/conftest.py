"""A front over a journal in memory, and what two emitters do with it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.groups import LIMITS
from tests.support.journal import Scribe, memory_engine
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import Checks, NewEvent
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EndedEvent
from xbus.broker.front.front import Front
from xbus.broker.housekeeping.space import Space
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import StoredEnvelope, read_envelope
from xbus.broker.journal.writes import SealReceipt
from xbus.clock import Clock
from xbus.rpc.bell import Bell
from xbus.rpc.codec import pack_items
from xbus.supervision.health import Health

REPLY_SECONDS = 30.0


class Desk:
    """The front as one emitter sees it: each call is awaited, unless it is one of those that end in ``soon``."""

    def __init__(self, front: Front, journal: Journal, emitter_id: int) -> None:
        self.front = front
        self.journal = journal
        self.emitter_id = emitter_id

    async def start_envelope(self, envelope_id: uuid.UUID | None = None) -> uuid.UUID:
        envelope_id = envelope_id or uuid.uuid4()
        await self._answer(self.front.start_envelope(self.emitter_id, envelope_id, is_new=False))
        return envelope_id

    async def start_event(
        self, envelope_id: uuid.UUID, event_id: uuid.UUID | None = None, type_name: str = "notes", estimate: int = 0
    ) -> uuid.UUID:
        event_id = event_id or uuid.uuid4()
        await self._answer(self.front.start_event(self.emitter_id, envelope_id, event_id, type_name, estimate))
        return event_id

    def append_soon(
        self, envelope_id: uuid.UUID, event_id: uuid.UUID, first_index: int | None, items: Sequence[bytes]
    ) -> Any:
        packed = pack_items(items)
        return self.front.append(self.emitter_id, envelope_id, event_id, first_index, len(items), packed)

    async def append(
        self, envelope_id: uuid.UUID, event_id: uuid.UUID, first_index: int | None, items: Sequence[bytes]
    ) -> int:
        count: int = await self._answer(self.append_soon(envelope_id, event_id, first_index, items))
        return count

    async def end_event(self, envelope_id: uuid.UUID, event_id: uuid.UUID, items: int | None = None) -> int:
        ended: EndedEvent = await self._answer(self.front.end_event(self.emitter_id, envelope_id, event_id, items))
        return ended.items

    async def seal(self, envelope_id: uuid.UUID, events: int | None = None) -> SealReceipt:
        receipt: SealReceipt = await self._answer(self.front.end_envelope(self.emitter_id, envelope_id, events))
        return receipt

    async def cancel(self, envelope_id: uuid.UUID) -> bool:
        answer: bool = await self._answer(self.front.cancel_envelope(self.emitter_id, envelope_id))
        return answer

    def put_soon(self, envelope_id: uuid.UUID, events: Sequence[NewEvent]) -> Any:
        return self.front.put_envelope(self.emitter_id, envelope_id, events)

    async def put(self, envelope_id: uuid.UUID, *events: NewEvent) -> SealReceipt:
        receipt: SealReceipt = await self._answer(self.put_soon(envelope_id, events))
        return receipt

    async def stored(self, envelope_id: uuid.UUID) -> StoredEnvelope | None:
        return await self.journal.read(read_envelope, envelope_id)

    @staticmethod
    async def _answer(outcome: Any) -> Any:
        return await outcome if hasattr(outcome, "__await__") else outcome


class Rings:
    """Counts wake-ups of the back, and wakes the front."""

    def __init__(self) -> None:
        self.count = 0
        self.back = asyncio.Event()

    def ring(self) -> None:
        self.count += 1

    async def wait(self, timeout: float) -> bool:
        await self.back.wait()
        self.back.clear()
        return True


@pytest.fixture
def rings() -> Rings:
    return Rings()


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    async with Journal(memory_engine(), "broker") as journal:
        yield journal


@pytest.fixture
def faults(journal: Journal) -> Faults:
    return Faults(journal._engine)


@pytest.fixture
async def configuration(journal: Journal) -> Configuration:
    configuration = Configuration(journal)
    await configuration.refresh()
    return configuration


@pytest.fixture
def replies(journal: Journal, rings: Rings) -> ReplyRequests:
    return ReplyRequests(journal, cast(Bell, rings), StandingClock(), REPLY_SECONDS)


@pytest.fixture
def clock() -> Clock:
    return StandingClock()


@pytest.fixture
async def front(
    journal: Journal, configuration: Configuration, replies: ReplyRequests, rings: Rings, clock: Clock
) -> AsyncIterator[Front]:
    journal.on_sealed(lambda sealed: rings.ring())
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(replies.watch())
        yield Front(
            journal,
            Checks(configuration, LIMITS, clock),
            clock,
            replies,
            rings.ring,
            tasks,
            Space(journal, 0, Health("front", StandingClock())),
        )
        watching.cancel()


@pytest.fixture
async def north(front: Front, journal: Journal) -> Desk:
    """An emitter that may send flights and notes."""
    return Desk(front, journal, (await Scribe.of(journal)).emitter_id("north"))


@pytest.fixture
async def south(front: Front, journal: Journal) -> Desk:
    """An emitter that may send notes only."""
    return Desk(front, journal, (await Scribe.of(journal)).emitter_id("south"))
