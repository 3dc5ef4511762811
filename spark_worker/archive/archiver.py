"""The steps of archiving. Each is one transaction or repeats without harm, so that it may be broken off anywhere."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from spark_worker.archive import storage
from spark_worker.archive.copying import CopyFailed
from spark_worker.archive.run import ArchiveRun
from xbus.broker.journal.archive import plans as archive_plans
from xbus.broker.journal.archive import records as archive_records
from xbus.broker.journal.archive.plans import FilePlan, Leftover, PlannedEvent, Round
from xbus.broker.journal.archive.records import FileWritten
from xbus.broker.journal.database.connection import Connection, reading
from xbus.broker.journal.retention.rules import Scan
from xbus.clock import Clock
from xbus.errors import JournalError, XbusError
from xbus.ids import Ids

PAUSE_SECONDS = 0.02

STEPS = 1_000
"""The steps of progress for a position of the log: one envelope may have many gigabytes."""

P = ParamSpec("P")
T = TypeVar("T")

Copy = Callable[[Sequence[FilePlan], Callable[[int], None]], Sequence[FileWritten | CopyFailed]]
"""Makes files, each as ``copying.copy_file`` does; the second argument gets the bytes of items as they are written."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run.

    Args:
        envelopes: how many it archived.
        items: how many they hold.
        files: how many it wrote, of ``file_bytes`` together.
        removed_bytes: of segments, of earlier broken off runs too.
    """

    envelopes: int = 0
    items: int = 0
    files: int = 0
    file_bytes: int = 0
    removed_bytes: int = 0

    def __add__(self, other: "Report") -> "Report":
        return Report(
            self.envelopes + other.envelopes,
            self.items + other.items,
            self.files + other.files,
            self.file_bytes + other.file_bytes,
            self.removed_bytes + other.removed_bytes,
        )


class FilePlanner:
    """Says what goes into which file.

    Args:
        place: where the files go, a folder or a URI.
        ids: names them.
    """

    def __init__(self, place: str, ids: Ids) -> None:
        self._place = place
        self._ids = ids

    def plan(self, events: tuple[PlannedEvent, ...]) -> FilePlan:
        """Plan the file of some events of one type and day."""
        file_id = self._ids.new()
        first = events[0]
        folder = f"event_type={quote(first.type_name, safe='')}/day={first.sealed_at.date().isoformat()}"
        name = f"{first.position}-{events[-1].position}-{file_id}.parquet"
        return FilePlan(file_id, storage.below(self._place, f"{folder}/{name}"), events)


class Archiver:
    """Moves items of settled envelopes into files.

    Args:
        run: the run of a journal that this is.
        files: says where the files go.
        copy: makes the files.
        clock: dates the run.
        wanted: the amounts of one round.
        on_step: called before each step with a description of it.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        run: ArchiveRun,
        files: FilePlanner,
        copy: Copy,
        clock: Clock,
        *,
        wanted: Round | None = None,
        on_step: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._files = files
        self._copy = copy
        self._clock = clock
        self._wanted = wanted or Round()
        self._on_step = on_step
        self._pause = pause

    def archive(self, scan: Scan, tell: Callable[[int], None] = lambda steps: None) -> Report:
        """Archive all that is old enough and settled.

        Args:
            scan: says what is old enough.
            tell: gets the steps that were done since the last time, ``STEPS`` for each position of the log.

        Raises:
            JournalError: a copy is not what it should be, or the database does not do it; what was archived before
                stays so, and all else is in the journal as it was.
            OSError: a file can't be removed.
        """
        while self._step("retire", archive_records.retire_restored, scan.rules.moments[0], self._clock.now()):
            # Again: one may go as soon as what repeats it has gone.
            continue
        total = Report(removed_bytes=self._remove())
        while True:
            # Again from the start: an envelope may go as soon as what repeats it has gone.
            found = self._pass(scan, tell)
            if not found.envelopes:
                return total + found
            total += found

    def _pass(self, scan: Scan, tell: Callable[[int], None]) -> Report:
        total = Report()
        after = 0
        while True:
            with reading(self._run.url) as connection:
                events = archive_plans.read_archivable(connection, after, scan, self._wanted)
            if not events:
                return total
            shares = _Shares(STEPS * (events[-1].position - after), sum(event.data_bytes for event in events), tell)
            total += self._round(events, shares)
            shares.end()
            after = events[-1].position

    def _round(self, events: Sequence[PlannedEvent], shares: "_Shares") -> Report:
        plans = [self._files.plan(of_file) for of_file in archive_plans.cut_files(events, self._wanted.file_bytes)]
        self._step("note", archive_plans.note_files, self._run.run_id, plans)
        try:
            written = self._written(plans, shares)
            recorded = self._step("record", archive_records.record_files, plans, written, self._clock.now())
        except BaseException:
            self._give_up(plans)
            raise
        self._on_step("discard")
        spoiled = set(recorded.spoiled)
        self._run.discard([Leftover(plan.file_id, plan.location) for plan in plans if plan.file_id in spoiled])
        kept = [file.size for file in written if file.file_id not in spoiled]
        return Report(recorded.envelopes, recorded.items, len(kept), sum(kept), self._remove())

    def _written(self, plans: Sequence[FilePlan], shares: "_Shares") -> list[FileWritten]:
        self._on_step("copy")
        written = []
        for answer in self._copy(plans, shares.wrote):
            if isinstance(answer, CopyFailed):
                raise JournalError(answer.cause, answer.next_step, code=answer.code)
            written.append(answer)
        return written

    def _give_up(self, plans: Sequence[FilePlan]) -> None:
        try:
            self._run.discard([Leftover(plan.file_id, plan.location) for plan in plans])
        except (OSError, XbusError):
            # They stay noted: the next run removes them.
            return

    def _remove(self) -> int:
        """Remove segments that don't count any more, in small steps between which others go on; how many bytes."""
        total = 0
        while True:
            began = self._clock.monotonic()
            done = self._step("remove", archive_records.remove_archived, self._clock.now())
            total += done.data_bytes
            if done.after is None:
                return total
            self._pause(max(PAUSE_SECONDS, self._clock.monotonic() - began))

    def _step(
        self, name: str, work: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._on_step(name)
        return self._run.step(work, *args, **kwargs)


class _Shares:
    """Tells the steps of a round as the bytes of its items are written.

    Args:
        steps: of the round.
        data_bytes: of its items, about.
        tell: gets the steps that were done since the last time.
    """

    def __init__(self, steps: int, data_bytes: int, tell: Callable[[int], None]) -> None:
        self._steps = steps
        self._bytes = max(1, data_bytes)
        self._tell = tell
        self._written = 0
        self._told = 0

    def wrote(self, data_bytes: int) -> None:
        """Take bytes that were written."""
        self._written += data_bytes
        self._tell_up_to(self._steps * min(self._written, self._bytes) // self._bytes)

    def end(self) -> None:
        """Take that the round is done."""
        self._tell_up_to(self._steps)

    def _tell_up_to(self, steps: int) -> None:
        if steps > self._told:
            self._tell(steps - self._told)
            self._told = steps
