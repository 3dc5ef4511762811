"""A run: what holds the place of the one command that archives or restores, and keeps its lease."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from spark_worker.archive import storage
from xbus.broker.journal.archive import plans as archive_plans
from xbus.broker.journal.database.connection import Connection, writing
from xbus.clock import Clock
from xbus.errors import XbusError
from xbus.ids import Ids

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=30)

P = ParamSpec("P")
T = TypeVar("T")


class ArchiveRun:
    """The one run that goes on.

    Args:
        url: the journal's address.
        run_id: its id.
        clock: tells when its lease is over.
    """

    def __init__(self, url: str, run_id: UUID, clock: Clock) -> None:
        self.run_id = run_id
        self.url = url
        self._clock = clock

    def step(self, work: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in a transaction, which is rolled back if another run took this one's place.

        Raises:
            JournalError: that is so (``archive_overtaken``), or the database does not do it.
        """
        with writing(self.url) as connection:
            archive_plans.renew_run(connection, self.run_id, self._clock.now() + LEASE)
            return work(connection, *args, **kwargs)

    def clear(self, leftovers: Sequence[archive_plans.Leftover]) -> None:
        """Remove what dead runs left; what can't be reached now stays known, counts for nothing and stops nobody."""
        removed = []
        for file in leftovers:
            try:
                storage.remove(file.location)
                removed.append(file.file_id)
            except (OSError, XbusError) as error:
                log.warning(
                    "%s, which a run that was broken off left, can't be removed now (%s)",
                    *(file.location, error),
                    extra={"action": "leftover"},
                )
        if removed:
            self.step(archive_plans.forget_files, removed)

    def discard(self, files: "list[archive_plans.Leftover]") -> None:
        """Remove files that don't count, and forget them then.

        Raises:
            OSError: one can't be removed; it stays known.
        """
        for file in files:
            storage.remove(file.location)
        if files:
            self.step(archive_plans.forget_files, [file.file_id for file in files])


@contextmanager
def begun(url: str, clock: Clock, ids: Ids) -> Iterator[ArchiveRun]:
    """Begin a run for the time of the block; first remove the leftovers of dead ones.

    Raises:
        Failed: another goes on (``archive_busy``).
    """
    run = ArchiveRun(url, ids.new(), clock)
    with writing(url) as connection:
        leftovers = archive_plans.begin_run(connection, run.run_id, clock.now(), clock.now() + LEASE)
    try:
        with _kept_alive(run):
            run.clear(leftovers)
            yield run
    finally:
        with writing(url) as connection:
            archive_plans.end_run(connection, run.run_id, clock.now())


@contextmanager
def _kept_alive(run: ArchiveRun) -> Iterator[None]:
    """Renew the lease beside what takes long."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(LEASE.total_seconds() / 3):
            try:
                run.step(lambda _: None)
            except XbusError:
                # The next step tells, in its turn, whether that was for good.
                continue

    thread = threading.Thread(target=renew, name="archive-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
