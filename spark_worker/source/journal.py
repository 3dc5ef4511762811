"""A reader's questions before it reads: where the log begins and ends, and which events lie between."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from spark_worker.source.options import SourceOptions
from spark_worker.source.places import LogEnd, Place, check_position
from spark_worker.source.reading import Wanted
from spark_worker.spark.patience import DatabasePatience, insist
from xbus.broker.journal.archive.reading import ArchivedFile, archived_files, count_archived
from xbus.broker.journal.database.connection import Connection, reading
from xbus.broker.journal.log import planning as log_planning
from xbus.broker.journal.log.planning import LogRange
from xbus.broker.journal.log.reading import read_head
from xbus.errors import JournalError, Refused

T = TypeVar("T")

UNKNOWN = "event_type_unknown"
REMOVED = "data_removed"

PART_ITEMS = 250_000
"""As many items suit a part, where nobody says how many parts there shall be."""


class TypeLog:
    """Asks the journal about the events of one type.

    It connects for each question: questions are few, and no connection stays open for the days that a query runs.

    Args:
        options: the options of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._type_id: int | None = None

    @property
    def type_id(self) -> int:
        """The id of the event type to read.

        Raises:
            Refused: no event type has that name (``event_type_unknown``).
        """
        if self._type_id is None:
            name = self._options.event_type
            self._type_id = self._ask(lambda connection: log_planning.read_type_id(connection, name))
            if self._type_id is None:
                raise Refused(f"there is no event type {name!r}", "correct option eventType", code=UNKNOWN)
        return self._type_id

    def head(self) -> int:
        """Read the position of the envelope sealed last; 0 before the first."""
        return self._ask(read_head)

    def begin(self, place: Place) -> int:
        """Find the position above which a read begins for a place.

        Raises:
            ConfigurationError: it is a position beyond the end, and looks like a day.
        """
        type_id = self.type_id
        return self._ask(lambda connection: _begin(connection, type_id, place))

    def end(self, place: Place) -> int:
        """Find the last position of a read that ends at a place: it includes a position, and not a moment.

        Raises:
            ConfigurationError: as of ``begin``.
        """
        return self._ask(lambda connection: _end(connection, place))

    def next_end(self, after: int, until: int, most_items: int | None) -> int | None:
        """Find the position at which a micro-batch ends; None if the type has no events there.

        Args:
            after: everything up to there has been read.
            until: it does not reach further.
            most_items: the most items, unless its first envelope alone has more; None for no limit.
        """
        type_id = self.type_id

        def answer(connection: Connection) -> int | None:
            files = archived_files(connection, type_id, after, until)
            if not files and not log_planning.has_events(connection, type_id, after, until):
                return None
            if most_items is None:
                return until
            last = min(until, _end_of_files(files, most_items, until))
            return log_planning.read_end(connection, type_id, after, last, most_items)

        return self._ask(answer)

    def check_kept(self, after: int, until: int) -> None:
        """Make sure that nothing of a part of the log was removed, of whichever type it was.

        Raises:
            JournalError: something was (``data_removed``).
        """

        def answer(connection: Connection) -> int:
            archived = count_archived(connection, after, until)
            return log_planning.count_missing(connection, after, until) - archived

        missing = self._ask(answer)
        if missing > 0:
            raise JournalError(
                f"of the envelopes at positions {after + 1} to {until}, {missing} were removed before they were read",
                "keep envelopes longer ([journal] keep_settled_days), or go on without them by failOnDataLoss = false",
                code=REMOVED,
            )

    def plan(self, after: int, until: int, cores: int) -> list[Wanted]:
        """Divide a part of the log into parts of about the same size.

        Args:
            cores: so many are read side by side at the least, unless that makes them very small.
        """
        options, type_id = self._options, self.type_id
        if after >= until:
            return []

        def ranges(connection: Connection) -> list[LogRange]:
            parts = options.partitions
            if not parts:
                items = log_planning.count_items(connection, type_id, after, until)
                parts = max(cores, -(-items // PART_ITEMS))
            return log_planning.cut_log(connection, type_id, after, until, parts)

        def answer(connection: Connection) -> list[LogRange | ArchivedFile]:
            files = archived_files(connection, type_id, after, until)
            while True:
                found = ranges(connection)
                # What is archived in between would be found twice, or not at all.
                same, files = files, archived_files(connection, type_id, after, until)
                if same == files:
                    return [*files, *found]

        return [
            Wanted(options.url, part, options.columns, options.retry_seconds, options.fail_on_data_loss)
            for part in self._ask(answer)
        ]

    def _ask(self, question: Callable[[Connection], T]) -> T:
        def once() -> T:
            with reading(self._options.url) as connection:
                return question(connection)

        return insist(DatabasePatience(self._options.retry_seconds), once)


def _begin(connection: Connection, type_id: int, place: Place) -> int:
    head = read_head(connection)
    if place is LogEnd.LATEST:
        return head
    if place is LogEnd.EARLIEST:
        archived = [file.positions[0] for file in archived_files(connection, type_id, 0, head)]
        kept = log_planning.read_first(connection)
        return min([*archived, head + 1 if kept is None else kept]) - 1
    if isinstance(place, int):
        check_position(place, head)
        return max(0, place - 1)
    return log_planning.position_before(connection, place)


def _end(connection: Connection, place: Place) -> int:
    if place is LogEnd.EARLIEST:
        return 0
    head = read_head(connection)
    if place is LogEnd.LATEST:
        return head
    if isinstance(place, int):
        check_position(place, head)
        return min(place, head)
    return log_planning.position_before(connection, place)


def _end_of_files(files: Iterable[ArchivedFile], most_items: int, until: int) -> int:
    """Find how far to read for so many archived items; a file is not read in pieces."""
    total = 0
    for file in files:
        total += file.items
        if total >= most_items:
            return file.positions[-1]
    return until
