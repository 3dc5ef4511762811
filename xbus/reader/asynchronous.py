"""The reader for programs that run an asyncio loop, and the core of the other one, whose docstrings say more."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Unpack

from xbus.clock import Clock, SystemClock
from xbus.errors import CallError, Refused
from xbus.pause_notes import PauseNotes
from xbus.reader.batch import LEASE_LOST, EventBatch, ReaderBatch, lease_lost
from xbus.reader.options import ReaderKeywords, ReaderOptions
from xbus.reader.session import ReaderSession, VerbCaller
from xbus.recipient.ways import MAX_MESSAGE_BYTES
from xbus.rpc.client import open_client
from xbus.rpc.codec import Value
from xbus.rpc.curve import complete_login
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import BatchAnswer, LogAnswer, RangesAnswer
from xbus.rpc.shapes import AnswerReader

logger = logging.getLogger(__name__)

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


SIGNS = LifeSigns(heartbeat_seconds=5.0)
"""The back gives signs of life beneath the calls. They reveal a vanished machine."""

RENEWALS_PER_LEASE = 3

_BATCH = AnswerReader("xbus.read_batch", BatchAnswer)
_RANGES = AnswerReader("xbus.renew_ranges", RangesAnswer)


class AsyncReader:
    """Reads the batches of a reader from an asyncio program::

        async with AsyncReader("tcp://127.0.0.1:4891", "billing_1", "password") as reader:
            async for batch in reader:
                for item in batch:
                    await bill(item.value)
                batch.done()

    Leases are renewed while the loop runs: code that blocks the loop for longer than the lease loses it.

    Arguments and errors are those of ``Reader``.
    """

    def __init__(
        self,
        url: str,
        login: str = "",
        password: str = "",
        *,
        clock: Clock | None = None,
        program: uuid.UUID | None = None,
        **options: Unpack[ReaderKeywords],
    ) -> None:
        self._url = url
        self._login, self._password = complete_login(url, login, password)
        self._clock = clock or SystemClock()
        self._program = str(program or uuid.uuid4())
        self._options = ReaderOptions(**options)
        self._open_session: ReaderSession | None = None
        self._exit = AsyncExitStack()
        self._batch: ReaderBatch | None = None
        self._lost: Refused | None = None
        """Why a renewal could not settle what was done, until the author hears of it."""
        self._lease = 0.0
        self._asking = asyncio.Lock()
        """Held by the call that settles and reads, so that nothing is settled twice."""
        self._renewing: asyncio.Task[None] | None = None
        self._pause_notes = PauseNotes(logger, "reader")
        self._has_asked = False
        """True if the bus may have given ranges to this program."""

    async def __aenter__(self) -> "AsyncReader":
        async with AsyncExitStack() as exit_stack:
            session = ReaderSession(self._connect(exit_stack), self._login, self._password, self._options, self._clock)
            await session.open()
            exit_stack.push_async_callback(session.say, "xbus.logout")
            exit_stack.push_async_callback(self._leave)
            self._open_session = session
            self._exit = exit_stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()
        self._open_session = None

    def _connect(self, exit_stack: AsyncExitStack) -> VerbCaller:
        """Connect to the back; leaving the stack closes the connection."""
        return open_client(exit_stack, self._url, self._clock, SIGNS, MAX_MESSAGE_BYTES)

    # -- ranges ----------------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ReaderBatch]:
        while True:
            yield await self.next_kept()

    async def next_kept(self) -> ReaderBatch:
        """Wait for the next batch as ``next_batch``, and drop the former one where its range was lost.

        Somebody may split, merge or move ranges at any moment. A program that iterates reads on: what was in the
        batch is handed out again.
        """
        while True:
            try:
                return await self.next_batch()
            except Refused as refusal:
                if refusal.code != LEASE_LOST:
                    raise
                extra = {"action": "batch_dropped", "code": refusal.code}
                logger.warning("a batch is dropped and handed out again: %s", refusal, extra=extra)

    async def next_batch(self) -> ReaderBatch:
        """Wait for the next batch, and note with the same call that the former one is done.

        Raises:
            Refused: the former batch is not done (``batch_not_done``), or its range was lost (``lease_lost``): the next
                call reads on.
            Failed: nothing answered within ``retry_seconds``.
        """
        while (batch := await self.poll(self._options.wait)) is None:
            pass
        return batch

    async def poll(self, seconds: float) -> ReaderBatch | None:
        """Ask once for the next batch; None where none came in time.

        Args:
            seconds: how long the back may wait for one; it waits for a third of the lease at the most.

        Raises:
            Refused: as ``next_batch``.
            Failed: as ``next_batch``.
        """
        if self._batch is not None and self._batch.is_lost:
            lost, self._batch = self._batch, None
            raise lease_lost(lost.range)
        if self._batch is not None and not self._batch.is_done:
            raise Refused(
                f"the batch from {self._batch.place} to {self._batch.end} is not done",
                "call batch.done() when its items are processed; or leave the reader, and the batch is delivered again",
                code="batch_not_done",
            )
        self._has_asked = True
        async with self._asking:
            if self._lost is not None:
                refusal, self._lost = self._lost, None
                raise refusal
            return await self._read(seconds)

    async def _read(self, wait: float) -> ReaderBatch | None:
        options = self._options.on_wire(wait)
        if self._batch is not None:
            options["done"] = self._batch.settled()
        answer = _BATCH.read(await self._settling("xbus.read_batch", options, wait=wait))
        self._lease = answer["lease"]
        self._pause_notes.told(answer.get("paused"))
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._keep_leases(), name="xbus reader renews its leases")
        self._batch = None if answer["batch"] is None else ReaderBatch(answer["batch"])
        return self._batch

    async def _settling(self, verb: str, *arguments: object, wait: float = 0.0) -> Value:
        """Make a call that settles the batch; one whose lease was lost is forgotten."""
        try:
            return await self._session.call(verb, self._program, *arguments, wait=wait)
        except Refused as refusal:
            if refusal.code == LEASE_LOST and self._batch is not None:
                self._batch.is_lost, self._batch = True, None
            raise

    async def _keep_leases(self) -> None:
        """For ever: renew the leases while the author works on a batch; a call that waits for one renews them, too."""
        while True:
            await asyncio.sleep(self._lease / RENEWALS_PER_LEASE)
            if self._asking.locked():
                continue
            try:
                async with self._asking:
                    await self._renew()
            except CallError as error:
                logger.warning(
                    "leases not renewed: %s", error, extra={"action": "leases_not_renewed", "code": error.code}
                )

    async def _renew(self) -> None:
        batch = self._batch
        if batch is not None and batch.is_done:
            try:
                await self._settle(batch)
            except Refused as refusal:
                if refusal.code != LEASE_LOST:
                    raise
                self._lost = refusal
        answer = _RANGES.read(await self._session.call("xbus.renew_ranges", self._program))
        if batch is not None and [*batch.lease] not in answer["ranges"]:
            # One that was done may be settled already.
            batch.is_lost = batch.is_lost or not batch.is_done

    async def _settle(self, batch: ReaderBatch) -> None:
        await self._settling("xbus.checkpoint", *batch.settled())
        self._batch = None

    async def _leave(self) -> None:
        """Settle what is done, and give the ranges up in order."""
        if not self._has_asked:
            return
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        self._renewing, self._has_asked = None, False
        batch, self._batch = self._batch, None
        if batch is not None and batch.is_done:
            await self._session.say("xbus.checkpoint", self._program, *batch.settled())
        await self._session.say("xbus.leave_ranges", self._program)

    # -- any part of the log ---------------------------------------------------------------------------------------

    def at(self, start: str | datetime, *, types: Sequence[str] | None = None, follow: bool = False) -> AsyncLogView:
        """Read the log from a place on, as ``Reader.at`` does."""
        return AsyncLogView(self._session, self._options, _start_text(start), None, types, follow)

    def for_key(
        self,
        key: str,
        start: str | datetime = "oldest",
        *,
        types: Sequence[str] | None = None,
        follow: bool = False,
    ) -> AsyncLogView:
        """Read the events of a key, as ``Reader.for_key`` does."""
        return AsyncLogView(self._session, self._options, _start_text(start), key, types, follow)

    @property
    def _session(self) -> ReaderSession:
        if self._open_session is None:
            raise Refused("the reader is not open", "use it in a `with` block", code="not_open")
        return self._open_session


def _start_text(start: str | datetime) -> str:
    if isinstance(start, str):
        return start
    return (start if start.tzinfo else start.replace(tzinfo=UTC)).isoformat()
