"""An emitter whose bus is away, or frozen, says so within the seconds that it was given."""

import signal
import time
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.ports import free_port
from tests.support.processes import run, script
from xbus.emitter import Emitter
from xbus.ending import NOT_NOW
from xbus.errors import TimedOut

OTHERWISE_SECONDS = 12.0
"""What is slower was not ended by the second that was given, but by a time-out of the broker or the connection."""


def test_a_frozen_broker_is_given_up_in_time(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    with Emitter(daemon.front, "emitter_1", PASSWORD, retry_seconds=1) as emitter:
        emitter.put("test_event", [b"taken"])
        daemon.process.signal(signal.SIGSTOP)
        try:
            for timeout in (None, 0.5):
                began = time.monotonic()
                with pytest.raises(TimedOut) as failed:
                    emitter.put("test_event", [b"not answered"], timeout=timeout)
                assert time.monotonic() - began < OTHERWISE_SECONDS
                assert failed.value.next_step
            began = time.monotonic()
            with pytest.raises(TimedOut):
                with emitter.envelope() as envelope, envelope.event("test_event") as event:
                    event.send(b"not answered")
            assert time.monotonic() - began < OTHERWISE_SECONDS
        finally:
            daemon.process.signal(signal.SIGCONT)
        assert emitter.put("test_event", [b"taken again"], timeout=60).items == 1


def test_a_file_is_not_sent_for_ever_to_a_broker_that_is_away(tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    file.write_text("name\nAda\n")
    url = f"tcp://127.0.0.1:{free_port()}"
    began = time.monotonic()

    options = ("--type", "test_event", "--login", "emitter_1", "--url", url, "--timeout", "1")
    result = run(script("xbus"), "emit", file, *options, env={"XBUS_PASSWORD": PASSWORD})

    assert result.returncode == NOT_NOW, result.stderr
    assert time.monotonic() - began < OTHERWISE_SECONDS
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"xbus: {url}: no connection for xbus.login within 1 s")
    assert "see whether the other side runs" in line
