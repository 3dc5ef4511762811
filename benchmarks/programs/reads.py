"""``python -m benchmarks.programs.reads BACK LOGIN``: reads batches of a reader and takes the bytes of each item.

For each batch it prints a line of JSON: how many items it holds, and the moments in seconds of the machine's monotonic
clock when the program began to ask for its first batch, and when this one was done.
"""

import json
import sys
from time import monotonic

from benchmarks.bus import PASSWORD
from xbus.reader import Reader


def main(back: str, login: str) -> None:
    """Read until somebody ends the program."""
    with Reader(back, login, PASSWORD) as reader:
        began = monotonic()
        for batch in reader:
            items = sum(len(event.data) for event in batch.events)
            batch.done()
            print(json.dumps({"items": items, "began": began, "at": monotonic()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
