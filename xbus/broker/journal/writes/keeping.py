"""The limits of what the bus keeps of an event type, as values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Keeping:
    """The limits of what the bus keeps of a type, with the names of the table's columns. None for no such limit.

    An event may go as soon as it is beyond one of them.

    Args:
        keep: seconds after the seal; infinite for ever.
        keep_bytes: so many bytes of the newest events stay.
        keep_last_per_key: so many of the newest events of each partition key stay.
        archive_after: seconds after which its events go into the archive, from which nothing removes them.
    """

    keep: float | None = None
    keep_bytes: int | None = None
    keep_last_per_key: int | None = None
    archive_after: float | None = None

    def seconds(self, otherwise: float) -> float:
        """Give the seconds after which the age alone lets an event go; infinite for never.

        Args:
            otherwise: those of a type without any limit of its own.
        """
        if self.keep is not None:
            return self.keep
        return otherwise if self == BUS_WIDE else math.inf


BUS_WIDE = Keeping()
"""A type without limits of its own: the configuration file decides."""

Keepings: TypeAlias = Mapping[int, Keeping]
"""The limits of the types that have some, by the id of the type."""
