"""``xbus archive`` and ``xbus restore``."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from types import FrameType
from typing import Any, NoReturn
from uuid import UUID

import click

from spark_worker.archive import storage
from spark_worker.archive.archiver import STEPS, Archiver, Copy, FilePlanner, Report
from spark_worker.archive.copying import CopyFailed, copy_file
from spark_worker.archive.restoring import restore as put_back
from spark_worker.archive.run import ArchiveRun, begun
from spark_worker.spark.command_options import CONF, checked_master
from xbus import extras
from xbus.admin.arguments import MOMENT
from xbus.admin.output import Output, one_json
from xbus.admin.program import EnvelopeId
from xbus.admin.progress import shown_on_terminal
from xbus.admin.signatures import CommandBus, argument, command, option, shown
from xbus.broker.journal.archive.plans import FilePlan
from xbus.broker.journal.archive.records import FileWritten
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.envelopes.details import resolve_envelope
from xbus.broker.journal.retention.rules import Scan, read_keepings, sealed_before, way_to_archive
from xbus.clock import Clock, SystemClock
from xbus.errors import Failed, Refused
from xbus.ids import Ids


@command()
def archive(
    bus: CommandBus,
    before: datetime | None = option(
        "Archive envelopes sealed before: 90d (ago), a date or a time.", MOMENT, metavar="AGE"
    ),
    due: bool = option("Archive what is older than archive_after of its event type."),
    place: str | None = option(
        "A folder, or a URI such as s3://bucket/archive. By default [journal] archive of the configuration.",
        None,
        "--to",
        metavar="PLACE",
    ),
    master: str | None = option(
        "Have Spark make the files, at this master, such as spark://host:7077. By default this command makes them.",
        callback=checked_master,
        metavar="URL",
    ),
    conf: dict[str, str] = CONF,
    output: Output = shown(wide=False),
) -> None:
    """Move the items of settled envelopes out of the journal, into Parquet files by event type and day.

    xbus envelope show still shows an archived envelope, and Spark reads it as before; xbus restore restores it. Nothing
    is lost when this command ends early: run it again.
    """
    if conf and master is None:
        raise click.UsageError("--conf is for Spark: give --master, too")
    if due is (before is not None):
        raise click.UsageError("say which events: either --before or --due")
    url = bus.url
    settings = bus.config.journal
    place = storage.absolute(place or settings.archive or _no_place())
    storage.reach(place)
    clock, ids = bus.clock, Ids()
    scan = _due(url, clock) if before is None else sealed_before(before)
    if before is not None:
        _warn_of_retention(settings.keep_settled_days, before)
    if scan is None:
        click.echo(
            one_json(asdict(Report())) if output.as_json else "Nothing to archive: no event type sets archive_after."
        )
        return
    with (
        begun(url, clock, ids) as run,
        _copying(url, master, conf) as copy,
        shown_on_terminal(lambda: STEPS * _positions(url), "Archiving") as tell,
    ):
        try:
            report = Archiver(run, FilePlanner(place, ids), copy, clock).archive(scan, tell)
        except OSError as error:
            raise _storage_failed(error) from error
    click.echo(one_json(asdict(report)) if output.as_json else _told(report))


def _positions(url: str) -> int:
    with reading(url) as connection:
        return read_head(connection)


def _due(url: str, clock: Clock) -> Scan | None:
    with reading(url) as connection:
        return way_to_archive(read_keepings(connection), clock.now())


def _no_place() -> NoReturn:
    raise click.UsageError("say where the archive is: --to, or [journal] archive in the configuration")


@contextmanager
def _copying(url: str, master: str | None, conf: dict[str, str]) -> Iterator[Copy]:
    """Have files made by Spark if a master is named, else by this process.

    Raises:
        MissingExtra: Spark is not installed.
        ConfigurationError: no Java is new enough for it.
        ClusterUnreachable: the cluster does not answer.
    """
    if master is None:
        yield in_threads(url)
        return
    extras.require("xbus archive --master", "spark", extras.SPARK)
    from spark_worker.spark.session import close_session, open_session

    session = open_session(master, conf, "xbus archive")
    try:
        yield on_spark(session, url)
    finally:
        close_session(session)


def in_threads(url: str) -> Copy:
    """Have files made by threads of this process, one for each processor.

    Args:
        url: the journal's address.
    """
    one_tells = Lock()

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> list[FileWritten | CopyFailed]:
        def wrote_here(data_bytes: int) -> None:
            with one_tells:
                wrote(data_bytes)

        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            return list(pool.map(partial(copy_file, url, wrote=wrote_here), plans))
        finally:
            pool.shutdown(cancel_futures=True)

    return copy


def on_spark(session: Any, url: str) -> Copy:
    """Have files made by Spark's executors, one task each.

    Args:
        session: a ``SparkSession`` whose executors reach the journal and the archive.
        url: the journal's address.
    """

    def copy(plans: Sequence[FilePlan], wrote: Callable[[int], None]) -> list[FileWritten | CopyFailed]:
        # The executors tell nothing before their files are made.
        tasks = session.sparkContext.parallelize(plans, len(plans))
        made: list[FileWritten | CopyFailed] = tasks.map(partial(copy_file, url)).collect()
        return made

    return copy


@command()
def restore(
    bus: CommandBus, envelope_ids: tuple[str, ...] = argument(EnvelopeId(), metavar="ENVELOPE...", required=True)
) -> None:
    """Restore archived envelopes into the journal.

    The broker does so by itself when an emitter asks for a replay, and for roles and readers that begin in the past. A
    later xbus archive removes them again, once they have been back for as long as --before says. Of several envelopes,
    those that are in the journal already are left as they are.
    """
    url = bus.url
    clock = bus.clock
    with bus.reading() as connection:
        wanted = [resolve_envelope(connection, each) for each in envelope_ids]
    with _ended_in_order(), begun(url, clock, Ids()) as run:
        for envelope_id in wanted:
            try:
                _put_back(url, run, envelope_id, clock)
            except Refused as refusal:
                if refusal.code != "not_archived" or len(wanted) == 1:
                    raise
            except OSError as error:
                raise _storage_failed(error) from error


def _put_back(url: str, run: ArchiveRun, envelope_id: UUID, clock: Clock) -> None:
    found = put_back(url, run, envelope_id, clock)
    for origin in found[:-1]:
        click.echo(f"Envelope {origin}, which it repeats, is in the journal again.")
    click.echo(f"Envelope {envelope_id} is in the journal again.")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let the first SIGTERM or SIGINT end the block; later ones don't disturb its end.

    A service that stops sends SIGTERM to all that its broker started, and the broker sends it once more. A run that it
    killed at once would keep its place until the end of its lease, and nobody could restore.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _storage_failed(error: OSError) -> Failed:
    return Failed(f"the archive can't be reached ({error})", "check its storage, then repeat", code="archive_failed")


def _warn_of_retention(keep_days: float, before: datetime) -> None:
    if keep_days and before < SystemClock().now() - timedelta(days=keep_days):
        told = f"xbus: keep_settled_days = {keep_days:g} removes settled envelopes for good before they are that old"
        click.echo(f"{told}: set it to 0, or higher", err=True)


def _told(report: Report) -> str:
    if not report.envelopes:
        return (
            f"Nothing to archive; {report.removed_bytes:,} bytes were removed from the journal. What came after a role "
            "went away stays, and what is parked: see xbus recipient list, xbus parked list."
        )
    return (
        f"Archived {report.envelopes:,} envelopes with {report.items:,} items in {report.files:,} files of "
        f"{report.file_bytes:,} bytes; {report.removed_bytes:,} bytes were removed from the journal."
    )
