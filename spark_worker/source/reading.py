"""Reads a range of the log in an executor; a database that goes away meanwhile is waited for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from spark_worker.spark.patience import DatabasePatience, insist
from xbus.broker.journal.archive.reading import ArchivedFile, archived_files
from xbus.broker.journal.bulk.segment_reader import PAGE_BYTES, LoggedSegment, open_reader
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import GONE, LogRange
from xbus.errors import JournalError, JournalUnavailable


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values by which an executor reads its part of the log.

    Args:
        url: the database of the journal.
        part: the part to read, of the journal or of a file of its archive.
        columns: which columns of it are wanted.
        retry_seconds: how long a database that is away is asked again.
        fail_on_data_loss: whether it is an error that something was removed meanwhile.
    """

    url: str = field(repr=False)
    part: LogRange | ArchivedFile
    columns: tuple[str, ...]
    retry_seconds: float
    fail_on_data_loss: bool


def read_range(wanted: Wanted, part: LogRange, page_bytes: int = PAGE_BYTES) -> Iterator[LoggedSegment]:
    """Read the segments of a range of the journal, in their order, about so many bytes at once.

    Raises:
        JournalError: something was removed, or moved into the archive or out of it, while it was read
            (``segments_gone``).
        JournalUnavailable: the database was away for too long.
    """

    def attempt(rest: LogRange) -> Iterator[LoggedSegment]:
        with open_reader(wanted.url, page_bytes) as reader:
            yield from reader.log_range(rest, wanted.columns)

    items = 0
    for segment in resuming(part, attempt, DatabasePatience(wanted.retry_seconds), wanted.fail_on_data_loss):
        items += segment.items
        yield segment
    if items != part.items:
        _check_difference(wanted, part, items)


def _check_difference(wanted: Wanted, part: LogRange, items: int) -> None:
    """Check what is missing: removed items may be left out if the user wants that, archived ones may not."""
    if items > part.items:
        raise JournalError(
            f"{items - part.items} items above position {part.after} were restored while they were read",
            "read again: otherwise they would come twice",
            code=GONE,
        )
    if wanted.fail_on_data_loss or _is_archived(wanted, part):
        raise JournalError(
            f"{part.items - items} items above position {part.after} were removed while they were read",
            "read again: archived items then come from their files; failOnDataLoss = false leaves out removed ones",
            code=GONE,
        )


def _is_archived(wanted: Wanted, part: LogRange) -> bool:
    """Check whether the archive has something of a range."""

    def question() -> bool:
        with reading(wanted.url) as connection:
            return bool(archived_files(connection, part.type_id, part.after, part.until))

    return insist(DatabasePatience(wanted.retry_seconds), question)


def resuming(
    wanted: LogRange,
    attempt: Callable[[LogRange], Iterator[LoggedSegment]],
    patience: DatabasePatience,
    fail_on_data_loss: bool = True,
) -> Iterator[LoggedSegment]:
    """Yield each segment of an attempt once; after trouble another attempt goes on where the last one ended.

    Args:
        wanted: the part to read.
        attempt: reads it, or the rest of it.
        patience: says how long to go on.
        fail_on_data_loss: whether removed segments are an error. If not, the rest is read without their envelope, which
            is then marked as removed.

    Raises:
        JournalError: segments were removed.
        JournalUnavailable: the patience is over.
    """
    rest = _Rest(wanted)
    while True:
        try:
            for segment in rest.without_given(attempt(rest.range)):
                patience.succeeded()
                yield segment
                rest.give(segment)
            return
        except JournalUnavailable as error:
            patience.wait_after(error)
        except JournalError as error:
            if fail_on_data_loss or error.code != GONE:
                raise
            if rest.range.number is not None:
                return
            patience.wait_after(error)


class _Rest:
    """The rest of a range.

    The log can be taken up again at a position only. The segments of one position always come in the same order, so it
    is enough to know how many of them were given.
    """

    def __init__(self, wanted: LogRange) -> None:
        self.range = wanted
        self._position = 0
        self._given = 0

    def give(self, segment: LoggedSegment) -> None:
        if self.range.number is not None:
            self.range = replace(self.range, first=segment.first_index + segment.items)
            return
        if segment.position != self._position:
            self.range = replace(self.range, after=segment.position - 1)
            self._position, self._given = segment.position, 0
        self._given += 1

    def without_given(self, segments: Iterator[LoggedSegment]) -> Iterator[LoggedSegment]:
        position, left = self._position, self._given
        for segment in segments:
            if left and segment.position == position:
                left -= 1
            else:
                yield segment
