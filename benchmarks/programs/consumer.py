"""``python -m benchmarks.programs.consumer BACK LOGIN``: takes all that comes with the SDK, a call per item.

For each envelope it prints a line of JSON: how many items it took so far, and when it committed, in seconds of the
machine's monotonic clock.
"""

import json
import sys
from time import monotonic

from benchmarks.bus import PASSWORD
from xbus.recipient import Consumer, Envelope, Event, Item, run


class Books(Consumer):
    """Counts items."""

    def __init__(self) -> None:
        self._items = 0

    def on_item(self, event: Event, item: Item) -> None:
        self._items += 1

    def commit(self, envelope: Envelope) -> None:
        print(json.dumps({"items": self._items, "at": monotonic()}), flush=True)


if __name__ == "__main__":
    run(Books, sys.argv[1], sys.argv[2], PASSWORD)
