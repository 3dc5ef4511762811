"""``python -m benchmarks.programs.first BACK``: takes all that comes with the SDK.

When the first item comes it prints a line of JSON: ``at``, in seconds of the machine's monotonic clock.
"""

import json
import sys
from time import monotonic

from benchmarks.bus import CONSUMER, PASSWORD
from xbus.recipient import Consumer, Event, Item, run


class First(Consumer):
    """Notes when the first item came."""

    def __init__(self) -> None:
        self._told = False

    def on_item(self, event: Event, item: Item) -> None:
        if not self._told:
            self._told = True
            print(json.dumps({"at": monotonic()}), flush=True)


if __name__ == "__main__":
    run(First, sys.argv[1], CONSUMER, PASSWORD)
