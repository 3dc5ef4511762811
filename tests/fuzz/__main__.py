"""``python -m tests.fuzz codec|front RUNS [options]``: libFuzzer makes tapes, guided by coverage, and plays them.

It ends with an error at the first tape that is answered wrongly, takes longer than 30 seconds, or brings the process
above 2 GiB. The tape is then in a file named ``crash-…``; the name of that file as the option plays it again.
"""

import atexit
import logging
import resource
import sys
import time
from importlib import import_module
from typing import Any

# It is installed for this alone, so linters don't find it everywhere.
atheris: Any = import_module("atheris")

with atheris.instrument_imports(include=["xbus"]):
    from tests.fuzz import codec
    from tests.fuzz.front import FuzzedFront

TARGETS = ("codec", "front")
LONGEST_TAPES = {"codec": 256, "front": 4096}
HANG_SECONDS = 30
MOST_MEMORY_MB = 2048
"""The instrumentation itself takes some 0.3 KiB for each call; without it the front's memory stays where it is."""


def main(target: str, runs: int, options: list[str]) -> None:
    """Play tapes.

    Args:
        target: one of ``TARGETS``.
        runs: how many tapes.
        options: of libFuzzer.
    """
    # What strangers do is logged at each call.
    logging.disable(logging.CRITICAL)
    front = FuzzedFront()
    judge: Any = front.judge if target == "front" else codec.judge
    limits = (
        "-len_control=0",
        f"-max_len={LONGEST_TAPES[target]}",
        f"-timeout={HANG_SECONDS}",
        f"-rss_limit_mb={MOST_MEMORY_MB}",
    )
    atheris.Setup([sys.argv[0], f"-atheris_runs={runs}", "-verbosity=0", *limits, *options], judge)
    atexit.register(_report, target, runs, front, time.monotonic())
    atheris.Fuzz()


def _report(target: str, runs: int, front: FuzzedFront, began: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    calls = f", {front.calls:,} calls" if target == "front" else ""
    print(f"{target}: up to {runs:,} tapes{calls}, {time.monotonic() - began:.0f} s, at most {peak} MiB")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in TARGETS or not sys.argv[2].isdecimal():
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
