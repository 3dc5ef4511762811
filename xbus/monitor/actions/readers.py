"""Moving readers, and splitting and merging their ranges."""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from xbus.admin.output import counted
from xbus.admin.repair.moves import decision_of
from xbus.broker.journal.log.slices import parse_start
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.people import RangeMove
from xbus.monitor.actions.action import UNSAID, Action, Reason, asked
from xbus.monitor.bus import BusAccess
from xbus.monitor.people.visitor import Visitor

SHOWN_RANGES = 20
"""Ranges that a preview names one by one. More make it long."""

LOST = "Programs that read them now lose their batches: what they settle late is refused."

RangeId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _OfReader(Action, ABC):
    """An action on a reader.

    Args:
        name: of the reader.
    """

    right: ClassVar[Right] = Right.OPERATOR

    name: str = Field(max_length=4000)
    reason: Reason


class MoveReader(_OfReader):
    """Have a reader go on at another place of the log."""

    path = "readers/move"
    title = "Move"

    place: Annotated[
        str, asked("line", "Place", "A position of the log, a date and time in UTC, oldest or head.", max_length=64)
    ]
    range_id: RangeId | None = None

    def command(self) -> Sequence[str]:
        only = [] if self.range_id is None else ["--range", str(self.range_id)]
        return ["xbus", "reader", "move", self.name, self.place, *only, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        # Until the person has typed a place, the head stands for it.
        start = parse_start("head" if self.place == UNSAID else self.place)
        moves = bus.read(lambda connection: people.plan_move(connection, self.name, start, self.range_id))
        if self.place == UNSAID:
            yield f"{counted(len(moves), 'range')} of {self.name} go on at the place that you say."
            yield from _told([f"Range {each.before.id} is at {each.before.place}." for each in moves])
        else:
            yield from _told([_sentence(each) for each in moves])
        yield "A place before that has items read again; one behind it has items never read."
        yield LOST

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        start = parse_start(self.place)
        with bus.writing(visitor) as connection:
            moves = people.move(connection, self.name, start, decision_of(bus.clock, self.reason), self.range_id)
        yield from _told([_sentence(each) for each in moves])


class UndoMove(_OfReader):
    """Put a reader back to where it stood before a checkpoint or a move."""

    path = "readers/undo"
    title = "Undo"

    act: str | None = Field(default=None, max_length=36, description="The act of the history; the newest by default.")

    def command(self) -> Sequence[str]:
        act = [] if self.act is None else ["--act", self.act]
        return ["xbus", "reader", "undo", self.name, *act, "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            wanted = None if self.act is None else people.resolve_act(connection, self.name, self.act)
            _, moves = people.plan_undo(connection, self.name, wanted)
        yield from _told([_sentence(each) for each in moves])
        yield LOST

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            wanted = None if self.act is None else people.resolve_act(connection, self.name, self.act)
            moves = people.undo(connection, self.name, decision_of(bus.clock, self.reason), wanted)
        yield from _told([_sentence(each) for each in moves])


class SplitRange(_OfReader):
    """Cut a range of a reader into two halves, so that two programs can read them."""

    path = "readers/split"
    title = "Split"

    range_id: RangeId

    def command(self) -> Sequence[str]:
        return ["xbus", "reader", "split", self.name, str(self.range_id), "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        parent = bus.read(lambda connection: people.plan_split(connection, self.name, self.range_id))
        yield f"Cut range {parent.id} into two halves, which go on at {parent.place}."
        if parent.handed_out:
            yield "The batch that is out is delivered again, in two parts."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            one, other = people.split(connection, self.name, self.range_id, decision_of(bus.clock, self.reason))
        yield f"Range {self.range_id} is split into {one.id} and {other.id}."


class MergeRanges(_OfReader):
    """Make one range of neighbours of a reader, so that one program reads them."""

    path = "readers/merge"
    title = "Merge"

    range_ids: list[RangeId] = Field(min_length=1, max_length=1000)

    def command(self) -> Sequence[str]:
        return ["xbus", "reader", "merge", self.name, *map(str, self.range_ids), "--reason", self.reason]

    def preview(self, bus: BusAccess) -> Iterator[str]:
        parents = bus.read(lambda connection: people.plan_merge(connection, self.name, self.range_ids))
        yield f"Make one range of {self.told}. Each part goes on where it stands."
        if any(each.handed_out for each in parents):
            yield "Batches that are out are delivered again, as one."

    def carry_out(self, bus: BusAccess, visitor: Visitor) -> Iterator[str]:
        with bus.writing(visitor) as connection:
            (made,) = people.merge(connection, self.name, self.range_ids, decision_of(bus.clock, self.reason))
        yield f"The ranges {self.told} are merged into {made.id}."

    @property
    def told(self) -> str:
        """The ranges in a sentence."""
        return ", ".join(map(str, self.range_ids))


def _sentence(move: RangeMove) -> str:
    return f"Range {move.before.id} goes on at {move.after.place}; it was at {move.before.place}."


def _told(sentences: Sequence[str]) -> Iterator[str]:
    yield from sentences[:SHOWN_RANGES]
    if len(sentences) > SHOWN_RANGES:
        yield f"So do {len(sentences) - SHOWN_RANGES:,} more."
