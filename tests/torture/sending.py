"""The ways in which emitters under torture send by the SDK; ``old_sending.py`` has the one of 0.2.0."""

import asyncio
import random
import sqlite3
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.support.bus import PASSWORD
from tests.torture.history import Log
from tests.torture.items import envelope_headers, event_headers, event_ref, make, reply_to
from xbus.emitter import AsyncEmitter, AsyncEnvelope, Receipt
from xbus.errors import Refused

INSIST_SECONDS = 60.0
"""How long calls are made again: longer than anything that was struck stays away."""

FLUSH_SECONDS = 300.0
"""How long an outbox is flushed at the end: more goes in while the database is struck than comes out meanwhile."""

MOST_QUEUED = 100
"""The envelopes in an outbox. More may wait in it for longer than ``checker.INSIST_SECONDS``, or than it is flushed."""

ANSWER_SECONDS = 3.0
"""How long an answer is awaited before a call is made again."""

TOGETHER = 0.3
"""How many of the envelopes have all their events open at once."""

PAUSES = 0.004
"""How many of the items are followed by a pause, in which a batch may leave."""

LONGEST_PAUSE_SECONDS = 0.1

LATE = 0.4
"""How many of the envelopes that are put at once come a little later, which cuts them into groups."""

LATEST_SECONDS = 0.02
"""How much later at the most: about as long as two messages are out."""


@dataclass(frozen=True)
class Draft:
    """An envelope to be sent.

    Args:
        ref: what its emitter calls it.
        events: type and number of items of each.
        ordering_key: where it stands in line at ordered roles; None for the line of those without a key.
        is_cancelled: whether the emitter is to change its mind.
        is_once: whether it goes under a key, so that what a kill broke off can be sent again and is there once.
    """

    ref: str
    events: tuple[tuple[str, int], ...]
    ordering_key: str | None = None
    is_cancelled: bool = False
    is_once: bool = False

    @property
    def count(self) -> int:
        """How many items it holds."""
        return sum(items for _, items in self.events)

    def items(self, number: int) -> list[bytes]:
        """The items of an event."""
        return [make(event_ref(self.ref, number), index) for index in range(self.events[number][1])]

    @property
    def envelope_headers(self) -> dict[str, str]:
        """The headers that all its events share."""
        return envelope_headers(self.ref)

    def event_headers(self, number: int) -> dict[str, str]:
        """The headers of an event alone."""
        return event_headers(event_ref(self.ref, number))


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
        types: the event types that it sends.
        most_items: how many items an event may hold.
        most_events: how many events an envelope may hold.
        cancels: whether an envelope can be cancelled.
        orders: whether it can have an ordering key.
        most_together: how many envelopes it may send at once.
        once: how many of its envelopes go under a key, as a share.
        heads: whether its events have headers.
    """

    types: ClassVar[tuple[str, ...]] = ("orders", "notices")
    most_items: ClassVar[int]
    most_events: ClassVar[int] = 4
    cancels: ClassVar[bool] = True
    orders: ClassVar[bool] = True
    most_together: ClassVar[int] = 1
    once: ClassVar[float] = 0.0
    heads: ClassVar[bool] = False

    def __init__(self, front: str, login: str, log: Log, chance: random.Random) -> None:
        self.front = front
        self.login = login
        self.log = log
        self.chance = chance

    async def __aenter__(self) -> "Way":
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session."""

    def has_room(self) -> bool:
        """Whether another envelope may be sent."""
        return True

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
        """Write down the receipt; what went into an outbox has its id and its position later."""
        envelope_id, position = (None, None) if receipt.queued else (receipt.envelope_id, receipt.position)
        self.log.write(what="sealed", ref=draft.ref, id=envelope_id, position=position)


class _Sdk(Way):
    """By the SDK."""

    heads = True

    @property
    def outbox(self) -> Path | None:
        """The file of its outbox, if it has one."""
        return None

    async def __aenter__(self) -> "_Sdk":
        self.emitter = AsyncEmitter(
            self.front,
            self.login,
            PASSWORD,
            outbox=self.outbox,
            outbox_seconds=FLUSH_SECONDS,
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
                        event = await place.enter_async_context(
                            envelope.event(type_name, headers=draft.event_headers(number))
                        )
                        for item in draft.items(number):
                            await event.send(item)
                            if self.chance.random() < PAUSES:
                                await asyncio.sleep(self.chance.uniform(0, LONGEST_PAUSE_SECONDS))
                if draft.is_cancelled:
                    raise ChangedMind
                self.sealing(draft, self.known_id(envelope))
        except ChangedMind:
            self.log.write(what="cancelled", ref=draft.ref)
            return
        self.sealed(draft, envelope.receipt)

    def begin(self, draft: Draft) -> AsyncEnvelope:
        """The envelope of a draft."""
        return self.emitter.envelope(ordering_key=draft.ordering_key, headers=draft.envelope_headers)

    def known_id(self, envelope: AsyncEnvelope) -> str | None:
        """The id under which consumers will get it."""
        return envelope.id


class Once(Batches):
    """The same under a key."""

    once = 1.0

    def begin(self, draft: Draft) -> AsyncEnvelope:
        return self.emitter.envelope(ordering_key=draft.ordering_key, key=draft.ref, headers=draft.envelope_headers)


class Queued(Once):
    """The same by an outbox, which knows the id under which an envelope goes to the bus."""

    most_items = 100

    @property
    def outbox(self) -> Path:
        return self.log.path.with_suffix(".outbox")

    def has_room(self) -> bool:
        with closing(sqlite3.connect(f"file:{self.outbox}?mode=ro", uri=True)) as outbox:
            ((waiting,),) = outbox.execute("SELECT count(*) FROM envelope").fetchall()
        return bool(waiting < MOST_QUEUED)

    def known_id(self, envelope: AsyncEnvelope) -> None:
        return None


class Small(_Sdk):
    """Whole envelopes of one event, of which the SDK makes groups: those put in one turn, and those put meanwhile."""

    most_items = 20
    most_events = 1
    most_together = 12
    once = 0.3
    cancels = False

    async def send(self, draft: Draft) -> None:
        if self.chance.random() < LATE:
            await asyncio.sleep(self.chance.uniform(0, LATEST_SECONDS))
        self.sealing(draft)
        put = self.emitter.put(
            draft.events[0][0],
            draft.items(0),
            ordering_key=draft.ordering_key,
            key=draft.ref if draft.is_once else None,
            headers=draft.envelope_headers | draft.event_headers(0),
        )
        self.sealed(draft, await put)


class Asking(_Sdk):
    """Events that a consumer replies to at once."""

    types = ("questions",)
    most_items = 5
    most_events = 1
    cancels = False
    orders = False

    async def send(self, draft: Draft) -> None:
        self.sealing(draft)
        headers = draft.envelope_headers | draft.event_headers(0)
        reply = await self.emitter.ask(draft.events[0][0], *draft.items(0), headers=headers)
        if reply != reply_to(event_ref(draft.ref, 0), draft.count):
            raise Refused(f"the reply is {reply!r}", code="wrong_reply")
        self.log.write(what="sealed", ref=draft.ref, id=None, position=None)
