"""``python -m benchmarks.why_answers [SQLALCHEMY_URL]``: how long ``xbus why`` takes, over a long journal.

It builds a journal of 10⁷ envelopes, a million failures and 100,000 parked envelopes, in a file of its own unless a
database is named; one that has envelopes is taken as it is. Beside a running broker it asks one question after the
other, and writes a JSON line for each: wall and processor time in this process, and of the whole command.
``ENVELOPES`` in the environment makes the journal smaller. The limit to be kept is 300 ms for an answer.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from tests.support.daemon import Daemon
from tests.support.long_journal import KEY, fill
from tests.support.processes import script
from xbus import model
from xbus.admin.why.findings import Finding
from xbus.admin.why.inquiry import BrokerAccess, Inquiry, RunningBroker
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import ConnectionPool, reading
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations.why.envelopes import AskedPart
from xbus.clock import SystemClock

ENVELOPES = 10_000_000
ROUNDS, COMMANDS = 7, 3
_AT_STORE = AskedPart("store_1")

Question = tuple[tuple[str, ...], Callable[[Inquiry], list[Finding]]]


def questions(url: str) -> Mapping[str, Question]:
    """Choose questions about both ends and the middle of the log, and about what is not there."""
    with reading(url) as connection:
        head = read_head(connection)
        first, middle, last = (_at(connection, position) for position in (1, head // 2 // 100 * 100, head))
        event = connection.execute(sa.select(model.event.c.id).where(model.event.c.envelope_id == middle)).scalar_one()
    missing = uuid.UUID(int=0)
    return {
        "the first envelope": ((first.hex,), lambda it: it.by_id(first.hex)),
        "a parked envelope in the middle": ((middle.hex,), lambda it: it.by_id(middle.hex)),
        "the last envelope": ((last.hex,), lambda it: it.by_id(last.hex)),
        "its delivery to a role": ((last.hex, "--role", "store_1"), lambda it: it.by_id(last.hex, _AT_STORE)),
        "the first digits of an id": ((middle.hex[:9],), lambda it: it.by_id(middle.hex[:9])),
        "an event": ((event.hex,), lambda it: it.by_id(event.hex)),
        "an unknown id": ((missing.hex,), lambda it: it.by_id(missing.hex)),
        "a key": (("--emitter", "north", "--key", KEY), lambda it: it.by_key("north", KEY)),
        "an unknown key": (("--emitter", "north", "--key", "order 2"), lambda it: it.by_key("north", "order 2")),
        "a role that lacks all": (("--role", "store_1"), lambda it: it.role("store_1")),
        "a role that lacks nothing": (("--role", "store_2"), lambda it: it.role("store_2")),
        "a worker": (("--role", "names_1"), lambda it: it.role("names_1")),
        "an emitter": (("--emitter", "north"), lambda it: it.emitter("north")),
        "an emitter that sent nothing": (("--emitter", "south"), lambda it: it.emitter("south")),
    }


def _at(connection: sa.Connection, position: int) -> uuid.UUID:
    envelope = model.envelope.c
    found: uuid.UUID = connection.execute(sa.select(envelope.id).where(envelope.position == position)).scalar_one()
    return found


def measure(url: str, folder: Path) -> None:
    """Ask each question of a filled journal, beside a running broker."""
    broker = Daemon(folder, url).start()
    try:
        for what, (arguments, ask) in questions(url).items():
            command = [script("xbus"), "why", *arguments, "-c", str(broker.config)]
            answer = partial(_answer, url, RunningBroker(broker.config), ask)
            line: dict[str, object] = {"what": what, "code": answer()[0].code.value}
            line |= _told("answer", answer, ROUNDS)
            line |= _told("command", partial(subprocess.run, command, check=True, capture_output=True), COMMANDS)
            print(json.dumps(line), flush=True)
    finally:
        broker.stop()


def _answer(url: str, broker: BrokerAccess, ask: Callable[[Inquiry], list[Finding]]) -> list[Finding]:
    """Answer with new connections, as the command does."""
    with closing(ConnectionPool(url)) as journal:
        return ask(Inquiry(journal.read, broker, SystemClock()))


def _told(name: str, work: Callable[[], object], rounds: int) -> Mapping[str, float]:
    """Measure some rounds: the longest wall time, and the median of both, in ms."""
    walls, processor = [], []
    for _ in range(rounds):
        began, used = time.perf_counter(), _processor_seconds()
        work()
        walls.append(1000 * (time.perf_counter() - began))
        processor.append(1000 * (_processor_seconds() - used))
    figures = {"median": sorted(walls)[rounds // 2], "longest": max(walls), "processor": sorted(processor)[rounds // 2]}
    return {f"{name}_{figure}_ms": round(value, 1) for figure, value in figures.items()}


def _processor_seconds() -> float:
    """Read the seconds of this process and of the commands that it has run."""
    kinds = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in kinds)


def main() -> None:
    """Build and measure."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/xbus.db"
        schema.upgrade(url)
        with reading(url) as connection:
            is_empty = read_head(connection) == 0
        if is_empty:
            fill(url, int(os.environ.get("ENVELOPES", ENVELOPES)))
        measure(url, Path(folder))


if __name__ == "__main__":
    main()
