"""The options of a reading program; the defaults suit nearly everyone."""

import math
from dataclasses import dataclass, fields
from typing import TypedDict

from xbus.errors import ConfigurationError
from xbus.rpc.codec import Value

MOST_WAIT_SECONDS = 30.0
"""Seconds that the bus lets a call wait at the most."""


@dataclass(frozen=True)
class ReaderOptions:
    """The sizes of batches, and time-outs.

    Attributes:
        batch_items: the most items of a batch; None for what the bus file says.
        batch_bytes: the bytes of items at which a batch ends; None for what the bus file says.
        wait: seconds that a call waits for something to read before the program asks again; at most 30.
        answer_seconds: how long to wait for an answer beyond that.
        open_seconds: how long to insist on the first login.
        retry_seconds: how long to insist later, while the bus is away; for ever unless set.
    """

    batch_items: int | None = None
    batch_bytes: int | None = None
    wait: float = 20.0
    answer_seconds: float = 30.0
    open_seconds: float = 30.0
    retry_seconds: float = math.inf

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"the reader's option {option.name} is {value!r}", "give a number above 0")
        if self.wait > MOST_WAIT_SECONDS:
            raise ConfigurationError(
                f"the reader's option wait is {self.wait:g}", f"give at most {MOST_WAIT_SECONDS:g} seconds"
            )

    def on_wire(self, wait: float) -> dict[str, Value]:
        """Write the options of a call that reads.

        Args:
            wait: seconds that it may wait.
        """
        bounds: dict[str, Value] = {"max_items": self.batch_items, "max_bytes": self.batch_bytes}
        return {"wait": wait, **{name: value for name, value in bounds.items() if value is not None}}


class ReaderKeywords(TypedDict, total=False):
    """The options as keyword arguments of a reader; ``ReaderOptions`` says what each means."""

    batch_items: int | None
    batch_bytes: int | None
    wait: float
    answer_seconds: float
    open_seconds: float
    retry_seconds: float
