"""Repairs of parked batches: have readers get them again, or go without."""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers.parked import ParkedBatch, drop_batch, find_parked_batch, resume_batch
from xbus.monitor.actions.action import Action, OptionalReason, Reason
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor

MOST_BATCHES = 1000
"""Batches that one request may name. More make a transaction long, which others wait for."""


class _OfBatches(Action, ABC):
    """The parked batches that an action is about.

    Args:
        batch: ids, or the beginnings of some.
    """

    right: ClassVar[Right] = Right.OPERATOR

    batch: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=255)]], Field(min_length=1, max_length=MOST_BATCHES)
    ]

    def find(self, connection: Connection) -> list[ParkedBatch]:
        """Find them.

        Raises:
            Refused: one of them is not parked (``batch_not_parked``), or several begin so (``ambiguous_id``).
        """
        found = [find_parked_batch(connection, each) for each in self.batch]
        return [*{each.id: each for each in found}.values()]


class ResumeBatches(_OfBatches):
    """Have readers get parked batches again, and count their attempts anew: all that are named, or none."""

    path: ClassVar[str] = "batches/resume"
    title: ClassVar[str] = "Resume"

    reason: OptionalReason = ""

    def command(self) -> Sequence[str]:
        told = ["--reason", self.reason] if self.reason else []
        return ["xbus", "parked", "batch", "resume", *self.batch, *told]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{each.whose} gets {each.id} again." for each in found)

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            found = self.find(connection)
            for each in found:
                resume_batch(connection, each, decision_of(bus.clock, self.reason))
        return (f"{each.whose} gets {each.id} again." for each in found)


class DropBatches(_OfBatches):
    """Have readers go without parked batches, for good."""

    path: ClassVar[str] = "batches/drop"
    title: ClassVar[str] = "Drop for good"
    is_final: ClassVar[bool] = True

    reason: Reason

    def command(self) -> Sequence[str]:
        return ["xbus", "parked", "batch", "drop", *self.batch, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(self.find)
        return (f"{each.whose} goes without {each.id}, for good." for each in found)

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            found = self.find(connection)
            for each in found:
                drop_batch(connection, each, decision_of(bus.clock, self.reason))
        return (f"{each.whose} goes without {each.id}." for each in found)
