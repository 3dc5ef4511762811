"""The Spark worker as a program on a real bus: an emitter before it, a consumer behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.processes import Process, script
from tests.support.spark import environment as spark_environment
from tests.support.waiting import eventually
from xbus.emitter import Emitter
from xbus.recipient import Consumer, Envelope, Event, Item, Recipient, serve

GRAPH = {"orders": {"spark": ["store"], "store": []}}
SCHEMA = "id INT, code STRING"
SECONDS = 120.0

RULES = """
import os, time
from pyspark.sql import functions as sf


def double(items, context):
    return items.where("id % 2 = 0").withColumn("twice", sf.col("id") * 2)


def slow(items, context):
    def wait(number):
        if not os.path.exists({gate!r}):
            time.sleep(0.05)
        return number
    return items.withColumn("id", sf.udf(wait, "int", useArrow=False)("id"))


def raising(items, context):
    raise KeyError("no such airline")
"""

StartWorker: TypeAlias = Callable[..., Process]


class Keeps(Consumer):
    """Keeps what was committed, by envelope, in the order in which it came."""

    def __init__(self) -> None:
        self.committed: dict[str, list[tuple[list[int], Any]]] = {}

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("items", [])

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["items"].append((item.indices, json.loads(item.data)))

    def commit(self, envelope: Envelope) -> None:
        assert envelope.id not in self.committed
        self.committed[envelope.id] = envelope.state["items"]


@asynccontextmanager
async def serving(daemon: Daemon, login: str, recipient: Recipient) -> AsyncIterator[None]:
    stop = asyncio.Event()
    options: Any = {"heartbeat_seconds": 0.2, "stop_timeout": 1}
    task = asyncio.create_task(serve(recipient, daemon.back, login, PASSWORD, stop, **options))
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(task)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which the transform ``slow`` waits."""
    return tmp_path / "gate"


@pytest.fixture
def start_worker(start_process: StartProcess, tmp_path: Path, gate: Path) -> StartWorker:
    """Starts a worker of role spark_1, and waits until it is registered."""
    (tmp_path / "rules.py").write_text(RULES.format(gate=str(gate)))

    def start(daemon: Daemon, transform: str = "rules:double", *more: str, login: str = "spark_1") -> Process:
        return start_process(
            *(script("xbus-spark-worker"), "-c", daemon.config, "--login", login, "--back", daemon.back),
            *("--transform", transform, "--schema", SCHEMA, "--master", "local[2]", "--min-items", "50"),
            *("--conf", "spark.driver.memory=512m", *more),
            cwd=tmp_path,
            env={**spark_environment(), "XBUS_PASSWORD": PASSWORD},
        )

    return start


async def registered(process: Process, times: int = 1) -> None:
    there = lambda: process.text.count("recipient_registered") >= times or not process.runs  # noqa: E731
    await eventually(there, "the worker is registered", SECONDS)
    assert process.runs, process.text


def order(number: int) -> bytes:
    return json.dumps({"id": number, "code": f"c{number}"}).encode()


async def emit(daemon: Daemon, items: list[bytes]) -> str:
    def in_thread() -> str:
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            return emitter.put("orders", items).envelope_id

    return await asyncio.to_thread(in_thread)


def doubled(number: int) -> list[tuple[list[int], Any]]:
    return [([n], {"id": n, "code": f"c{n}", "twice": 2 * n}) for n in range(0, number, 2)]


async def test_large_and_small_events_come_to_the_same(
    database_url: str, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    worker = start_worker(daemon)
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        large = await emit(daemon, [order(number) for number in range(400)])
        small = await emit(daemon, [order(number) for number in range(20)])
        await eventually(lambda: {large, small} <= set(store.committed), "both were delivered", SECONDS)

    assert store.committed[large] == doubled(400)
    assert store.committed[small] == doubled(20)
    assert worker.stop(SECONDS) == 0
