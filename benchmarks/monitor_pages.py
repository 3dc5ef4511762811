"""``python -m benchmarks.monitor_pages [SQLALCHEMY_URL]``: how long the monitor takes, over a large journal.

It builds a journal of 10⁶ envelopes, 10⁵ failures and 10⁴ parked envelopes, in a file of its own unless an empty
database is named, and writes a JSON line for a sample of the bus and for each page. ``ENVELOPES`` in the environment
makes the journal smaller. The limits to be kept are 50 ms for a sample, and 300 ms for a page.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.support.daemon import write_config
from tests.support.long_journal import fill
from tests.support.ports import free_port
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import ConnectionPool, writing
from xbus.broker.journal.people import add_person, add_token
from xbus.broker.journal.samples.attention import read_attention
from xbus.broker.journal.samples.sample import KEPT, floor
from xbus.broker.journal.samples.taking import LagReader, take
from xbus.clock import SystemClock
from xbus.config import load
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build
from xbus.rights import Right

ENVELOPES = 1_000_000
ROUNDS = 7

PATHS = (
    *("/", "/?range=1d", "/?range=5w", "/live/graph", "/live/plots?range=5w", "/live/decisions", "/figures"),
    *("/envelopes", "/parked", "/parked?role=store_1&code=refused", "/recipients", "/recipients/store_1"),
    *("/recipients/store_1?range=5w", "/live/role-plots?role=store_1", "/batches"),
    *(
        "/envelopes?emitter=north",
        "/envelopes?state=open",
        "/envelopes?type=notes",
        "/failures",
        "/failures?code=timed_out",
    ),
    *(
        "/failures?role=store_2",
        "/failures?state=corrected",
        "/readers",
        "/bots",
        "/types/notes",
        "/audit",
        "/clearing",
    ),
    *("/configuration", "/api/envelopes", "/api/failures", "/api/parked", "/api/roles", "/api/health"),
)


def fill_with_samples(url: str, envelopes: int) -> None:
    """Build the journal."""
    fill(url, envelopes)
    with writing(url) as connection:
        _sample(connection)


def _sample(connection: sa.Connection) -> None:
    """Add samples of five weeks."""
    now = SystemClock().now()
    parts = {"traffic": [[1, 1, 10, 100]], "roles": [[3, 7, 1.5, 0]], "delivered": [[3, 9, 90]]}
    figures = {"position": 1, "envelopes": 10, "events": 10, "items": 100, "lag": 7, "lag_seconds": 1.5, "parked": 0}
    for step, kept in KEPT.items():
        length = timedelta(seconds=step)
        begins = [floor(now, step) - number * length for number in range(1, int(kept / length))]
        rows = [{"step": step, "began_at": at, "ended_at": at + length, "observed": step} for at in begins]
        connection.execute(sa.insert(model.sample), [{**row, **figures, "parts": parts} for row in rows])


@contextmanager
def browser(url: str, folder: Path) -> Iterator[TestClient]:
    """A program with a token at a monitor that has taken a sample."""
    zmq = {f"{part}socket": f"tcp://127.0.0.1:{free_port()}" for part in ("front", "back")}
    config = load(write_config(folder / "config.ini", url, {"zmq": zmq}))
    with writing(url) as connection:
        now = SystemClock().now()
        person = add_person(connection, "bench", (Right.VIEWER,), None, now)
        token = add_token(connection, person.id, "bench", (), None, now)
    with closing(ConnectionPool(url)) as journal:
        app = build(BusAccess(config, journal, SystemClock()), is_encrypted=False)
        asyncio.run(app.state.parts.sampler.look())
        yield TestClient(app, "http://monitor", headers={"authorization": f"Bearer {token}"})


def tell(what: str, work: Callable[[], object]) -> None:
    """Measure some rounds, and write the first one, the median and the longest in ms, and the processor time of one."""
    taken = []
    worked = time.process_time()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - began))
    figures = {"first_ms": taken[0], "median_ms": sorted(taken)[ROUNDS // 2], "longest_ms": max(taken)}
    figures["processor_ms"] = 1000 * (time.process_time() - worked) / ROUNDS
    print(json.dumps({"what": what} | {name: round(value, 1) for name, value in figures.items()}), flush=True)


def measure(url: str, folder: Path) -> None:
    """Measure over a journal that is filled."""
    journal, now = ConnectionPool(url), SystemClock().now()

    def sample(lags: LagReader) -> None:
        with journal.reading() as connection:
            take(connection, lags, now)

    def attention() -> None:
        with journal.reading() as connection:
            read_attention(connection, now)

    with closing(journal):
        tell("sample, roles that lack all", lambda: sample(LagReader()))
        tell("what waits for a person", attention)
    with browser(url, folder) as client:
        for path in PATHS:
            answer = client.get(path)
            tell(f"{path} {answer.status_code} {len(answer.content)} bytes", partial(client.get, path))


def main() -> None:
    """Build and measure."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/xbus.db"
        schema.upgrade(url)
        fill_with_samples(url, int(os.environ.get("ENVELOPES", ENVELOPES)))
        measure(url, Path(folder))


if __name__ == "__main__":
    main()
