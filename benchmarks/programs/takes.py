"""``python -m benchmarks.programs.takes BACK LOGIN EVERY [OPEN]``: takes envelopes and does nothing with them.

After so many envelopes, again and again, it prints a line of JSON about them: when the ``first`` and the ``last`` came
in seconds of the machine's monotonic clock, the processor seconds that the program took meanwhile, and the milliseconds
within which the half and 99 % of the items came, from ``put`` to ``on_item``. ``started`` is the time just before it
logged in. OPEN envelopes may be open at once, 1 if it is left out.
"""

import json
import sys
from time import monotonic

from benchmarks.bus import PASSWORD
from benchmarks.envelopes.ages import Ages
from benchmarks.envelopes.stamps import sent_ns
from xbus.recipient import Consumer, Envelope, Event, Item, run

JSON_MAP = b"{"
"""Begins the items of bytes; those that are maps come as msgpack."""


class Taker(Consumer):
    """Counts envelopes, and notes how old each item is."""

    def __init__(self, every: int, envelopes: int = 1) -> None:
        self.envelopes = envelopes
        self._every = every
        self._taken = 0
        self._started = 0.0
        self._ages = Ages()

    def on_start(self) -> None:
        self._started = monotonic()

    def on_item(self, event: Event, item: Item) -> None:
        if not item.data.startswith(JSON_MAP):
            assert isinstance(item.value, dict)
            self._ages.add(item.value["sent"])
        else:
            self._ages.add(sent_ns(item.data))

    def commit(self, envelope: Envelope) -> None:
        self._taken += 1
        if self._taken == self._every:
            self._taken = 0
            print(json.dumps({"started": self._started, **self._ages.report()}), flush=True)


if __name__ == "__main__":
    run(Taker(*map(int, sys.argv[3:])), sys.argv[1], sys.argv[2], PASSWORD)
