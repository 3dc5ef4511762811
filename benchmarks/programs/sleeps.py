"""``python -m benchmarks.programs.sleeps BACK LOGIN EVERY``: takes envelopes and sleeps for a millisecond on each.

After so many envelopes, again and again, it prints a line of JSON: ``at``, in seconds of the machine's monotonic clock.
"""

import json
import sys
import time

from benchmarks.bus import PASSWORD
from xbus.recipient import Consumer, Envelope, Event, run

SLEEP_SECONDS = 0.001


class Sleeper(Consumer):
    """Counts envelopes, and is slow."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._taken = 0

    def on_event_end(self, event: Event) -> None:
        time.sleep(SLEEP_SECONDS)

    def commit(self, envelope: Envelope) -> None:
        self._taken += 1
        if self._taken % self._every == 0:
            print(json.dumps({"at": time.monotonic()}), flush=True)


if __name__ == "__main__":
    run(Sleeper(int(sys.argv[3])), sys.argv[1], sys.argv[2], PASSWORD)
