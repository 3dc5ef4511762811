"""How long things take in the simulation: so different times that everything overtakes everything."""

import random

from xbus.testing.timing import Timing

WAY_SECONDS = (0.0, 0.0005, 0.01, 0.3)
"""How long a call or an answer may be on its way."""


def many_times(choices: random.Random) -> Timing:
    """Times chosen by the world's own choices."""
    return Timing(
        choices,
        ways=WAY_SECONDS,
        notices=(0.0, 0.05, 1.0),
        commits=(0.0, 0.001, 0.02),
        reads=(0.0, 0.001, 0.01),
        lost_rings=0.2,
    )
