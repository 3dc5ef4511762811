"""A Spark worker as a program on a real bus: an emitter before it, a consumer behind it."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.operating import run_xbus
from tests.support.processes import Process
from tests.support.spark import SECONDS
from tests.support.waiting import answered, eventually
from xbus.emitter import Emitter
from xbus.recipient import Consumer, Envelope, Event, Item

GRAPH = {"orders": {"spark": ["store"], "store": []}}
SCHEMA = "id INT, code STRING"

RULES = """
import os, random, time
from pyspark.sql import functions as sf


def double(items, context):
    return items.where("id % 2 = 0").withColumn("twice", sf.col("id") * 2)


def slow(items, context):
    def wait(number):
        while not os.path.exists({gate!r}):
            open({gate!r} + "." + str(os.getpid()), "w").close()
            time.sleep(0.05)
        return number
    return items.withColumn("id", sf.udf(wait, "int", useArrow=False)("id"))


def raising(items, context):
    raise KeyError("no such airline")


def stuck(items, context):
    open({gate!r} + "." + str(context.event_id) + "." + str(os.getpid()), "w").close()
    time.sleep(3600)


def grown(items, context):
    def text(number):
        return random.Random(number).randbytes({grown_bytes} // 2).hex()
    return items.withColumn("code", sf.udf(text, useArrow=False)("id"))


def moved(items, context):
    return grown(items, context).repartition(4, "id")
"""
"""Transforms: ``slow`` waits for a gate, ``stuck`` for ever; ``grown`` makes much of little, ``moved`` has Spark move
that by way of its disk."""

GROWN_BYTES = 100_000


def grown(number: int) -> dict[str, Any]:
    """What the transform ``grown`` makes of an item."""
    return {"id": number, "code": random.Random(number).randbytes(GROWN_BYTES // 2).hex()}


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


async def registered(process: Process, times: int = 1) -> None:
    there = lambda: process.text.count("recipient_registered") >= times or not process.runs  # noqa: E731
    await eventually(there, "the worker is registered", SECONDS)
    assert process.runs, process.text


def at_work(gate: Path) -> list[int]:
    """The processes that have worked in the transforms ``slow`` and ``stuck``; of ``stuck`` once for each event."""
    return [int(path.name.rpartition(".")[2]) for path in gate.parent.glob(f"{gate.name}.*")]


def order(number: int, code: str = "") -> bytes:
    return json.dumps({"id": number, "code": code or f"c{number}"}).encode()


async def emit(daemon: Daemon, items: list[bytes]) -> str:
    def in_thread() -> str:
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            return emitter.put("orders", items).envelope_id

    return await asyncio.to_thread(in_thread)


async def told(daemon: Daemon, text: str, *arguments: str) -> None:
    """Wait until a command of ``xbus`` prints a text; before that it may find nothing to print."""

    async def tells() -> bool:
        return text in (await run_xbus(daemon, *arguments)).stdout

    await answered(tells, f"xbus {' '.join(arguments)} tells of {text}", SECONDS)
