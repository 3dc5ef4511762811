"""Readers and subscriptions: their lag, ranges, programs and history, and the moves of a person."""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse
from pydantic import Field

from xbus.admin.objects import of_move, of_range, of_reader
from xbus.admin.output import counted, moment
from xbus.broker.journal.configuration import Section, read_stored
from xbus.broker.journal.log.catalog import read_pauses
from xbus.broker.journal.log.slices import parse_start
from xbus.broker.journal.people import Right
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.broker.journal.readers.people import RangeMove, find_reader
from xbus.broker.journal.readers.status import MOST_COUNTED_EVENTS, list_moves, list_readers
from xbus.broker.journal.readers.subscriptions import find_ended, resume_subscription
from xbus.broker.journal.writes import PauseKind
from xbus.admin.signatures import UNSAID
from xbus.monitor.actions import Action, Reason, asked
from xbus.monitor.bus import BusAccess, VisitorBus
from xbus.monitor.features.entries import read_entry
from xbus.monitor.features.envelopes import Limit
from xbus.monitor.rendering import LIVE, TheBus, ThePage, TheVisitor
from xbus.monitor.rest import ObjectResponse, answer, answer_list

router = APIRouter()

SHOWN_MOVES = 50
"""Acts of the history at first. More make the page long."""

SHOWN_BATCHES = 20
"""Parked batches of a subscription. More make the page long; the list of batches has them."""

Moves = Annotated[int, Query(ge=1, le=1000)]


@router.get(f"{LIVE}/readers")
@router.get("/readers")
def list_(bus: TheBus, page: ThePage) -> HTMLResponse:
    """Show the readers: how far they are, and who reads."""
    readers = bus.read(list_readers)
    return page("readers/list.html", readers=readers, most=MOST_COUNTED_EVENTS)


@router.get(f"{LIVE}/reader")
def ranges(bus: TheBus, page: ThePage, name: str) -> HTMLResponse:
    """Show the ranges of a reader; its page asks for this again and again."""
    with bus.reading() as connection:
        find_reader(connection, name)
        (reader,) = list_readers(connection, name)
    return page("readers/ranges.html", reader=reader, most=MOST_COUNTED_EVENTS)


@router.get("/readers/{name:path}")
def show(bus: TheBus, page: ThePage, name: str, moves: Moves = SHOWN_MOVES) -> HTMLResponse:
    """Show a reader: what it reads, its ranges, who reads for it, and the history of its places."""
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        (reader,) = list_readers(connection, name)
        shown = None
        batches = list_parked_batches(connection, limit=SHOWN_BATCHES + 1, reader=name)
        if reader.subscriber is not None:
            shown = read_entry(connection, Section.SUBSCRIPTION, reader.subscriber.name)
        elif reader.bot is None:
            # A reader of a bot is no entry of the bus file.
            shown = read_entry(connection, Section.READER, name)
        history = list_moves(connection, entry.id, moves)
        # The page of an entry tells its pause itself; a subscription is paused under the name of its reader.
        pauses = {} if reader.subscriber is None else read_pauses(connection)
        in_use = read_stored(connection).in_use if shown is None else shown.stored.in_use
    return page(
        "readers/show.html",
        reader=reader,
        shown=shown,
        pause=pauses.get((PauseKind.SERVICE, entry.id)),
        roles=sorted(login for login, role in in_use.roles.items() if role.service == name),
        history=history,
        batches=batches[:SHOWN_BATCHES],
        are_more=len(batches) > SHOWN_BATCHES,
        is_cut=len(history) == moves < 1000,
        most=MOST_COUNTED_EVENTS,
    )


api = APIRouter(prefix="/readers", tags=["readers"], default_response_class=ObjectResponse)


