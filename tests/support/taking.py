"""``python -m tests.support.taking BACK LOGIN worker|consumer``: a recipient that does as little as an author may."""

import sys
from collections.abc import Iterator

from xbus.recipient import Consumer, Event, Item, Worker, run


class Copies(Worker):
    def on_item(self, event: Event, item: Item) -> Iterator[object]:
        yield item.value


class Takes(Consumer):
    def on_item(self, event: Event, item: Item) -> None:
        assert item.value is not None


if __name__ == "__main__":
    run({"worker": Copies, "consumer": Takes}[sys.argv[3]], sys.argv[1], login=sys.argv[2], password="password")
