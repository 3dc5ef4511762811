"""The emitter for programs that run an asyncio loop, and the core of the other one, whose docstrings say more."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Unpack

from xbus.clock import Clock, SystemClock
from xbus.emitter.batch import check_size
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import NO_OPTIONS, AsyncEnvelope, EventStart, envelope_options
from xbus.emitter.forks import begun_before, leave_to_parent, tell_of_forks
from xbus.emitter.options import PROBE_SECONDS, OptionKeywords, Options
from xbus.emitter.outbox import Outbox, locked
from xbus.emitter.outbox.queueing import OutboxThread, QueueSession
from xbus.emitter.outbox.sending import OutboxSender
from xbus.emitter.patience import EmitterPatience, within
from xbus.emitter.puts import MOST_BYTES, NewPut
from xbus.emitter.receipt import Receipt
from xbus.emitter.session import CallTransport, Session
from xbus.emitter.stream import RepeatableCall
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags, Headers, event_tags
from xbus.ids import Ids
from xbus.rpc.client import open_client
from xbus.rpc.codec import Key, Value
from xbus.rpc.curve import complete_login
from xbus.rpc.items import ITEM_HEADER_BYTES, PackHook, check_several, hook_for, item_packer
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.messages import EnvelopeOptionsMap
from xbus.rpc.shapes import AnswerReader, bad_answer

SIGNS = LifeSigns(heartbeat_seconds=4.0)
"""The front gives signs of life beneath the calls.

