"""The options of an emitter; the defaults suit nearly everyone."""

import math
from dataclasses import dataclass, fields
from typing import TypedDict

from xbus.errors import ConfigurationError

PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """The sizes of an emitter's batches, its bytes in flight, and its time-outs.

    Attributes:
        batch_items: items that make a batch full.
        batch_bytes: bytes of items that make a batch full.
        linger_seconds: how long an item may wait for others before its batch goes as it is (at most twice that).
        window_bytes: bytes of batches in flight; above it ``send`` waits for the bus.
        answer_seconds: how long to wait for one answer before the call is repeated; at most half of ``retry_seconds``.
        reply_seconds: the same for the end of an event or envelope, which may wait for a consumer's immediate reply;
            never less than the front itself waits and ``answer_seconds`` more.
        retry_seconds: how long to insist while nothing succeeds, before an error is raised. It is counted from the call
            that waits, or from the last success after it. Only a consumer's immediate reply may take longer, while the
            front gives signs of life. 0 for no repeat: then ``answer_seconds`` counts. If the bus asks the emitter to
            slow down for longer than what is left, the error is raised at once.
        pause_seconds: how long to wait, beside ``retry_seconds``, while an operator has paused the emitter or an event
            type at the bus; without limit unless set. An outbox waits for ever.
        outbox_bytes: the most bytes of the outbox, if the emitter has one.
        outbox_seconds: how long the end of the emitter waits for the outbox to become empty; the rest stays in it.
    """

    batch_items: int = 1000
    batch_bytes: int = 262_144
    linger_seconds: float = 0.05
    window_bytes: int = 8_388_608
    answer_seconds: float = 30.0
    reply_seconds: float = 300.0
    retry_seconds: float = 30.0
    pause_seconds: float = math.inf
    outbox_bytes: int = 1_073_741_824
    outbox_seconds: float = 5.0

    @property
    def probe_seconds(self) -> float:
        """Seconds to wait for an answer whose lack is no harm: its call is repeated, or was a logout."""
        return min(PROBE_SECONDS, self.retry_seconds or PROBE_SECONDS)

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if not value > 0 and (value, option.name) != (0, "retry_seconds"):
                raise ConfigurationError(f"the emitter's option {option.name} is {value!r}", "give a number above 0")


class OptionKeywords(TypedDict, total=False):
    """The options as keyword arguments of an emitter; ``Options`` says what each means."""

    batch_items: int
    batch_bytes: int
    linger_seconds: float
    window_bytes: int
    answer_seconds: float
    reply_seconds: float
    retry_seconds: float
    pause_seconds: float
    outbox_bytes: int
    outbox_seconds: float