@api.get("", operation_id="list_readers")
def list_json(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the readers: their places, and how far they lag behind."""
    return answer_list(map(of_reader, bus.read(list_readers)))


@api.get("/{name:path}", operation_id="show_reader")
def show_json(
    bus: TheBus, _: TheVisitor, name: Annotated[str, Path(max_length=255)], limit: Limit = 20
) -> ObjectResponse:
    """Show a reader: its ranges, who reads them, and the last acts of its history."""
    with bus.reading() as connection:
        entry = find_reader(connection, name)
        (status,) = list_readers(connection, name)
        moves = list_moves(connection, entry.id, limit)
    told = {"range_list": [*map(of_range, status.ranges)], "history": [*map(of_move, moves)]}
    return answer({**of_reader(status), **told})


SHOWN_RANGES = 20
"""Ranges that a preview names one by one. More make it long."""

LOST = "Programs that read them now lose their batches: what they settle late is refused."

RangeId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _OfReader(Action, ABC):
    """An action on a reader.

    Args:
        name: of the reader.
    """

    right = Right.OPERATOR

    name: str = Field(max_length=4000)
    reason: Reason


class MoveReader(_OfReader):
    """Have a reader go on at another place of the log."""

    path = "readers/move"
    title = "Move"
    words = "reader move {name} {place} --range={range_id} --reason={reason}"

    place: Annotated[
        str, asked("line", "Place", "A position of the log, a date and time in UTC, oldest or head.", max_length=64)
    ]
    range_id: RangeId | None = None

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

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        start = parse_start(self.place)
        with bus.writing() as connection:
            moves = people.move(connection, self.name, start, bus.decision(self.reason), self.range_id)
        yield from _told([_sentence(each) for each in moves])


class UndoMove(_OfReader):
    """Put a reader back to where it stood before a checkpoint or a move."""

    path = "readers/undo"
    title = "Undo"
    words = "reader undo {name} --act={act} --reason={reason}"

    act: str | None = Field(default=None, max_length=36, description="The act of the history; the newest by default.")

    def preview(self, bus: BusAccess) -> Iterator[str]:
        with bus.reading() as connection:
            wanted = None if self.act is None else people.resolve_act(connection, self.name, self.act)
            _, moves = people.plan_undo(connection, self.name, wanted)
        yield from _told([_sentence(each) for each in moves])
        yield LOST

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            wanted = None if self.act is None else people.resolve_act(connection, self.name, self.act)
            moves = people.undo(connection, self.name, bus.decision(self.reason), wanted)
        yield from _told([_sentence(each) for each in moves])


class SplitRange(_OfReader):
    """Cut a range of a reader into two halves, so that two programs can read them."""

    path = "readers/split"
    title = "Split"
    words = "reader split {name} {range_id} --reason={reason}"

    range_id: RangeId

    def preview(self, bus: BusAccess) -> Iterator[str]:
        parent = bus.read(lambda connection: people.plan_split(connection, self.name, self.range_id))
        yield f"Cut range {parent.id} into two halves, which go on at {parent.place}."
        if parent.handed_out:
            yield "The batch that is out is delivered again, in two parts."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            one, other = people.split(connection, self.name, self.range_id, bus.decision(self.reason))
        yield f"Range {self.range_id} is split into {one.id} and {other.id}."


class MergeRanges(_OfReader):
    """Make one range of neighbours of a reader, so that one program reads them."""

    path = "readers/merge"
    title = "Merge"
    words = "reader merge {name} {range_ids} --reason={reason}"

    range_ids: list[RangeId] = Field(min_length=1, max_length=1000)

    def preview(self, bus: BusAccess) -> Iterator[str]:
        parents = bus.read(lambda connection: people.plan_merge(connection, self.name, self.range_ids))
        yield f"Make one range of {self.told}. Each part goes on where it stands."
        if any(each.handed_out for each in parents):
            yield "Batches that are out are delivered again, as one."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            (made,) = people.merge(connection, self.name, self.range_ids, bus.decision(self.reason))
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


class ResumeSubscription(Action):
    """Have a subscription go on that its subscriber has ended by 410.

    Args:
        name: of the subscription.
    """

    path: ClassVar[str] = "subscriptions/resume"
    title: ClassVar[str] = "Resume"
    words = "subscription resume {name} --reason={reason}"
    right = Right.OPERATOR

    name: str = Field(max_length=4000)
    reason: Reason

    def preview(self, bus: BusAccess) -> Iterator[str]:
        found = bus.read(lambda connection: find_ended(connection, self.name))
        yield f"The subscriber of {self.name} wanted no more, since {moment(found.ended_at)}."
        yield f"Gateways call {found.url} again, with what has come since. What retention has removed is skipped."

    def carry_out(self, bus: VisitorBus) -> Iterator[str]:
        with bus.writing() as connection:
            resume_subscription(connection, self.name, bus.decision(self.reason))
        yield f"{self.name} goes on."
