"""The ways in which emitters under torture send: by batches, whole envelopes in one call, and as in 0.2.0."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tests.support.bus import PASSWORD
from tests.torture.history import Log
from tests.torture.items import event_ref, make
from xbus.emitter import AsyncEmitter, AsyncEnvelope, Receipt
from xbus.errors import CallError, Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

INSIST_SECONDS = 60.0
"""How long calls are made again: longer than anything that was struck stays away."""

ANSWER_SECONDS = 3.0
"""How long an answer is awaited before a call is made again."""

TOGETHER = 0.3
"""How many of the envelopes have all their events open at once."""

PAUSES = 0.004
"""How many of the items are followed by a pause, in which a batch may leave."""

LONGEST_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Draft:
    """An envelope to be sent.

    Args:
        ref: what its emitter calls it.
        events: type and number of items of each.
        ordering_key: where it stands in line at ordered roles; None for the line of those without a key.
        is_cancelled: whether the emitter is to change its mind.
    """

    ref: str
    events: tuple[tuple[str, int], ...]
    ordering_key: str | None = None
    is_cancelled: bool = False

    @property
    def count(self) -> int:
        """How many items it holds."""
        return sum(items for _, items in self.events)

    def items(self, number: int) -> list[bytes]:
        """The items of an event."""
        return [make(event_ref(self.ref, number), index) for index in range(self.events[number][1])]


class ChangedMind(Exception):
    """The emitter gives its envelope up."""


class Way:
    """Sends drafts, and writes down what it asks for and what is acknowledged.

    Args:
        front: where the bus is.
        login: the emitter's.
        log: for what happens.
        chance: decides what is left open.

    Attributes:
        most_items: how many items an event may hold.
        most_events: how many events an envelope may hold.
        cancels: whether an envelope can be cancelled.
        orders: whether it can have an ordering key.
        resumes: whether an envelope that a kill broke off may be sent again.
    """

    most_items: ClassVar[int]
    most_events: ClassVar[int] = 4
    cancels: ClassVar[bool] = True
    orders: ClassVar[bool] = True
    resumes: ClassVar[bool] = False

    def __init__(self, front: str, login: str, log: Log, chance: random.Random) -> None:
        self.front = front
        self.login = login
        self.log = log
        self.chance = chance

    async def __aenter__(self) -> "Way":
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session."""

    async def send(self, draft: Draft) -> None:
        """Send an envelope, from its beginning to the acknowledgement of its end.

        Raises:
            CallError: the bus did not take it.
        """
        raise NotImplementedError

    def sealing(self, draft: Draft, envelope_id: str | None = None) -> None:
        """Write down that the bus is going to be asked to seal."""
        self.log.write(what="sealing", ref=draft.ref, id=envelope_id)

    def sealed(self, draft: Draft, receipt: Receipt) -> None:
        """Write down the receipt."""
        self.log.write(what="sealed", ref=draft.ref, id=receipt.envelope_id, position=receipt.position)


class _Sdk(Way):
    """By the SDK."""

    async def __aenter__(self) -> "_Sdk":
        self.emitter = AsyncEmitter(
            self.front,
            self.login,
            PASSWORD,
            retry_seconds=INSIST_SECONDS,
            answer_seconds=ANSWER_SECONDS,
            batch_items=50,
            linger_seconds=0.02,
        )
        await self.emitter.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.emitter.__aexit__(None, None, None)


class Batches(_Sdk):
    """Events of many items, which go in batches."""

    most_items = 300

    async def send(self, draft: Draft) -> None:
        try:
            async with self.begin(draft) as envelope, AsyncExitStack() as together:
                are_together = self.chance.random() < TOGETHER
                for number, (type_name, _) in enumerate(draft.events):
                    async with AsyncExitStack() as alone:
                        place = together if are_together else alone
                        event = await place.enter_async_context(envelope.event(type_name))
                        for item in draft.items(number):
                            await event.send(item)
                            if self.chance.random() < PAUSES:
                                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))
                if draft.is_cancelled:
                    raise ChangedMind
                self.sealing(draft, envelope.id)
        except ChangedMind:
            self.log.write(what="cancelled", ref=draft.ref)
            return
        self.sealed(draft, envelope.receipt)

    def begin(self, draft: Draft) -> AsyncEnvelope:
        """The envelope of a draft."""
        return self.emitter.envelope(ordering_key=draft.ordering_key)


