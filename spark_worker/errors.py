"""What can go wrong in a job, in the two classes that the bus knows.

Refusal (xbus.recipient)       permanent: the same job would fail again
└── ItemsRefused               ... for the sake of some items, which are named one by one
Failed (xbus.errors)           transient: the same job may go well later
└── ClusterUnreachable         ... when there is a cluster again
"""

from collections.abc import Sequence
from typing import ClassVar

from xbus.errors import Failed
from xbus.recipient import Refusal

ItemError = tuple[list[int], str]
"""What is wrong with some items: their indexes in the event, and a sentence."""


class ClusterUnreachable(Failed):
    """There is no Spark to run anything on now."""

    default_code: ClassVar[str] = "cluster_unreachable"


class ItemsRefused(Refusal):
    """Some items can't be taken, each for a reason of its own.

    Args:
        message: what is wrong on the whole.
        items: what is wrong with each; at least one.
    """

    default_code: ClassVar[str] = "items_corrupt"

    def __init__(self, message: str, items: Sequence[ItemError]) -> None:
        super().__init__(message, [index for indices, _ in items for index in indices])
        self._items = list(items)

    @property
    def errors(self) -> list[ItemError]:
        """Each item with its own reason."""
        return self._items


class BadOutput(Exception):
    """What a transform made can't be sent as items; raised in an executor, so it bears its text alone."""
