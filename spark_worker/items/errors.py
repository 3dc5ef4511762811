"""The errors of a job, in the two classes that the bus knows: permanent and transient.

Refusal (xbus.recipient)       permanent: the same job would fail again
├── ItemsRefused               ... for the sake of some items, which are named cause by cause
└── NeverDone                  ... as the bus itself can't do its part, by the code of that
Failed (xbus.errors)           transient: the same job may go well later
└── ClusterUnreachable         ... when there is a cluster again
"""

from collections.abc import Sequence
from typing import ClassVar

from xbus.errors import Failed
from xbus.recipient import Refusal

ItemError = tuple[list[int], str]
"""The fault of some items: their indexes in the event, and a sentence."""

MOST_CAUSES = 20
"""The most causes of one report. Each is a line that a person reads, and a row that is kept."""


class ClusterUnreachable(Failed):
    """No Spark is available to run jobs now."""

    default_code: ClassVar[str] = "cluster_unreachable"


class ItemsRefused(Refusal):
    """The worker refuses some items, each for a reason; those with the same reason are reported together.

    Args:
        message: the fault on the whole.
        items: the fault of each; at least one.
    """

    def __init__(self, message: str, items: Sequence[ItemError]) -> None:
        super().__init__(message, [index for indices, _ in items for index in indices])
        self._items = grouped(message, items)

    @property
    def errors(self) -> list[ItemError]:
        """The reasons, each with its items; the first one names the fault on the whole, too."""
        return self._items


class NeverDone(Refusal):
    """The bus can't do its part of the job, now or later. The event parks with the code of the bus.

    Args:
        message: the cause and the next step of the bus's error.
        code: its code, such as ``segment_damaged``.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def grouped(message: str, items: Sequence[ItemError]) -> list[ItemError]:
    """Group the faults of items, cause by cause.

    Args:
        message: the fault on the whole, used if several causes exist.
        items: the fault of each; at least one.

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
    """A transform made rows that can't become items; raised in an executor, so it has its text alone."""
