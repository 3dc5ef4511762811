"""An archive made in this process, without Spark."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from spark_worker.archive.archiver import Archiver, FilePlanner, Report
from spark_worker.archive.copying import CopyFailed, copy_file
from spark_worker.archive.run import begun
from xbus.broker.journal.archive.plans import FilePlan
from xbus.broker.journal.archive.records import FileWritten
from xbus.broker.journal.retention.rules import sealed_before
from xbus.clock import SystemClock
from xbus.ids import Ids


def archive(url: str, folder: Path) -> Report:
    """Move the items of all envelopes that are settled now into files."""
    clock, ids = SystemClock(), Ids()

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> list[FileWritten | CopyFailed]:
        return [copy_file(url, plan, wrote) for plan in plans]

    with begun(url, clock, ids) as run:
        return Archiver(run, FilePlanner(str(folder), ids), copy, clock).archive(sealed_before(datetime.now(UTC)))
