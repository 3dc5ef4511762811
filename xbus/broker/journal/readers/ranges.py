"""Ranges of readers as values: where each stands, which batch is out, and who reads it; and how they are read."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import value_of
from xbus.broker.journal.log.slices.values import Place, Stretch
from xbus.errors import Refused
from xbus.states import RangeState

BATCH_PREFIX = "msg_"
BATCH_DIGITS = 32
"""The id of a batch, which subscribers see as ``webhook-id``: a prefix, and digits of a hash."""


@dataclass(frozen=True, slots=True)
class ReaderRange:
    """A range of hashes that one program at a time reads.

    Args:
        service_id: of its reader.
        owner: the program that reads it; None for none.
        counter: grows with each change of its owner or its place.
        stretches: what stands at one place, by their hashes; those of a batch that is out say where it ends.
        handed_out: whether a batch is out.
        skipped: how many envelopes retention removed before it read them.
        attempts: how often a subscriber was called in vain with the batch that is out.
        retry_at: until when it is not called with that batch.
        batch_of: the range whose batch was parked as this one, which ends with it; None for a range of the ring.
    """

    id: int
    service_id: int
    first: int
    last: int
    owner: UUID | None
    counter: int
    handed_out: bool
    stretches: tuple[Stretch, ...]
    skipped: int = 0
    attempts: int = 0
    retry_at: datetime | None = None
    batch_of: int | None = None

    @property
    def place(self) -> Place:
        """The place of the next item to be settled."""
        return min(stretch.position for stretch in self.stretches)

    @property
    def state(self) -> RangeState:
        """Its state, of one that was neither split nor merged."""
        if self.owner is None:
            return RangeState.FREE
        return RangeState.OUT if self.handed_out else RangeState.LEASED

    @property
    def batch_begin(self) -> Place:
        """The place of the first item of the batch that is out; stretches outside of it don't count."""
        return min((stretch.position for stretch, _ in self._parts), default=self.place)

    @property
    def batch_end(self) -> Place:
        """The place behind the batch that is out; stretches without a part in it do not count."""
        return max((until for _, until in self._parts), default=self.place)

    @property
    def is_in_pieces(self) -> bool:
        """True for a batch that a merge put together: the next one may have the same end."""
        end = self.batch_end
        return any((stretch.until or stretch.position) < end for stretch in self.stretches)

    @property
    def has_ended(self) -> bool:
        """True for a parked batch, resumed and settled since: nothing comes behind it."""
        return self.batch_of is not None and not self.handed_out

    @property
    def _parts(self) -> list[tuple[Stretch, Place]]:
        """The stretches with a part in the batch that is out, and where each part ends."""
        bounded = [(stretch, stretch.until) for stretch in self.stretches if stretch.until is not None]
        return [(stretch, until) for stretch, until in bounded if until > stretch.position]

    def with_batch(self, to: Place) -> "ReaderRange":
        """Have a batch be out that ends at a place; stretches that stand behind it have no part in it."""
        bounded = tuple(replace(each, until=max(each.position, to)) for each in self.stretches)
        return replace(self, stretches=bounded, handed_out=True, attempts=0, retry_at=None)

    def batch_id(self, reader: str) -> str:
        """Name the batch that is out by its bounds: it has the same id whenever it comes, and wherever it was parked.

        Args:
            reader: the key of its reader.
        """
        places = (":".join(map(str, place)) for place in (self.batch_begin, self.batch_end))
        bounds = " ".join([reader, str(self.batch_of or self.id), *places])
        return f"{BATCH_PREFIX}{hashlib.sha256(bounds.encode()).hexdigest()[:BATCH_DIGITS]}"

    def parked(self) -> tuple[Stretch, ...]:
        """Give the stretches of the batch that is out, as a range of its own has them."""
        return tuple(stretch for stretch, _ in self._parts)

    def settled(self, place: Place) -> "ReaderRange":
        """Settle the batch that is out up to a place; the rest of it stays out.

        A program repeats this call when its answer is lost, and the next batch may be out by then. So the end of a
        batch must not be within the next one. Behind a batch in pieces it may be, so the counter grows there:

        1. A range is merged of a part at 1 and one at 5, of which a batch up to 7 is out.
        2. The program settles 7. The bus notes it, puts the first part out from 1 to 7, and the answer is lost.
        3. The program settles 7 once more, and would settle what nobody has got.

        Raises:
            Refused: the place is not within the batch (``place_not_in_batch``).
        """
        if not self.handed_out and place <= self.place:
            # The answer to an earlier call was lost.
            return self
        if not (self.handed_out and self.place <= place <= self.batch_end):
            out = f"{self.place} to {self.batch_end}" if self.handed_out else "none"
            raise Refused(
                f"{place} is not within the batch of range {self.id} that is out, which is {out}",
                "settle a place of the batch that read_batch gave last",
                code="place_not_in_batch",
            )
        moved = [replace(each, position=_within(each, place)) for each in self.stretches]
        if place < self.batch_end:
            return replace(self, stretches=tuple(moved))
        counter = self.counter + self.is_in_pieces
        stretches = joined(replace(each, until=None) for each in moved)
        return replace(self, counter=counter, stretches=stretches, handed_out=False, attempts=0, retry_at=None)

    def passed(self, place: Place) -> "ReaderRange":
        """Pass what nobody wants up to a place."""
        moved = (replace(each, position=max(each.position, place)) for each in self.stretches)
        return replace(self, stretches=joined(moved))

    def moved(self, first: int, last: int, place: Place) -> "ReaderRange":
        """Put the hashes from first to last at a place. No batch is out then, and its bounds are forgotten."""
        kept = [
            replace(part, until=None)
            for span in ((self.first, first - 1), (last + 1, self.last))
            for part in cut(self.stretches, *span)
        ]
        begin, end = max(first, self.first), min(last, self.last)
        new = [Stretch(begin, end, place)] if begin <= end else []
        stretches = joined([*kept, *new])
        return replace(self, stretches=stretches, handed_out=False, owner=None, attempts=0, retry_at=None)