class Once(Batches):
    """The same under a key, so that what a kill broke off can be sent again and is there once."""

    resumes = True

    def begin(self, draft: Draft) -> AsyncEnvelope:
        return self.emitter.envelope(ordering_key=draft.ordering_key, key=draft.ref)


class Small(_Sdk):
    """Whole envelopes of one event in one call."""

    most_items = 20
    most_events = 1
    cancels = False

    async def send(self, draft: Draft) -> None:
        self.sealing(draft)
        put = self.emitter.put(draft.events[0][0], draft.items(0), ordering_key=draft.ordering_key)
        self.sealed(draft, await put)


class Old(Way):
    """By the verbs of 0.2.0, item by item; nothing but their answers is known."""

    most_items = 6
    most_events = 2
    orders = False

    async def __aenter__(self) -> "Old":
        self._context = new_context()
        self._client = Client(self._context, name=self.front)
        self._client.connect(self.front)
        self._token = ""
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.close()
        self._context.destroy()

    async def send(self, draft: Draft) -> None:
        envelope_id = await self._start()
        try:
            for number, (type_name, _) in enumerate(draft.events):
                await self._send_event(draft, number, envelope_id, type_name)
        except CallError:
            await self._cancel(envelope_id)
            raise
        if draft.is_cancelled:
            await self._cancel(envelope_id)
            self.log.write(what="cancelled", ref=draft.ref)
            return
        self.sealing(draft, envelope_id)
        end_envelope = partial(self._call, "end_envelope", self._token, envelope_id)
        await self._until_taken(partial(self._insist, end_envelope), draft.count)
        self.log.write(what="sealed", ref=draft.ref, id=envelope_id, position=None)

    async def _start(self) -> str:
        while not (envelope_id := await self._insist(partial(self._call, "start_envelope", self._token))):
            self._token = await self._insist(partial(self._call, "login", self.login, PASSWORD))
        return str(envelope_id)

    async def _send_event(self, draft: Draft, number: int, envelope_id: str, type_name: str) -> None:
        event_id = await self._call("start_event", self._token, envelope_id, type_name, 0)
        acked = 0
        for item in draft.items(number):
            # Made again after a lost answer, it could be there twice; after a refusal it could not.
            send_item = partial(self._call, "send_item", self._token, envelope_id, event_id, item)
            await self._until_taken(send_item, acked)
            acked += 1
            self.log.write(what="acked", ref=draft.ref, event=number, items=acked)
        end_event = partial(self._call, "end_event", self._token, envelope_id, event_id)
        await self._until_taken(partial(self._insist, end_event), acked)
        self.log.write(what="ended", ref=draft.ref, event=number)

    async def _until_taken(self, call: Callable[[], Awaitable[Any]], acked: int) -> None:
        """Make a call until the bus takes it: a refusal may mean that its database is away.

        A beginning promises nothing and may be forgotten, but behind an acknowledged item nothing may be refused for
        long.
        """
        deadline = asyncio.get_running_loop().time() + INSIST_SECONDS
        while not _is_taken(await call()):
            if not acked:
                raise Failed("what was begun is not known any more", code="not_begun")
            if asyncio.get_running_loop().time() > deadline:
                raise Refused(f"behind {acked} acknowledged items", code="acknowledged_and_refused")
            await asyncio.sleep(0.1)

    async def _cancel(self, envelope_id: str) -> None:
        try:
            await self._call("cancel_envelope", self._token, envelope_id)
        except Failed:
            pass  # it stays open, and nobody sees it

    async def _call(self, verb: str, *arguments: Any) -> Any:
        return await self._client.call(verb, *arguments, timeout=ANSWER_SECONDS)

    async def _insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a call that may be made again."""
        deadline = asyncio.get_running_loop().time() + INSIST_SECONDS
        while True:
            try:
                return await call()
            except Failed:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.1)


def _is_taken(answer: Any) -> bool:
    """Whether an answer of 0.2.0, which may be a pair, says yes."""
    return bool(answer[0] if isinstance(answer, list | tuple) else answer)
