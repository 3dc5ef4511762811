"""``python -m benchmarks.programs.takes BACK LOGIN EVERY``: takes envelopes and does nothing with them.

After so many envelopes, again and again, it prints a line of JSON about them: when the ``first`` and the ``last`` was
committed in seconds of the machine's monotonic clock, the processor seconds that the program took meanwhile, and the
milliseconds within which the half and 99 % of the items came, from ``put`` to ``on_item``. ``started`` is the time just
before it logged in.
"""

import json
import sys
from time import monotonic, monotonic_ns, process_time

from benchmarks.bus import PASSWORD
from benchmarks.envelopes.stamps import sent_ns
from benchmarks.percentiles import percentile
from xbus.recipient import Consumer, Envelope, Event, Item, run

NS_PER_MS = 1_000_000


class Taker(Consumer):
    """Counts envelopes, and notes how old each item is."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._taken = 0
        self._started = self._first = 0.0
        self._cpu = process_time()
        self._ages_ns: list[int] = []

    def on_start(self) -> None:
        self._started = monotonic()

    def on_item(self, event: Event, item: Item) -> None:
        if (sent := sent_ns(item.data)) is not None:
            self._ages_ns.append(monotonic_ns() - sent)

    def commit(self, envelope: Envelope) -> None:
        self._taken += 1
        if self._taken == 1:
            self._first = monotonic()
        if self._taken == self._every:
            self._report()

    def _report(self) -> None:
        now, cpu = monotonic(), process_time()
        report = {"started": self._started, "first": self._first, "last": now, "cpu": cpu - self._cpu}
        if self._ages_ns:
            report |= {f"p{percent}_ms": percentile(self._ages_ns, percent) / NS_PER_MS for percent in (50, 99)}
        print(json.dumps(report), flush=True)
        self._taken, self._cpu = 0, cpu
        self._ages_ns.clear()


if __name__ == "__main__":
    run(Taker(int(sys.argv[3])), sys.argv[1], sys.argv[2], PASSWORD)
