"""The figures of deliveries that metrics show, as the back has them in memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """The figures at one moment.

    Args:
        counts: by the login of a role, how often a delivery came to each state; None stands for all further roles.
        in_flight: by the id of a role, how many envelopes are being brought to it.
        bundled_bytes: the bytes of small envelopes that wait for their recipients.
        tail_bytes: the bytes of the envelopes that were sealed last, and are kept so that nobody reads them back.
        head: the position of the last envelope.
    """

    counts: Mapping[str | None, Counter[str]]
    in_flight: Mapping[int, int]
    bundled_bytes: int
    tail_bytes: int
    head: int
