"""``python -m benchmarks.programs.sends_file FRONT PATH``: sends a file, and prints as JSON when it began and ended."""

import json
import sys
from time import monotonic

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD
from xbus.emitter import Emitter


def main(front: str, path: str) -> None:
    """Send, and print how long it took."""
    with Emitter(front, EMITTER, PASSWORD) as emitter:
        began = monotonic()
        with emitter.envelope() as envelope, envelope.event(EVENT_TYPE) as event:
            event.send_file(path)
        print(json.dumps({"began": began, "ended": monotonic()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
