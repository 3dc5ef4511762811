"""Stores the data of large writes in threads of its own. Then the writes that refer to it join the others.

Writes of one lane keep their order: those behind a large one wait until its data is durable. Nobody else waits.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from xbus.broker.journal.objects.stores import UNAVAILABLE, ObjectStore
from xbus.broker.journal.writes import (
    Append,
    EarlierWrite,
    PutEnvelope,
    PutEvent,
    StoredObject,
    Write,
    WriteAnswer,
    write_size,
)
from xbus.errors import JournalError, JournalUnavailable

T = TypeVar("T")

THREADS = 4
"""Objects that are stored at a time. More overlap their waits for the disk, and cost memory."""


class WriteQueue(Protocol):
    """Takes writes whose data is where it belongs."""

    def submit(self, write: Write[T], answer: WriteAnswer[T], *, promises: bool = True) -> None:
        """Have a write made durable, behind all that was submitted before."""

    def hold(self, size: int) -> None:
        """Count bytes that wait, and are not submitted yet; negative once they are."""


class Order(NamedTuple):
    """The place of a write among others.

    Args:
        lane: writes of one lane keep their order.
        after: a write before it. If that has failed, this one fails, too: its maker did not know.
    """

    lane: Hashable = None
    after: EarlierWrite | None = None

    def check(self) -> None:
        """Let a write pass.

        Raises:
            JournalUnavailable: the one before it has failed.
        """
        after = self.after
        if after is not None and after.done() and not after.cancelled() and after.exception() is not None:
            raise JournalUnavailable("a write before this one failed", "repeat both")


NO_ORDER = Order()


class ObjectPlace(NamedTuple):
    """The place to which the data of large writes goes.

    Args:
        place: a folder, or an address.
        large_bytes: from so much data on a write is large.
    """

    place: str
    large_bytes: int


@dataclass(eq=False, slots=True)
class _HeldWrite:
    """A write that waits for its data, or behind another one that does."""

    write: Write[Any]
    promises: bool
    order: Order
    answer: WriteAnswer[Any]
    storing: "asyncio.Future[Write[object]] | None" = None

    @property
    def is_stored(self) -> bool:
        return self.storing is None or self.storing.done()


class Stowing:
    """Hands writes on, large ones when their data is stored.

    Args:
        store: where data goes.
        store_id: its row in the journal.
        large_bytes: from so much data on a write is large.
        seconds: how long a store may take for a write.
        queue: takes the writes.
    """

    def __init__(self, store: ObjectStore, store_id: int, large_bytes: int, seconds: float, queue: WriteQueue) -> None:
        self._store = store
        self._store_id = store_id
        self._large_bytes = large_bytes
        self._seconds = seconds
        self._queue = queue
        self._lanes: dict[Hashable, deque[_HeldWrite]] = {}
        self._all_handed_on = asyncio.Event()
        self._all_handed_on.set()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="journal-objects")

    async def close(self) -> None:
        """Wait for what is being stored, and hand it on."""
        await self._all_handed_on.wait()
        # A thread that waits for a silent store is left behind.
        self._threads.shutdown(wait=False)

    def submit(
        self, write: Write[T], answer: WriteAnswer[T], *, promises: bool = True, order: Order = NO_ORDER
    ) -> None:
        """Have a write made durable, in its order."""
        is_large = self._is_large(write)
        lane = self._lanes.get(order.lane)
        if lane is None and not is_large:
            self._hand_on(write, order, promises, answer)
            return
        waiting = _HeldWrite(write, promises, order, answer)
        self._queue.hold(write_size(write))
        if lane is None:
            lane = self._lanes[order.lane] = deque()
            self._all_handed_on.clear()
        lane.append(waiting)
        if is_large:
            waiting.storing = asyncio.ensure_future(self._stored(write))
            waiting.storing.add_done_callback(lambda _: self._advance(order.lane))

    def _advance(self, name: Hashable) -> None:
        """Hand on the first writes of a lane, as far as their data is stored."""
        lane = self._lanes.get(name)
        while lane and lane[0].is_stored:
            first = lane.popleft()
            self._queue.hold(-write_size(first.write))
            try:
                write = first.write if first.storing is None else first.storing.result()
            except JournalError as error:
                _fail(first.answer, error)
            else:
                self._hand_on(write, first.order, first.promises, first.answer)
        if not lane:
            self._lanes.pop(name, None)
        if not self._lanes:
            self._all_handed_on.set()

    def _hand_on(self, write: Write[T], order: Order, promises: bool, answer: WriteAnswer[T]) -> None:
        try:
            order.check()
        except JournalUnavailable as error:
            _fail(answer, error)
        else:
            self._queue.submit(write, answer, promises=promises)

    def _is_large(self, write: Write[Any]) -> bool:
        if type(write) is Append:
            return len(write.data) >= self._large_bytes
        if type(write) is PutEnvelope:
            return any(len(event.data) >= self._large_bytes for event in write.events)
        return False

    async def _stored(self, write: Write[Any]) -> Write[object]:
        """Store the data of a large write; returns the write that refers to it."""
        try:
            async with asyncio.timeout(self._seconds):
                if isinstance(write, Append):
                    return replace(write, stored=await self._put(write.data))
                assert isinstance(write, PutEnvelope)
                return replace(write, events=[await self._stored_event(event) for event in write.events])
        except TimeoutError:
            raise JournalUnavailable(
                f"the object store {self._store.place} did not answer within {self._seconds:.0f} s",
                "see that it is there, then repeat",
                code=UNAVAILABLE,
            ) from None

    async def _stored_event(self, event: PutEvent) -> PutEvent:
        is_large = len(event.data) >= self._large_bytes
        return event._replace(stored=await self._put(event.data)) if is_large else event

    async def _put(self, data: bytes) -> StoredObject:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._put_here, data)

    def _put_here(self, data: bytes) -> StoredObject:
        began = time.monotonic()
        digest = hashlib.sha256(data).digest()
        self._store.put(digest, data)
        return StoredObject(self._store_id, digest, began)


def _fail(answer: WriteAnswer[Any], error: JournalError) -> None:
    if not answer.done():
        answer.set_exception(error)
