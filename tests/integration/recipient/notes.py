"""A consumer that notes what it gets."""

from typing import Any, ClassVar

from xbus.recipient import Consumer, Envelope, Event, Item


class Notes(Consumer):
    """Notes what it gets."""

    immediate_reply: ClassVar[tuple[str, ...]] = ("test_event",)

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_event_start(self, event: Event) -> None:
        self.seen.append(("start", event.envelope.id, event.id, event.type_name))

    def on_item(self, event: Event, item: Item) -> None:
        self.seen.append((item.index, item.data))

    def on_event_end(self, event: Event) -> Any:
        self.seen.append(("end", event.id))
        return "a reply"

    def commit(self, envelope: Envelope) -> None:
        self.seen.append(("commit", envelope.id))

    def rollback(self, envelope: Envelope) -> None:
        self.seen.append(("rollback", envelope.id))
