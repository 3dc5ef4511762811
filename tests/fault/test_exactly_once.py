"""Emitters with keys or an outbox, and consumers with an inbox, killed at any moment: each envelope is there once."""

import signal
import sqlite3
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, Nodes, add_bus
from tests.support.processes import Process, run, script
from tests.support.waiting import wait_until
from tests.support.ways import WAY
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.reading import read_log, read_segments
from xbus.emitter.outbox import Outbox
from xbus.rpc.codec import Value, unpack, unpack_items

TYPES: dict[str, Nodes] = {"numbers": {"store": []}}
EXAMPLES = Path(__file__).parents[2] / "examples"

ENVELOPES, EVENTS, ITEMS = 12, 2, 60


def arrived(url: str) -> Iterator[list[list[Value]]]:
    """The items of the envelopes in the log, by event."""
    with reading(url) as connection:
        for envelope in read_log(connection, 0, 1000):
            events = []
            for event in envelope.events:
                segments = read_segments(connection, event.segments_id, 0, 10_000_000)
                items = [item for segment in segments for item in unpack_items(segment.data, segment.items)]
                events.append([unpack(item) for item in items])
            yield events


def wanted() -> list[list[list[int]]]:
    return [[[n] * ITEMS for _ in range(EVENTS)] for n in range(ENVELOPES)]


SENDS = f"""
import os, random, signal, sys, threading
from xbus.emitter import Emitter

lines = iter(range(1, int(os.environ["DIES_AT"])))

def say(word):
    print(word, flush=True)
    if next(lines, None) is None:
        threading.Timer(random.uniform(0, 0.005), os.kill, (os.getpid(), signal.SIGKILL)).start()

outbox = {{"outbox": sys.argv[2], "outbox_seconds": 0.1}} if len(sys.argv) > 2 else {{}}
with Emitter(sys.argv[1], "emitter_1", "{PASSWORD}", batch_items=7, window_bytes=1, **outbox) as emitter:
    for n in range({ENVELOPES}):
        with emitter.envelope(key=f"number {{n}}") as envelope:
            for _ in range({EVENTS}):
                with envelope.event("numbers") as event:
                    for item in range({ITEMS}):
                        event.send(n)
                        if item % 10 == 0:
                            say("sent")
        say("ended")
"""


def killed_again_and_again(start_process: StartProcess, *command: str | Path) -> Process:
    """Run a program, which is killed each time a little later in its course, until it comes to its end."""
    for killed in count():
        process = start_process(*command, env={"DIES_AT": str(3 + 70 * killed)})
        if process.wait() != -signal.SIGKILL:
            assert killed >= 2
            return process
    raise AssertionError("it never ends")


def test_an_emitter_that_is_killed_again_and_again_sends_each_envelope_once(
    database_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    add_bus(database_url, TYPES)
    daemon = start_daemon(database_url)
    last = killed_again_and_again(start_process, sys.executable, "-c", SENDS, daemon.front)
    assert last.wait() == 0, last.text
    assert list(arrived(database_url)) == wanted()
    with reading(database_url) as connection:
        states = connection.execute(sa.select(model.envelope.c.state)).scalars().all()
    assert list(states) == ["received"] * ENVELOPES


def test_an_outbox_is_filled_while_the_broker_is_away_and_sent_in_order_once(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    add_bus(sqlite_url, TYPES)
    daemon = start_daemon(sqlite_url)
    daemon.kill()
    outbox = tmp_path / "numbers.outbox"
    command = (sys.executable, "-c", SENDS, daemon.front, outbox)
    last = killed_again_and_again(start_process, *command)
    assert last.wait() == 0, last.text
    box = Outbox.existing(outbox)
    held = box.status()
    box.close()
    # Under the same keys some are in it more than once.
    assert held.waiting >= ENVELOPES

    (tmp_path / "password").write_text(PASSWORD)
    flush = [script("xbus"), "outbox", "flush", outbox, "--url", daemon.front, "--login", "emitter_1"]
    flush += ["--password-file", tmp_path / "password"]
    daemon.start()
    flushing = start_process(*flush)
    wait_until(lambda: any(arrived(sqlite_url)), "the first is there")
    flushing.kill()
    flushing = start_process(*flush)
    wait_until(lambda: len(list(arrived(sqlite_url))) > ENVELOPES // 2, "half of them are there")
    daemon.crash()
    daemon.start()
    assert flushing.wait() == 0, flushing.text
    assert list(arrived(sqlite_url)) == wanted()


DIES = """
import os, pathlib, signal
from examples.inbox import Clients

class Dies(Clients):
    def commit(self, envelope):
        super().commit(envelope)
        if not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        pathlib.Path("committed").touch()
"""


@pytest.mark.usefixtures("each_way")
def test_a_consumer_that_is_killed_behind_its_commit_has_all_of_it_once(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"clients": {"store": []}})
    daemon = start_daemon(sqlite_url)
    (tmp_path / "dies.py").write_text(DIES)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "clients.csv").write_text("name\nAda\nGrace\n")
    secret: list[str | Path] = ["--password-file", tmp_path / "password"]
    emit: list[str | Path] = [
        "emit",
        tmp_path / "clients.csv",
        "--type",
        "clients",
        "--login",
        "emitter_1",
        "--url",
        daemon.front,
    ]
    assert run(script("xbus"), *emit, *secret).returncode == 0
    consume = ["recipient", "run", "dies:Dies", "--login", "store_1", "--back", daemon.back, *WAY.options]
    environment = {"PYTHONPATH": str(EXAMPLES.parent)}
    first = start_process(script("xbus"), *consume, *secret, env=environment, cwd=tmp_path)
    assert first.wait() == -signal.SIGKILL, first.text
    start_process(script("xbus"), *consume, *secret, env=environment, cwd=tmp_path)
    wait_until(lambda: (tmp_path / "committed").exists(), "the envelope has come again")
    clients = sqlite3.connect(tmp_path / "clients.db")
    assert clients.execute("SELECT name FROM client ORDER BY name").fetchall() == [("Ada",), ("Grace",)]
    clients.close()
