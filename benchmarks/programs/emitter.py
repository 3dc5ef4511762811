"""``python -m benchmarks.programs.emitter FRONT ENVELOPES ITEMS``: sends envelopes with the SDK, a call per item.

It prints, as JSON, when it began and when the last envelope was sealed: seconds of the machine's monotonic clock.
"""

import json
import sys
from itertools import cycle, islice
from time import monotonic

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD
from benchmarks.items import sample
from xbus.emitter import Emitter


def main(front: str, envelopes: int, items: int) -> None:
    """Send, and print how long it took."""
    records = sample()
    with Emitter(front, EMITTER, PASSWORD) as emitter:
        began = monotonic()
        for _ in range(envelopes):
            with emitter.envelope() as envelope, envelope.event(EVENT_TYPE, estimate=items) as event:
                for record in islice(cycle(records), items):
                    event.send(record)
        print(json.dumps({"began": began, "ended": monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
