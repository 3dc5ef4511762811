"""``python -m tests.support.putting FRONT URL FLOW``: puts envelopes one by one, each after the one before is done.

The flow is a ``Flow`` in JSON. A line of JSON tells when each put began and when the cursors of all roles were durable
behind it, in seconds of the wall clock; the first puts warm the programs up and are not told.
"""

import json
import os
import sys
import time
from functools import partial
from typing import NamedTuple

import sqlalchemy as sa

from tests.support.waiting import wait_until
from xbus.emitter import Emitter

WARM = 2


class Flow(NamedTuple):
    """What is put.

    Args:
        event_type: of each envelope's only event.
        puts: how many envelopes are measured.
        is_tagged: whether each has a key, an ordering key and headers.
    """

    event_type: str
    puts: int
    is_tagged: bool


def main(front: str, url: str, flow: Flow) -> None:
    """Put the envelopes of a flow, and tell when each was under way."""
    windows: list[tuple[float, float]] = []
    engine = sa.create_engine(url)
    with Emitter(front, "emitter_1", "password") as emitter:
        for number in range(WARM + flow.puts):
            began = time.time()
            if flow.is_tagged:
                receipt = emitter.put(
                    flow.event_type,
                    [{"number": number}],
                    # Of this run alone: under a key that another one has used it would be a repeat.
                    key=f"order {number} of {os.getpid()}",
                    ordering_key="Ada",
                    headers={"shop": "Paris"},
                )
            else:
                receipt = emitter.put(flow.event_type, [{"number": number}])
            wait_until(partial(_is_settled, engine, receipt.position), "the cursors are durable")
            windows.append((began, time.time()))
    sys.stdout.write(json.dumps(windows[WARM:]) + "\n")


def _is_settled(engine: sa.Engine, position: int) -> bool:
    with engine.connect() as connection:
        lowest: int | None = connection.scalar(sa.text("SELECT min(position) FROM cursor"))
    return lowest is not None and lowest >= position


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Flow(*json.loads(sys.argv[3])))
