"""Keeps a worker on the bus while Spark is available; otherwise its role is absent."""

import asyncio
import logging
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from spark_worker.items.errors import ClusterUnreachable
from spark_worker.items.formats import make_format
from spark_worker.spark.master import is_local
from spark_worker.spark.session import (
    close_session,
    executors,
    is_alive,
    master_of,
    may_have_none,
    open_session,
)
from spark_worker.transform.pipeline import Pipeline
from spark_worker.transform.transforms import SqlTransform, Transform
from spark_worker.worker.job import ItemPlace, SparkJobs
from spark_worker.worker.running import Runner
from spark_worker.worker.worker import SparkWorker
from xbus.backoff import Backoff
from xbus.config import Config
from xbus.recipient import serve

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

LOOK_SECONDS = 5.0
FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of the command line; see ``command.main``."""

    config: Config
    back_url: str
    login: str
    password: str = field(repr=False)
    transform: Transform
    items_format: str
    schema: str
    order_by: str
    keep_corrupt: bool
    options: Mapping[str, str]
    master: str
    settings: Mapping[str, str]
    min_items: int
    patience: float
    bind: str
    advertise: str


async def serve_for_ever(options: WorkerOptions) -> None:
    """Serve the role until SIGTERM or SIGINT; whenever the cluster goes away, wait until it is back.

    A second signal ends the program on the spot.

    Raises:
        ConfigurationError: no Java is new enough, or the schema or the SQL is invalid.
        ClusterUnreachable: Spark does not start on this machine, which is to be its whole cluster.
        Refused: login or password are wrong, or a newer recipient has taken the role.
    """
    stop = asyncio.Event()
    _obey_signals(stop)
    backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
    was_open = False
    while not stop.is_set():
        try:
            session = await asyncio.to_thread(_open, options)
        except ClusterUnreachable as error:
            if is_local(options.master) and not was_open:
                raise  # no cluster is away that might come back
            delay = backoff.next()
            log.warning("%s; trying again", error, extra={"action": "cluster_unreachable", "seconds": delay})
            await _wait(stop, delay)
            continue
        backoff.reset()
        was_open = True
        log.info("Spark is ready", extra={"action": "session_opened", "master": options.master})
        try:
            await _serve(options, session, stop)
        finally:
            await asyncio.to_thread(close_session, session)


def _obey_signals(stop: asyncio.Event) -> None:
    """Stop in order at the first signal."""
    loop = asyncio.get_running_loop()

    def obey() -> None:
        log.info("told to stop; a second signal does not wait", extra={"action": "told_to_stop"})
        stop.set()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, obey)


def _open(options: WorkerOptions) -> SparkSession:
    return open_session(options.master, options.settings, f"xbus {options.login}")


async def _serve(options: WorkerOptions, session: SparkSession, stop: asyncio.Event) -> None:
    """Serve the role until somebody stops it, or the cluster is gone."""
    leave = asyncio.Event()
    items_format = await asyncio.to_thread(make_format, options.items_format, options.schema)
    if isinstance(options.transform, SqlTransform):
        await asyncio.to_thread(options.transform.check, session)
    pipeline = Pipeline(items_format, options.transform, options.order_by, options.keep_corrupt)
    runner = Runner(session, options.patience)
    with tempfile.TemporaryDirectory(prefix="xbus-spark-") as name:
        place = ItemPlace(options.config.database.url, Path(name), options.config.front.max_item_bytes)
        jobs = SparkJobs(session, pipeline, place, options.options)
        worker = SparkWorker(jobs, runner, place.folder, options.min_items, on_gone=leave.set)
        watches = [
            asyncio.create_task(_watch(session, options.patience, leave), name="watch of the cluster"),
            asyncio.create_task(_pass_on(stop, leave), name="pass on the end"),
        ]
        try:
            await serve(
                *(worker, options.back_url, options.login, options.password, leave),
                bind=options.bind,
                advertise=options.advertise,
            )
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            runner.close()


async def _watch(session: SparkSession, patience: float, leave: asyncio.Event) -> None:
    """Let the worker leave the bus when nothing can run jobs: its role is shown as absent then."""
    away = 0.0
    while away <= patience:
        await asyncio.sleep(LOOK_SECONDS)
        away = 0.0 if await asyncio.to_thread(_is_there, session) else away + LOOK_SECONDS
        if not await asyncio.to_thread(is_alive, session):
            break
    log.error("the Spark cluster is gone: leaving the bus until it is back", extra={"action": "cluster_gone"})
    leave.set()


def _is_there(session: SparkSession) -> bool:
    try:
        return is_local(master_of(session)) or may_have_none(session) or executors(session) > 0
    except Exception:  # py4j's many: the JVM is gone
        return False


async def _pass_on(stop: asyncio.Event, leave: asyncio.Event) -> None:
    await stop.wait()
    leave.set()


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass  # nobody stopped it meanwhile
