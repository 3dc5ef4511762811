"""Crowds and floods of strangers leave an honest emitter most of its pace; compared within one run."""

import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.processes import module
from tests.support.strangers import Stranger
from xbus.emitter import Emitter

pytestmark = pytest.mark.slow

JUNK_PER_SECOND = 20_000
ROUND_SECONDS = 1.0
ROUNDS = 3
KEPT = 0.3
"""The part of its pace that the emitter must keep in the best round: half of it is kept on a quiet machine."""

IDLE_CONNECTIONS = 5_000
DESCRIPTORS_OF_OTHERS = 200


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"numbers": {"sink": []}})
    return start_daemon(sqlite_url)


def test_junk_leaves_an_honest_emitter_its_pace(daemon: Daemon, start_process: StartProcess) -> None:
    kept = []
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        pace(emitter)
        for _ in range(ROUNDS):
            alone = pace(emitter)
            junk = start_process(
                *module("tests.support.junk"), daemon.front, str(JUNK_PER_SECOND), str(ROUND_SECONDS + 2)
            )
            time.sleep(0.5)
            beside = pace(emitter)
            assert junk.wait() == 0
            assert int(junk.text) > JUNK_PER_SECOND
            kept.append(beside / alone)
    assert max(kept) > KEPT, kept
    assert daemon.log.count("unreadable_request") < 100


RECONNECTIONS = 150


def test_who_connects_anew_for_each_fault_does_not_fill_the_log(daemon: Daemon) -> None:
    for _ in range(RECONNECTIONS):
        for address in (daemon.front, daemon.back):
            with Stranger(address) as faulty:
                faulty.send_raw(b"\0\5hello")
            with Stranger(address) as hasty:
                hasty.call("xbus.health")
    with Stranger(daemon.front) as last:
        last.call("xbus.health")
        last.answer()
    told = Counter(re.findall(r"action=(unreadable_request|undelivered_reply)", daemon.log))
    assert told["unreadable_request"] >= 1
    # One line for each kind of fault and port, and one of those who were gone before their address was asked for.
    assert max(told.values()) <= 4, told


def test_idle_connections_leave_an_honest_emitter_its_pace(daemon: Daemon) -> None:
    with room_for(IDLE_CONNECTIONS), Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        alone = pace(emitter)
        place = urlsplit(daemon.front)
        idle = []
        try:
            for _ in range(IDLE_CONNECTIONS):
                idle.append(socket.create_connection((place.hostname, place.port), 60))
            beside = max(pace(emitter) for _ in range(ROUNDS))
        finally:
            for connection in idle:
                connection.close()
        # The machine may be busier now than it was before.
        alone = min(alone, pace(emitter))
    assert beside / alone > KEPT


def pace(emitter: Emitter) -> float:
    """The envelopes a second that an emitter puts, one behind the other."""
    began, envelopes = time.monotonic(), 0
    while time.monotonic() - began < ROUND_SECONDS:
        emitter.put("numbers", [envelopes])
        envelopes += 1
    return envelopes / (time.monotonic() - began)


@contextmanager
def room_for(connections: int) -> Iterator[None]:
    """Let this process open so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + DESCRIPTORS_OF_OTHERS
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"a process here may have {hard} descriptors, and {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
