"""The errors of a job, in the two classes that the bus knows: permanent and transient.

Refusal (xbus.recipient)       permanent: the same job would fail again
└── ItemsRefused               ... for the sake of some items, which are named cause by cause
Failed (xbus.errors)           transient: the same job may go well later
└── ClusterUnreachable         ... when there is a cluster again
"""

from collections.abc import Sequence
from typing import ClassVar

from xbus.errors import Failed
from xbus.recipient import Refusal

ItemError = tuple[list[int], str]
"""What is wrong with some items: their indexes in the event, and a sentence."""

MOST_CAUSES = 20
"""So many causes are told apart; each is a line that a person reads, and a row that is kept."""


class ClusterUnreachable(Failed):
    """There is no Spark to run anything on now."""

    default_code: ClassVar[str] = "cluster_unreachable"


class ItemsRefused(Refusal):
    """Some items can't be taken, each for a reason; those that have the same one are told together.

    Args:
        message: what is wrong on the whole.
        items: what is wrong with each; at least one.
    """

    def __init__(self, message: str, items: Sequence[ItemError]) -> None:
        super().__init__(message, [index for indices, _ in items for index in indices])
        self._items = grouped(message, items)

    @property
    def errors(self) -> list[ItemError]:
        """The reasons, each with its items; the first one tells what is wrong on the whole, too."""
        return self._items


def grouped(message: str, items: Sequence[ItemError]) -> list[ItemError]:
    """What is wrong with items, cause by cause.

    Args:
        message: what is wrong on the whole, which no single cause tells where there are several items.
        items: what is wrong with each; at least one.

    Returns:
        The causes, each with its items; those beyond ``MOST_CAUSES`` as one.
    """
    by_cause: dict[str, list[int]] = {}
    for indices, cause in items:
        by_cause.setdefault(cause, []).extend(indices)
    causes = [(indices, cause) for cause, indices in by_cause.items()]
    told, others = causes[:MOST_CAUSES], causes[MOST_CAUSES:]
    if others:
        indices = [index for of_cause, _ in others for index in of_cause]
        told.append((indices, f"{len(others)} other causes, such as: {others[0][1]}"))
    if len(items) > 1:
        told[0] = (told[0][0], f"{told[0][1]} ({message})")
    return told


class BadOutput(Exception):
    """What a transform made can't be sent as items; raised in an executor, so it bears its text alone."""
