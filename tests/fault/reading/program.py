"""A program of a reader as its users write them, which writes down what it is given and what becomes of it."""

import ctypes
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.bus import PASSWORD
from tests.torture.leash import PR_SET_PDEATHSIG
from xbus.errors import Refused
from xbus.reader import Reader, ReaderBatch

LONGEST_WORK = 0.2
"""Seconds that it works on a batch at the most. Longer ones have more programs stopped with a batch in hand."""


class _Notes:
    """A file of lines of JSON with the time of the machine's monotonic clock; a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, **told: Any) -> None:
        line = json.dumps({"at": time.monotonic(), "what": what, **told}, separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())


def main(url: str, login: str, path: str) -> None:
    """Read until SIGTERM, then leave in order."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    notes, chance = _Notes(Path(path)), random.Random()
    with Reader(url, login, PASSWORD) as reader:
        while True:
            try:
                batch = reader.next_batch()
            except Refused as refusal:
                if refusal.code != "lease_lost":
                    raise
                notes.write("lost")
                continue
            notes.write("got", **_told(batch))
            time.sleep(chance.uniform(0, LONGEST_WORK))
            notes.write("settling")
            batch.done()


def _told(batch: ReaderBatch) -> dict[str, Any]:
    range_id, counter = batch.lease
    return {
        "range": range_id,
        "counter": counter,
        "begin": batch.place,
        "end": batch.end,
        "repeated": batch.is_repeated,
        "events": [[event.partition_key, event.position] for event in batch.events],
    }
