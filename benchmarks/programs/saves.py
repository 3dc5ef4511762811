"""``python -m benchmarks.programs.saves BACK PATH``: saves a file, and prints as JSON when it committed it."""

import json
import sys
from time import monotonic

from benchmarks.bus import CONSUMER, PASSWORD
from xbus.recipient import Consumer, Envelope, Event, run

PATH = sys.argv[2] if len(sys.argv) > 2 else ""


class Saves(Consumer):
    """Saves a file."""

    def on_event_start(self, event: Event) -> None:
        event.save(PATH)

    def commit(self, envelope: Envelope) -> None:
        print(json.dumps({"at": monotonic()}), flush=True)


if __name__ == "__main__":
    run(Saves, sys.argv[1], CONSUMER, PASSWORD)
