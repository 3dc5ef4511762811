"""The classes that the author of a recipient subclasses.

The calls come in this order, for one envelope at a time unless ``envelopes`` says more::

    on_start                                            once, before the recipient registers
        on_event_start  on_batch*  on_event_end         for each event of an envelope
        commit(envelope)                                all recipients took all of it: make it last
        rollback(envelope)                              ... or instead, at any point: forget all of it
    on_stop                                             once, when the recipient ends

Every method may be ``def`` or ``async def``. Plain ones run one after another in one thread of their own, so they may
block, and a database connection opened in ``on_start`` may be used in all of them; asynchronous ones run on the event
loop, one after another too.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, ClassVar, TypeAlias

from xbus.recipient.envelope import Batch, Envelope, Event, Item
from xbus.recipient.outputs import made_of, values_of
from xbus.recipient.refusal import Refusal

Done: TypeAlias = Awaitable[None] | None
"""The result of a method that the SDK awaits, and that answers nothing."""


class Recipient:
    """The common base of workers and consumers; subclass one of these.

    Attributes:
        name: shown to operators; the name of the class where it is empty.
        version: shown to operators.
        envelopes: how many envelopes the bus may have open here at once.
    """

    name: str = ""
    version: float = 1.0
    envelopes: int = 1

    def on_start(self) -> Done:
        """Open what all envelopes need."""

    def on_stop(self) -> Done:
        """Close what ``on_start`` opened."""

    def on_event_start(self, event: Event) -> Done:
        """Begin an event; the first of an envelope also begins the envelope."""

    def commit(self, envelope: Envelope) -> Done:
        """Make all results of the envelope last. After this returned, the broker does not redeliver it."""

    def rollback(self, envelope: Envelope) -> Done:
        """Forget what came of the envelope and was not committed.

        It may come for an envelope of which nothing is known here, then with an empty ``state``: after a crash of this
        program, for example, so that what the crash left behind can be removed.
        """


class Consumer(Recipient):
    """A recipient at the end of the line: it takes items and answers none::

        class Clients(Consumer):
            def on_item(self, event, item):
                print(item.value["name"])

    ``on_item`` raises ``Refusal`` for an item that it can never take; after any other exception the broker redelivers
    the envelope.

    Attributes:
        immediate_reply: names of the event types whose emitter waits for the result of ``on_event_end``.
        clearing: the address of a database of this consumer's own, which keeps the items that it could not understand,
            such as ``postgresql://reader@host/clients``; the broker gives it to emitters. Empty without such a
            database.
    """

    immediate_reply: ClassVar[tuple[str, ...]] = ()
    clearing: str = ""

    def on_item(self, event: Event, item: Item) -> Done:
        """Take one item."""

    def on_batch(self, event: Event, batch: Batch) -> Done:
        """Take many items at once; hands each to ``on_item`` where it is not overridden."""
        if is_asynchronous(self.on_item):
            return self._each_awaited(event, batch)
        item: Item | None = None
        try:
            for item in batch:
                self.on_item(event, item)
                event.taken += 1
        except Refusal as refusal:
            raise about(refusal, [] if item is None else item.indices) from refusal.__cause__
        return None

    def on_event_end(self, event: Event) -> object:
        """End the event: it is complete.

        Returns:
            The immediate reply, for an event type in ``immediate_reply``: bytes or any value that msgpack can pack. Of
            other types it is nothing to anybody.
        """

    async def _each_awaited(self, event: Event, batch: Batch) -> None:
        item: Item | None = None
        try:
            for item in batch:
                await self.on_item(event, item)  # type: ignore[misc]
                event.taken += 1
        except Refusal as refusal:
            raise about(refusal, [] if item is None else item.indices) from refusal.__cause__


class Worker(Recipient):
    """A recipient in the middle of the line: it answers 0 to n items for each that comes::

        class Names(Worker):
            def on_item(self, event, item):
                return [{**item.value, "name": "..."}]

    Its answer goes to the nodes behind it. A list, a tuple or a generator is that many items, None is no item, anything
    else is one item: bytes as they are, an ``Item``, or any value that msgpack can pack. ``Out("refunds", value)`` goes
    on as an event of that type instead, where the worker's node emits it.
    """

    def on_item(self, event: Event, item: Item) -> object:
        """Transform one item; passes it on as it is where it is not overridden.

        Returns:
            The items out. Each bears the indices of ``item``, unless it is an ``Item`` and says otherwise.
        """
        return item

    def on_batch(self, event: Event, batch: Batch) -> object:
        """Transform many items at once; hands each to ``on_item`` where it is not overridden.

        Returns:
            The items out: either exactly one value per item that came, in that order, or ``Item`` objects, which say
            by their indices what they were made of (``item.with_value(...)``, ``Item.of(..., indices=...)``).
        """
        if is_asynchronous(self.on_item):
            return self._each_awaited(event, batch)
        out: list[Item] = []
        item: Item | None = None
        try:
            for item in batch:
                answer = self.on_item(event, item)
                if type(answer) is Item:  # decided first, as it is asked for each item
                    out.append(answer)
                else:
                    out += made_of(item, values_of(answer))
                event.taken += 1
        except Refusal as refusal:
            raise about(refusal, [] if item is None else item.indices) from refusal.__cause__
        return out

    def on_event_end(self, event: Event) -> object:
        """End the event: it is complete.

        Returns:
            Items out made of the event as a whole, such as sums. They have no indices unless they are ``Item`` objects.
        """

    async def _each_awaited(self, event: Event, batch: Batch) -> list[Item]:
        # The author's, and asynchronous.
        on_item: Callable[[Event, Item], Any] = self.on_item
        out: list[Item] = []
        item: Item | None = None
        try:
            for item in batch:
                answer = on_item(event, item)
                values = [v async for v in answer] if inspect.isasyncgen(answer) else values_of(await answer)
                out += made_of(item, values)
                event.taken += 1
        except Refusal as refusal:
            raise about(refusal, [] if item is None else item.indices) from refusal.__cause__
        return out


def is_asynchronous(method: Callable[..., object]) -> bool:
    """Check whether a method of an author has to be awaited."""
    return _is_asynchronous(getattr(method, "__func__", method))


@cache
def _is_asynchronous(method: Callable[..., object]) -> bool:
    """Answer once a function: it is asked for each batch."""
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def about(refusal: Refusal, indices: list[int]) -> Refusal:
    """Name the item in the refusal by its indices, unless its author did."""
    if not refusal.indices:
        refusal.indices = indices
    return refusal


def kind_of(recipient: Recipient) -> str:
    """Give the kind of service that the author's class is for; empty if the class does not say it clearly."""
    kinds = [name for name, base in (("worker", Worker), ("consumer", Consumer)) if isinstance(recipient, base)]
    return kinds[0] if len(kinds) == 1 else ""
