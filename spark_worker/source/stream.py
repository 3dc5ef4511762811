"""Going on reading: ``spark.readStream.format("xbus")``."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_worker.source.batch import read_batches
from spark_worker.source.journal import REMOVED, TypeLog
from spark_worker.source.options import StreamOptions
from spark_worker.spark.options import bad_option
from xbus.errors import JournalError

IDLE_POSITIONS = 1_000
"""Envelopes of other types after which a query moves on to the end of the log."""

IDLE_SECONDS = 60.0
"""The same after such a time, so that what the bus removes one day has been passed by then."""


class StreamProgress:
    """Says where micro-batches end. Its memory only saves work.

    Args:
        next_end: asks the log for the end of a micro-batch: behind a position, up to a second one, with at most so many
            items. None if the log has nothing to read there.
        now: the time in seconds, from any start.
    """

    def __init__(self, next_end: Callable[[int, int, int | None], int | None], now: Callable[[], float]) -> None:
        self._next_end = next_end
        self._now = now
        self._empty_until = 0
        self._idle_since = now()

    def next_end(self, after: int, until: int, most_items: int | None) -> int:
        """Find the position at which the next micro-batch ends; ``after`` without one.

        Args:
            after: everything up to there has been read.
            until: the end of the log.
            most_items: the most items, unless one envelope alone has more; None for no limit.
        """
        unseen = max(after, self._empty_until)
        end = self._next_end(unseen, until, most_items) if unseen < until else None
        if end is None:
            self._empty_until = max(unseen, until)
            return self._idle(after, until)
        self._idle_since = self._now()
        return end

    def _idle(self, after: int, until: int) -> int:
        """Move a query on now and then though the type has no events: each micro-batch has a cost."""
        is_due = until - after >= IDLE_POSITIONS or self._now() - self._idle_since >= IDLE_SECONDS
        if until <= after or not is_due:
            return after
        self._idle_since = self._now()
        return until


Offset: TypeAlias = dict[str, int]
"""The progress of a query, as Spark keeps it in its checkpoint.

``position``: everything up to it has been read. ``since``: the end of the log when the query was new; removals up to
there are no loss.
"""


def offset(position: int, since: int) -> Offset:
    """Make an offset. All are made here, because Spark compares their texts, in which the order of the keys counts."""
    return {"position": position, "since": since}


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the events of a type as they are sealed; a micro-batch has whole envelopes.

    Spark asks one instance in the driver for the end of the log, and hands copies of it to the executors to read.

    Args:
        options: the options of the source.
        schema: of the batches.
    """

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._log = TypeLog(options)
        self._progress = StreamProgress(self._log.next_end, time.monotonic)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Find the place where a new query begins.

        Raises:
            ConfigurationError: at a future moment: earlier envelopes would come too.
        """
        start = self._options.start
        if isinstance(start, datetime) and start > datetime.now(UTC):
            raise bad_option("startingPosition", start.isoformat(), "is in the future")
        return offset(self._log.begin(self._options.start), self._log.head())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Give the limit of a micro-batch."""
        return ReadMaxRows(self._options.max_items) if self._options.max_items else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query where the log ends now."""
        self._target = self._log.head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Find where the next micro-batch ends; ``start`` if nothing is to be read.

        Raises:
            JournalError: the log is shorter than what was read of it (``data_removed``).
        """
        after = start["position"]
        until = self._log.head() if self._target is None else self._target
        if until < max(after, start["since"]):
            self._check_end(after, start["since"])
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._progress.next_end(after, until, most)
        if end == after and self._target is not None:
            # Each run passes all that the log has: the next one might find the rest removed, and take that for a loss.
            end = max(after, until)
        return offset(end, start["since"])

    def _check_end(self, after: int, since: int) -> None:
        """Check that the log is no shorter than what was read: the query would never read later envelopes there."""
        head = self._log.head()
        begins_later = self._options.start == after + 1
        if self._options.fail_on_data_loss and (head < since or (head < after and not begins_later)):
            raise JournalError(
                f"the query has read up to position {max(after, since)}, and the log ends at {head}: "
                "it is another one, or an older copy",
                "begin anew with another checkpointLocation",
                code=REMOVED,
            )

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan the parts of a micro-batch, which are read side by side."""
        after, until = start["position"], end["position"]
        # Removed before the query began, it is no loss of the query's.
        first = max(after, start["since"])
        if self._options.fail_on_data_loss and first < until:
            self._log.check_kept(first, until)
        return [InputPartition(wanted) for wanted in self._log.plan(after, until, os.cpu_count() or 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the items of a part."""
        return read_batches(partition.value, self._schema)
