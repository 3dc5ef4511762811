"""A refusal: an author raises it to refuse an item for good."""

from collections.abc import Iterable
from operator import index
from typing import SupportsIndex

from xbus.errors import XbusError
from xbus.texts import MOST_CHARACTERS, plain

REFUSED = "refused"
"""The code of a refusal, whether an event was sent to a recipient or handed over to it.

A bulk worker reports the code of a refusal that has another one.
"""


class Refusal(XbusError):
    """The item or event can never be taken: the envelope is rolled back everywhere and parked for a person.

    Any other exception means "not now", and the broker redelivers the envelope::

        raise Refusal(f"there is no airline {code}", item.indices)

    Args:
        message: the fault, for the person who will look at it.
        indices: the emitter's indices of the bad items; by default those of the present item.
    """

    default_code = REFUSED

    def __init__(self, message: str, indices: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.indices = list(indices)

    @property
    def errors(self) -> list[tuple[list[int], str]]:
        """The form that it has on the wire."""
        # Of a library for arrays an index may be a number of its own.
        indices = [index(each) for each in self.indices if isinstance(each, SupportsIndex)]
        return [([each for each in indices if abs(each) < 2**63], plain(self.cause, MOST_CHARACTERS))]
