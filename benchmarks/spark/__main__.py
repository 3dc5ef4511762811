"""``python -m benchmarks.spark``: JSON lines for each scenario and database, on standard output.

``ONLY`` names one scenario, ``DB`` is sqlite, postgresql or both (the default), and ``ITEMS`` how many items the one
event of the bulk transform has; all are read from the environment.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from benchmarks.__main__ import chosen
from benchmarks.databases import KINDS, Databases, databases
from benchmarks.result import Result
from benchmarks.spark import bulk_transform, cluster, source_read, stream
from benchmarks.spark.sizes import Sizes
from tests.support.postgres import NotFound

SCENARIOS: Mapping[str, Callable[[Databases, Sizes], Iterator[tuple[str, Result]]]] = {
    "source_read": source_read.measure,
    "bulk_transform": bulk_transform.measure,
    "stream": stream.measure,
    "cluster": cluster.measure,
}


def main(only: str, kinds: str, sizes: Sizes) -> None:
    """Measure and print.

    Args:
        only: a scenario; all of them where it is empty.
        kinds: ``sqlite``, ``postgresql``, or ``both`` (also where it is empty).
        sizes: how much is read and written.
    """
    scenarios = chosen("ONLY", only, SCENARIOS, "")
    for kind in chosen("DB", kinds, KINDS, "both"):
        with databases(kind) as of_kind:
            for scenario in scenarios:
                print(f"measuring {scenario} on {kind} ...", file=sys.stderr, flush=True)
                for name, result in SCENARIOS[scenario](of_kind, sizes):
                    print(result.line(name, kind), flush=True)


def _sizes(items: str) -> Sizes:
    return replace(Sizes(), bulk_items=int(items)) if items else Sizes()


if __name__ == "__main__":
    try:
        main(os.environ.get("ONLY", ""), os.environ.get("DB", ""), _sizes(os.environ.get("ITEMS", "")))
    except NotFound as error:
        sys.exit(f"{error}: install PostgreSQL, or measure with DB=sqlite")
