"""``python -m tests.fuzz.unguided SEED CALLS``: random tapes at the front, without a look at what they cover.

It makes twice as many calls a second as libFuzzer does, so it is for the many, and libFuzzer for the rare. It ends with
an error at the first tape that is answered wrongly, and writes that into ``crash-SEED``, which libFuzzer plays again.
"""

import logging
import random
import resource
import sys
import time
from pathlib import Path

from tests.fuzz.front import FuzzedFront

LONGEST_TAPE = 4096
SECONDS_BETWEEN = 60.0
"""Between two lines about how far it is."""


def play(seed: int, calls: int) -> None:
    """Make that many calls, and say how it went.

    Raises:
        AssertionError: an answer was wrong.
    """
    # What strangers do is logged at each call.
    logging.disable(logging.CRITICAL)
    choices = random.Random(seed)
    began = said = time.monotonic()
    with FuzzedFront() as front:
        while front.calls < calls:
            tape = choices.randbytes(choices.randrange(LONGEST_TAPE))
            try:
                front.judge(tape)
            except BaseException:
                Path(f"crash-{seed}").write_bytes(tape)
                raise
            if time.monotonic() - said > SECONDS_BETWEEN:
                said = time.monotonic()
                _say(front.calls, began)
        _say(front.calls, began)


def _say(calls: int, began: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    spent = time.process_time()
    seconds = time.monotonic() - began
    print(f"{calls:,} calls, {seconds:.0f} s, {spent:.0f} s of processor, at most {peak} MiB", flush=True)  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) != 3 or not (sys.argv[1].isdecimal() and sys.argv[2].isdecimal()):
        sys.exit(__doc__)
    play(int(sys.argv[1]), int(sys.argv[2]))