def _within(stretch: Stretch, place: Place) -> Place:
    return max(stretch.position, min(place, stretch.until or stretch.position))


def cut(stretches: Iterable[Stretch], first: int, last: int) -> tuple[Stretch, ...]:
    """Cut the hashes from first to last out of stretches."""
    return tuple(
        replace(each, first=max(each.first, first), last=min(each.last, last))
        for each in stretches
        if each.first <= last and each.last >= first
    )


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Sort stretches by their hashes, and make one of neighbours that stand at the same place."""
    found: list[Stretch] = []
    for each in sorted(stretches, key=lambda stretch: stretch.first):
        if found and (found[-1].position, found[-1].until) == (each.position, each.until):
            found[-1] = replace(found[-1], last=each.last)
        else:
            found.append(each)
    return tuple(found)


def read_ranges(connection: sa.Connection, service_ids: Sequence[int] | None = None) -> list[ReaderRange]:
    """Read the ranges that tile the ring of some readers, of all where none are named, by reader and hash."""
    row = model.reader_range.c
    chosen = sa.select(model.reader_range).where(row.completed_at.is_(None), row.batch_of.is_(None))
    if service_ids is not None:
        chosen = chosen.where(row.service_id.in_(list(service_ids)))
    return [*with_stretches(connection, chosen.order_by(row.service_id, row.first))]


def read_served_ranges(connection: sa.Connection, service_id: int) -> list[ReaderRange]:
    """Read the ranges of a reader that its programs read: those of its ring, and parked batches that were resumed."""
    row = model.reader_range.c
    chosen = sa.select(model.reader_range).where(
        row.completed_at.is_(None), row.parked_at.is_(None), row.service_id == service_id
    )
    return [*with_stretches(connection, chosen.order_by(row.first, row.id))]


def read_range(connection: sa.Connection, range_id: int) -> ReaderRange | None:
    """Read a range; None where it is none, or not in use any more."""
    row = model.reader_range.c
    chosen = sa.select(model.reader_range).where(row.id == range_id, row.completed_at.is_(None))
    return next(iter(with_stretches(connection, chosen)), None)


def with_stretches(
    connection: sa.Connection, chosen: sa.Select[tuple[object, ...]], **parameters: object
) -> Iterable[ReaderRange]:
    """Read ranges that a statement selects, each with its stretches.

    Args:
        parameters: of the statement.
    """
    rows = connection.execute(chosen, parameters).all()
    found: dict[int, list[Stretch]] = {}
    wanted = {"ranges": [row.id for row in rows]}
    for each in connection.execute(_STRETCHES, wanted).all() if rows else ():
        until = None if each.to_position is None else Place(each.to_position, each.to_event, each.to_item)
        place = Place(each.position, each.event, each.item)
        found.setdefault(each.range_id, []).append(Stretch(int(each.first, 16), int(each.last, 16), place, until))
    for row in rows:
        first, last = int(row.first, 16), int(row.last, 16)
        yield value_of(ReaderRange, row, first=first, last=last, stretches=tuple(found[row.id]))


_STRETCHES = (
    sa.select(model.reader_stretch)
    .where(model.reader_stretch.c.range_id.in_(sa.bindparam("ranges", expanding=True)))
    .order_by(model.reader_stretch.c.first)
)


def written_hash(number: int) -> str:
    """Write a hash as the tables keep it."""
    return f"{number:016x}"
