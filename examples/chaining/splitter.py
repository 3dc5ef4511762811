"""A worker that says of each item as which event type it goes on."""

from collections.abc import Iterator

from xbus.recipient import Event, Item, Out, Worker


class Splitter(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        if item.value["amount"] < 0:
            yield Out("refunds", item.value)
        else:
            yield {**item.value, "euro": item.value["amount"] / 100}
