"""Our own emitter and a consumer, with a real broker between them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from xbus.emitter import Emitter
from xbus.recipient import Consumer, Envelope, Event, Item


class Keeps(Consumer):
    """Keeps what was committed, by envelope; what was not is forgotten."""

    def __init__(self) -> None:
        self.committed: dict[str, list[tuple[int, Any]]] = {}
        self.rolled_back: list[str] = []

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("items", [])

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["items"].append((item.index, item.value))

    def commit(self, envelope: Envelope) -> None:
        assert envelope.id not in self.committed
        self.committed[envelope.id] = envelope.state["items"]

    def rollback(self, envelope: Envelope) -> None:
        self.rolled_back.append(envelope.id)


async def emit(daemon: Daemon, work: Callable[[Emitter], Any], **options: Any) -> Any:
    """Do ``work`` with a blocking emitter, in a thread."""

    def in_thread() -> Any:
        with Emitter(daemon.front, "emitter_1", PASSWORD, **options) as emitter:
            return work(emitter)

    return await asyncio.to_thread(in_thread)


def send_values(values: Iterable[Any]) -> Callable[[Emitter], Any]:
    """Work for ``emit``: an envelope with one event, of type numbers; it gives the receipt."""

    def work(emitter: Emitter) -> Any:
        with emitter.envelope() as envelope, envelope.event("numbers") as event:
            for value in values:
                event.send(value)
        return envelope.receipt

    return work


def send_numbers(count: int) -> Callable[[Emitter], Any]:
    """As :func:`send_values`, the numbers from 0 on."""
    return send_values(range(count))
