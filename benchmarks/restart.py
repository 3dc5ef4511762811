"""From the start of a broker that was killed to the first item at a consumer, in ms: the worst of a million items that
wait in one envelope, in ten thousand, and in a million.

Floor: the same with one item that waits.
"""

import json
import math
import time
from statistics import median

from benchmarks.backlog import add_backlog
from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.programs.running import MOST_SECONDS, running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.waiting import wait_until

MS = 1_000


def measure(databases: Databases, sizes: Sizes) -> Result:
    """One restart for each shape of the backlog."""
    items = sizes.restart_items
    many = math.isqrt(items) * 10
    shapes = [(1, items), (many, items // many), (items, 1)]
    worst = max(restart_seconds(databases, *shape) for shape in shapes)
    floor = median(restart_seconds(databases, 1, 1) for _ in range(sizes.rounds))
    return Result(worst * MS, floor * MS, "ms")


def restart_seconds(databases: Databases, envelopes: int, items: int) -> float:
    """Kill a broker, let so many envelopes wait with so many items each, and start it again."""
    with databases() as url, running_bus(url) as daemon, running("first", daemon.back) as first:
        wait_until(lambda: "recipient registered" in daemon.log, "the consumer is registered")
        daemon.kill()
        add_backlog(url, envelopes, items)
        began = time.monotonic()
        daemon.start()
        # What the SDK says of a broker that is gone stands there too.
        wait_until(lambda: first.text.endswith("}\n"), "the first item is there", MOST_SECONDS)
        return float(json.loads(first.text.splitlines()[-1])["at"]) - began
