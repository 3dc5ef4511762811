"""Builds the broker from its configuration, starts it and stops it, each in order; no logic of its own."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

from xbus import tracing
from xbus.broker.configuration import Configuration
from xbus.broker.crash_on_error import CrashOnCallbackError
from xbus.broker.encryption import Encryption
from xbus.broker.housekeeping.descriptors import Descriptors
from xbus.broker.housekeeping.losses import LossFiles, tell_losses
from xbus.broker.housekeeping.outages import tell_outages
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.objects.stowing import ObjectPlace
from xbus.broker.journal.operations import losses
from xbus.broker.leading import Lease
from xbus.broker.metrics.families import Family
from xbus.broker.metrics.of_process import ProcessReadiness, alert_families, write_families
from xbus.broker.metrics.service import pages
from xbus.broker.open_files import tell_open_files
from xbus.broker.parts import PARTS, BrokerPart, Shared
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.ending import NOT_NOW, STOPPED, exit_code
from xbus.errors import ConfigurationError, Fenced, TakenOver, WentBack, XbusError
from xbus.extras import needing
from xbus.ids import Ids
from xbus.passwords import Passwords
from xbus.rpc.context import new_context
from xbus.supervision.alert_channels import alert_channels
from xbus.supervision.alerts import Alerts
from xbus.supervision.health import Health
from xbus.system import collector, service_manager
from xbus.system.cores import shared_core
from xbus.system.descriptors import raise_limit
from xbus.system.service_manager import stop_signals, tell_ready

log = logging.getLogger(__name__)

BROKEN = 3
"""The exit code when a task inside the broker died: nothing goes on half alive."""


def run(
    config: Config,
    folder: Path,
    *,
    only: Literal["front", "back"] | None,
    ready_file: Path | None,
    lease: Lease | None = None,
) -> int:
    """Run the broker until SIGTERM or SIGINT.

    Args:
        config: all of it.
        folder: of the configuration: a broker leaves there what it can't write into a journal that went back.
        only: one part, where the other runs in another process; None for both.
        ready_file: written as JSON when calls are taken: pid, and the addresses of the parts that run here.
        lease: of a broker that stood by, and leads by now.

    Returns:
        The exit code.

    Raises:
        XbusError: it can't start.
        Fenced: it may write no more to its journal.
    """
    _check_apart(config, only)
    raise_limit()
    name = only or "broker"
    if lease is None and only is None:
        lease = Lease.of(config)
    last_resort = _LastResort(config.daemon.stop_timeout, starts_anew=lease is not None and lease.stands_by)
    losses_files = losses.files_of(folder)
    try:
        with _observed(config, name):
            names = list(PARTS) if only is None else [only]
            asyncio.run(_serve(config, names, ready_file, last_resort, losses_files, lease))
    except BaseExceptionGroup as group:
        fenced = _fenced(group)
        if fenced is None:
            return _exit_code(group)
        if isinstance(fenced, WentBack):
            losses.note(config.database.url, losses_files, losses.Loss.of(fenced, name, SystemClock().now()))
        raise fenced from None
    finally:
        last_resort.cancel()
    return STOPPED


@contextmanager
def _observed(config: Config, process: str) -> Iterator[None]:
    """Export spans and report exceptions, if the configuration wants it.

    Raises:
        MissingExtra: the library is not installed.
        ConfigurationError: the address makes no sense.
    """
    with ExitStack() as stack:
        if config.sentry.dsn:
            with needing("[sentry] dsn", "sentry"):
                from xbus import sentry  # here, as few installations have its library
            stack.enter_context(sentry.reporting(config.sentry.dsn, process))
        if config.tracing.endpoint:
            with needing("[tracing] endpoint", "otel"):
                from xbus.broker.otlp import OtlpExport
            export = OtlpExport(config.tracing.endpoint, process)
            stack.callback(export.close)
            stack.enter_context(tracing.exporting(tracing.Tracer(SystemClock(), export)))
        yield


class _LastResort:
    """Ends the process if a part of it has died and an orderly end takes too long.

    A thread may wait for a database that does not answer any more.

    Args:
        seconds: how long they may take.
        starts_anew: whether the broker is to be started again, to stand by, where another one leads.
    """

    def __init__(self, seconds: float, *, starts_anew: bool) -> None:
        self._exit_code = BROKEN
        self._starts_anew = starts_anew
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    @contextmanager
    def at_death(self) -> Iterator[None]:
        """Cancel the block as soon as a task beside it dies, and measure the time from then on."""
        try:
            yield
        except asyncio.CancelledError:
            self.begin()
            raise

    def begin(self) -> None:
        """Measure the time from now on, where that has not begun."""
        if not self._timer.is_alive():
            self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def cover(self, error: XbusError) -> None:
        """Use the exit code of this error."""
        self._exit_code = NOT_NOW if self._starts_anew and isinstance(error, TakenOver) else exit_code(error)

    def _end(self) -> None:
        log.critical("what is left of the broker does not end: it is broken off", extra={"action": "broken_off"})
        logging.shutdown()
        os._exit(self._exit_code)


class _Stopped(Exception):
    """Ends all tasks when somebody stops the broker."""


class _NotStarted(Exception):
    """Carries, as its cause, why the broker could not start."""


def _exit_code(group: BaseExceptionGroup[BaseException]) -> int:
    for end in _leaves(group):
        if isinstance(end, _NotStarted) and end.__cause__ is not None:
            raise end.__cause__
    return BROKEN if _deaths(group) else STOPPED


def _fenced(group: BaseExceptionGroup[BaseException]) -> Fenced | None:
    """Find why the broker may write no more; None if it died of something else."""
    causes = [end.__cause__ if isinstance(end, _NotStarted) else end for end in _leaves(group)]
    found = [end for end in causes if isinstance(end, Fenced)]
    # If the writer and a reader noticed a journal that went back, the writer knows the number of commits.
    return max(found, key=lambda end: end.commits if isinstance(end, WentBack) else 0, default=None)


def _deaths(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [end for end in _leaves(group) if not isinstance(end, _Stopped | _NotStarted)]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _check_apart(config: Config, only: str | None) -> None:
    """Check that two processes have a database and a bell that both reach."""
    if only is None:
        return
    if config.database.url.startswith("sqlite"):
        raise ConfigurationError(
            "front and back can't run apart on SQLite, which lets one process write",
            "use PostgreSQL for sqlalchemy.dburi, or leave --only out",
        )
    if config.zmq.b2fsocket.startswith("inproc:"):
        raise ConfigurationError(
            "[zmq] b2fsocket is an address inside one process, and front and back run apart",
            "give it an ipc:// or tcp:// address",
        )


async def _serve(
    config: Config,
    names: Sequence[str],
    ready_file: Path | None,
    last_resort: _LastResort,
    losses_files: Sequence[Path],
    lease: Lease | None,
) -> None:
    tell_open_files(config.database.url, config.journal.objects)
    mishaps = CrashOnCallbackError()
    clock = SystemClock() if lease is None else lease.clock
    context = new_context()
    writer = "broker" if len(names) > 1 else names[0]
    health = Health(writer, clock)
    journal = _journal(config, writer)
    loss_files = LossFiles(journal, losses_files)
    configuration = Configuration(journal, health)
    tasks = asyncio.TaskGroup()
    encryption = Encryption(config, context, clock)
    shared = Shared(
        *(config, context, journal, configuration, clock, Ids(clock), Passwords(), health),
        *(tasks, encryption, "back" in names),
    )
    parts = [PARTS[name](shared) for name in names]
    alerts = Alerts(health, alert_channels(config.alerts), clock)
    readiness = ProcessReadiness(health, lambda: () if lease is None else lease.brokers)
    if lease is not None:
        journal.leads_until = lambda: lease.until
    try:
        # Ports first: a second broker of the same configuration must fail here, before it takes over the journal.
        addresses = {name: address for part in parts for name, address in part.bind().items()}
        figures = pages(config.metrics.listen, health, readiness, lambda: _figures(journal, alerts), parts)
        async with figures as served, _leading(lease, addresses, last_resort, parts), journal, _told(), tasks:
            with last_resort.at_death(), stop_signals() as stop:
                tasks.create_task(mishaps.watch(), name="callbacks")
                tasks.create_task(_unfenced(journal, last_resort), name="journal")
                _begin_background(tasks, journal, health, loss_files, alerts)
                await _start(parts, configuration, tasks, loss_files.take_over)
                encryption.start()
                _be_quick(config, journal, tasks)
                readiness.started()
                tell_ready({**addresses, **served}, ready_file)
                if lease is not None:
                    lease.ends_by(stop.set)
                await stop.wait()
            readiness.stopping()
            await _stop(parts, config.daemon.stop_timeout)
            raise _Stopped
    finally:
        # One that could not start tries again in this process: its own ports must not be in its way.
        for part in parts:
            part.close()
        encryption.close()
        context.destroy(linger=0)


@asynccontextmanager
async def _leading(
    lease: Lease | None, addresses: Mapping[str, str], last_resort: _LastResort, parts: Sequence[BrokerPart]
) -> AsyncIterator[None]:
    """Lead within the block, and have the next broker lead when all is written; nothing without a lease."""
    if lease is None:
        yield
        return
    end: BaseException | None = None
    try:
        await lease.take(addresses, at_once=True)
        async with asyncio.TaskGroup() as beside:
            keeping = beside.create_task(_keep(lease, last_resort, parts), name="lease")
            yield
            keeping.cancel()
    except BaseExceptionGroup as group:
        if isinstance(_fenced(group), WentBack):
            lease.leave()  # the loss is noted meanwhile, before another broker reads the journal
        end, *others = group.exceptions
        if others:
            raise
    finally:
        await lease.give_back()
        lease.close()
    if end is not None:
        raise end  # as it is without a lease


async def _keep(lease: Lease, last_resort: _LastResort, parts: Sequence[BrokerPart]) -> None:
    try:
        await lease.keep()
    except XbusError as error:
        last_resort.cover(error)
        last_resort.begin()
        # Its programs turn to the next one now: this one may still wait for its database, or for work to end.
        for part in parts:
            part.close()
        raise


def _begin_background(
    tasks: asyncio.TaskGroup, journal: Journal, health: Health, loss_files: LossFiles, alerts: Alerts
) -> None:
    tasks.create_task(tell_outages(journal, health), name="outages")
    tasks.create_task(tell_losses(journal, health, loss_files), name="losses")
    tasks.create_task(Descriptors(health).watch(), name="descriptors")
    tasks.create_task(alerts.watch(), name="alerts")
    # One that stood by is watched already.
    if (seconds := service_manager.watchdog_seconds()) is not None:
        tasks.create_task(service_manager.keep_alive(seconds), name="watchdog")


def _be_quick(config: Config, journal: Journal, tasks: asyncio.TaskGroup) -> None:
    """Spare the collector and the caches of the cores needless work, once all has started."""
    collector.spare_what_is_here()
    core = shared_core(journal.writer_thread, lambda: journal.written) if config.daemon.one_core else None
    if core is not None:
        tasks.create_task(core.watch(), name="core")


async def _unfenced(journal: Journal, last_resort: _LastResort) -> None:
    """Wait for the end of the journal, and note the exit code of a broker that may write no more."""
    try:
        await journal.ended()
    except Fenced as error:
        last_resort.cover(error)
        raise


def _journal(config: Config, writer: str) -> Journal:
    settings = config.journal
    return Journal.open(
        config.database.url,
        writer,
        max_segment_bytes=settings.max_segment_bytes,
        max_pending_bytes=settings.max_pending_bytes,
        answer_seconds=settings.answer_timeout,
        objects=ObjectPlace(settings.objects, settings.large_bytes) if settings.objects else None,
    )


def _figures(journal: Journal, alerts: Alerts) -> Iterator[Family]:
    yield from write_families(journal)
    yield from alert_families(alerts)


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """Log at once which parts of the broker died, because the end of the journal may take time."""
    try:
        yield
    except BaseExceptionGroup as group:
        for death in _deaths(group):
            log.critical("a part of the broker died: %r", death, exc_info=death, extra={"action": "died"})
        raise


async def _start(
    parts: Sequence[BrokerPart],
    configuration: Configuration,
    tasks: asyncio.TaskGroup,
    take_over_losses: Callable[[], Awaitable[None]],
) -> None:
    try:
        # Before anybody is served: who reads an open envelope earlier takes it for whole, as long as it is in memory.
        await take_over_losses()
        await configuration.refresh()
        for part in parts:
            await part.recover()
        for part in parts:
            await part.start()
    except XbusError as error:
        raise _NotStarted from error
    tasks.create_task(configuration.watch(), name="configuration")


async def _stop(parts: Sequence[BrokerPart], seconds: float) -> None:
    log.info("stopping", extra={"action": "stopping"})
    service_manager.notify(service_manager.STOPPING)
    for part in reversed(parts):
        await part.stop(seconds)
    log.info("stopped", extra={"action": "stopped"})
