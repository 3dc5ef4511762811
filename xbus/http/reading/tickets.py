"""The ticket by which a program settles a batch: it holds all that the back wants to know. Pure.

So the gateway remembers no batch. A checkpoint may come to another gateway, or after a restart of this one.
"""

import re
from dataclasses import dataclass

from xbus.errors import Refused
from xbus.ids import parse_uuid
from xbus.rpc.codec import Value
from xbus.rpc.messages import ClaimedBatchMap

LONGEST_NUMBER = 18
"""Digits; what the columns of the database take."""

_PLACE = re.compile(rf"\d{{1,{LONGEST_NUMBER}}}(:\d{{1,{LONGEST_NUMBER}}}){{0,2}}", re.ASCII)
_TICKET = re.compile(
    rf"(\d{{1,{LONGEST_NUMBER}}})\.(\d{{1,{LONGEST_NUMBER}}})\.([\d:]{{1,60}})\.([0-9a-f-]{{36}})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class CheckpointTicket:
    """Names a batch that is out.

    Args:
        range_id: its range.
        counter: that of the lease under which it is out.
        place: where it ends.
        program: the UUID of the program that has it.
    """

    range_id: int
    counter: int
    place: list[int]
    program: str

    @classmethod
    def of(cls, batch: ClaimedBatchMap, program: str) -> "CheckpointTicket":
        """Make the ticket of a batch."""
        return cls(batch["range"], batch["counter"], batch["to"], program)

    @classmethod
    def parse(cls, text: str) -> "CheckpointTicket":
        """Read a ticket.

        Raises:
            Refused: the text is no ticket (``bad_request``).
        """
        found = _TICKET.fullmatch(text)
        program = parse_uuid(found[4]) if found is not None else None
        if found is None or program is None or not _PLACE.fullmatch(found[3]):
            raise Refused(
                f"{text!r:.100} is no checkpoint", "send the text that came with the batch", code="bad_request"
            )
        return cls(int(found[1]), int(found[2]), parse_place(found[3]), str(program))

    def settled(self, place: list[int] | None = None) -> list[Value]:
        """Write what says that the batch is done: range, counter and place.

        Args:
            place: up to which it is done; None for all of it.
        """
        return [self.range_id, self.counter, [*(self.place if place is None else place)]]

    def __str__(self) -> str:
        return f"{self.range_id}.{self.counter}.{place_text(self.place)}.{self.program}"


def place_text(place: list[int]) -> str:
    """Write a place as people do: ``1234``, or ``1234:0:500``."""
    return ":".join(map(str, place)) if any(place[1:]) else str(place[0])


def parse_place(text: str) -> list[int]:
    """Read a place as :func:`place_text` writes it.

    Raises:
        Refused: the text is no place (``place_invalid``).
    """
    if not _PLACE.fullmatch(text):
        raise Refused(f"{text!r:.60} is no place in the log", "write 1234 or 1234:0:500", code="place_invalid")
    numbers = [int(number) for number in text.split(":")]
    return [*numbers, *[0] * (3 - len(numbers))]