They reveal a vanished machine after 12 s. A front whose journal is away answers after 15 s (``[journal]
answer_timeout``): an emitter knows by then that the machine is there.
"""

_CONSUMERS: AnswerReader[list[Value]] = AnswerReader("xbus.get_consumers", list)
_RETRIED = AnswerReader("xbus.retry_event", str)
_REPLAYED = AnswerReader("xbus.replay_envelope", str)


class AsyncEmitter:
    """Sends envelopes to the bus from an asyncio program::

        async with AsyncEmitter("tcp://127.0.0.1:1984", "test_emitter", "password") as emitter:
            async with emitter.envelope() as envelope:
                async with envelope.event("test_event") as event:
                    await event.send({"client": 1})
            print(envelope.receipt.position)

    Several envelopes may be open at a time, in several tasks. In a forked process it is opened anew at its first use.

    Arguments and errors are those of ``Emitter``.
    """

    def __init__(
        self,
        url: str,
        login: str = "",
        password: str = "",
        *,
        outbox: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        pack: PackHook | None = None,
        **options: Unpack[OptionKeywords],
    ) -> None:
        self._url = url
        self._login, self._password = complete_login(url, login, password)
        self._outbox = None if outbox is None else Path(outbox)
        self._clock = clock or SystemClock()
        self._ids = ids or Ids(self._clock)
        self._hook = hook_for(pack)
        self._pack = item_packer(self._hook)
        self._options = Options(**options)
        self._context: EmitterContext | None = None
        self._exit = AsyncExitStack()
        self._forks = 0
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> "AsyncEmitter":
        await self._open()
        tell_of_forks(self)
        return self

    def forked(self) -> None:
        """Leave the parent what it has open: here everything opens anew at its first use, without envelopes."""
        leave_to_parent((self._context, self._exit))
        self._exit = AsyncExitStack()
        self._forks += 1
        self._opening = asyncio.Lock()
        if self._context is not None:
            self._context.forked()

    async def _open(self) -> None:
        async with AsyncExitStack() as exit_stack:
            taker = await (self._log_in(exit_stack) if self._outbox is None else self._queue(exit_stack, self._outbox))
            self._context = EmitterContext(taker, self._options, self._clock, self._ids, self._hook)
            exit_stack.callback(self._context.close)
            self._exit = exit_stack.pop_all()

    async def _log_in(self, exit_stack: AsyncExitStack) -> CallTransport:
        client = open_client(exit_stack, self._url, self._clock, SIGNS)
        patience = EmitterPatience(self._options.retry_seconds, self._clock)
        session = Session(client, self._login, self._password, self._options, patience)
        await session.open()
        exit_stack.push_async_callback(session.close)
        keeping = asyncio.create_task(session.keep_alive(), name="xbus emitter keeps its session alive")
        exit_stack.callback(keeping.cancel)
        return session

    async def _queue(self, exit_stack: AsyncExitStack, path: Path) -> CallTransport:
        exit_stack.enter_context(locked(path))
        thread = OutboxThread(await asyncio.to_thread(Outbox, path, self._options.outbox_bytes))
        exit_stack.callback(thread.close)
        await thread.run(thread.outbox.remove_unfinished)
        sender = OutboxSender(thread, self._without_outbox, self._clock)
        await exit_stack.enter_async_context(sender.sending(self._options.outbox_seconds))
        return QueueSession(thread, self._clock, self._ids, sender.wake)

    def _without_outbox(self) -> "AsyncEmitter":
        # The outbox itself waits for the end of a pause, and tells of it meanwhile.
        given = asdict(self._options) | {"pause_seconds": self._options.retry_seconds or PROBE_SECONDS}
        return AsyncEmitter(self._url, self._login, self._password, clock=self._clock, ids=self._ids, **given)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context = None
        await self._exit.aclose()

    def envelope(
        self,
        *,
        ordering_key: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        headers: Headers | None = None,
    ) -> AsyncEnvelope:
        """Begin an envelope, to be used in ``async with``; the arguments are those of ``Emitter.envelope``."""
        return self._envelope(envelope_options(ordering_key, key, headers), timeout)

    def _envelope(self, options: EnvelopeOptionsMap, timeout: float | None = None) -> AsyncEnvelope:
        return AsyncEnvelope(partial(self._open_context, self._forks), self._last_context.new_id(), options, timeout)

    async def put(
        self,
        type_name: str,
        items: Iterable[object],
        *,
        ordering_key: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
        headers: Headers | None = None,
        partition_key: str | None = None,
    ) -> Receipt:
        """Send a whole envelope of one event, as ``Emitter.put`` does."""
        tags = NO_TAGS if partition_key is None else event_tags(None, partition_key)
        options = NO_OPTIONS
        if ordering_key is not None or key is not None or headers is not None:
            options = envelope_options(ordering_key, key, headers)
        if type(items) is not list:
            check_several(items)
        return await self.put_packed(type_name, tags, [*map(self._pack, items)], options, timeout)

    async def put_packed(
        self,
        type_name: str,
        tags: EventTags,
        packed: list[bytes],
        options: EnvelopeOptionsMap,
        timeout: float | None = None,
    ) -> Receipt:
        """Send a whole envelope of one event whose items are packed.

        Args:
            type_name: the event type.
            tags: the headers and the partition key of the event.
            packed: the items.
            options: of the envelope, as ``envelope_options`` makes them.
            timeout: as of ``put``.

        Raises:
            CallError: as ``put``.
        """
        context = self._context
        if context is None or context.is_inherited:
            context = await self._open_context()
        limits = context.session.limits
        size = sum(map(len, packed))
        if size > limits.max_item_bytes:
            check_size(max(map(len, packed)), limits.max_item_bytes)
        is_one_batch = size + ITEM_HEADER_BYTES * len(packed) <= limits.max_batch_bytes
        began = None if timeout is None else asyncio.get_running_loop().time()
        # A large one goes into an outbox in parts, as it comes out again.
        if limits.groups and is_one_batch and (self._outbox is None or size <= MOST_BYTES):
            receipt = context.puts.put(type_name, tags, packed, options)
            try:
                if timeout is None:
                    return await receipt
                return await within(timeout, receipt, partial(context.puts.failure, receipt))
            except Refused:
                # Under a key other content may be open, which only an envelope in single calls can cancel.
                if "key" not in options:
                    raise
        sending = self._envelope(options)
        start = EventStart(type_name, tags=tags)
        return await within(timeout, self._put_batches(sending, start, packed), sending.failure, began)

    async def put_in_order(self, puts: Sequence[NewPut]) -> list[Receipt | None]:
        """Send whole envelopes under keys in one message; see ``Puts.put_in_order``.

        Raises:
            CallError: as ``put``.
        """
        context = await self._open_context()
        return await context.puts.put_in_order(puts) if context.session.limits.groups else [None] * len(puts)

    async def ask(
        self, type_name: str, *items: object, timeout: float | None = None, headers: Headers | None = None
    ) -> Value:
        """Send an envelope of one event, and wait for a consumer's immediate reply to it, as ``Emitter.ask`` does."""
        self._check_direct()
        asking = self.envelope(headers=headers)
        return await within(timeout, self._ask(asking, type_name, items), asking.failure)

    @staticmethod
    async def _ask(asking: AsyncEnvelope, type_name: str, items: Sequence[object]) -> Value:
        async with asking as envelope:
            async with envelope.event(type_name, len(items)) as event:
                await event.send_all(items)
            if not await event.has_reply():
                raise Refused(
                    f'events of type "{type_name}" have no immediate reply',
                    "give the type immediate_reply = true with xbus apply, or send the event without asking",
                    code="no_reply",
                )
            return await event.reply()

    async def consumers(self, *, timeout: float | None = None) -> list[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
        """Read the introductions of the registered consumers, as ``Emitter.consumers`` does."""
        return [
            _introduction(told) for told in _CONSUMERS.read(await self._call("xbus.get_consumers", timeout=timeout))
        ]

    async def retry(self, event_id: str, *, timeout: float | None = None) -> str:
        """Have the envelope of an event delivered again to those it is parked for, as ``Emitter.retry`` does."""
        return _RETRIED.read(await self._call("xbus.retry_event", event_id, timeout=timeout))

    async def replay(self, envelope_id: str, *, timeout: float | None = None) -> str:
        """Have a sealed envelope delivered to everybody again, as a new one, as ``Emitter.replay`` does."""
        # The new envelope's id is made here, so that a call whose answer got lost can be made again.
        arguments = (envelope_id, self._last_context.new_id())
        return _REPLAYED.read(await self._call("xbus.replay_envelope", *arguments, timeout=timeout))

    def _check_direct(self) -> None:
        if self._outbox is not None:
            raise Refused(
                "an emitter with an outbox waits for no answer of the bus",
                "use another emitter, without an outbox, for such calls",
                code="outbox_only",
            )

    async def _call(self, verb: str, *arguments: object, timeout: float | None) -> Value:
        self._check_direct()
        context = await self._open_context()
        stream = context.new_stream()
        call = RepeatableCall(verb, arguments, self._options.answer_seconds)
        try:
            return await within(timeout, stream.submit(call), lambda: stream.failure)
        finally:
            context.end(stream)

    @staticmethod
    async def _put_batches(sending: AsyncEnvelope, start: EventStart, items: list[bytes]) -> Receipt:
        async with sending as envelope, envelope.begin(start._replace(estimate=len(items))) as event:
            await event.send_all(items)
        return envelope.receipt

    async def _open_context(self, forks: int | None = None) -> EmitterContext:
        """Give the context of this process; open it if the process was forked since its last use.

        Args:
            forks: how often it had been forked when an envelope was made.

        Raises:
            Refused: the envelope was made in another process (``begun_before_fork``).
        """
        if forks not in (None, self._forks):
            raise begun_before()
        context = self._last_context
        if context.is_inherited:
            async with self._opening:
                if self._context is context:
                    await self._open()
        return self._last_context

    @property
    def _last_context(self) -> EmitterContext:
        """The context, which may be that of another process.

        Raises:
            Refused: the emitter was not opened.
        """
        if self._context is None:
            raise Refused("the emitter is not open", "use it in a `with` block", code="not_open")
        return self._context


def _introduction(told: Value) -> tuple[Mapping[Key, Value], Mapping[Key, Value]]:
    match told:
        case [dict(metadata), dict(features)]:
            return metadata, features
    raise bad_answer("xbus.get_consumers", "has an entry that is no list of two maps")
