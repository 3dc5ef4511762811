"""Subscriptions in real programs: gateway, broker and subscriber die between call and checkpoint, nothing is lost."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from tests.conftest import StartDaemon
from tests.support import receiving
from tests.support.bus import PASSWORD, add_bus
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus.admin import bus_file
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import apply, make_plan, read_stored
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.emitter import Emitter

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ENVELOPES = 60

BUS = """\
[[service]]
name = "callbacks"
kind = "gateway"

[[role]]
login = "gateway_1"
service = "callbacks"

[[subscription]]
name = "shop"
event_types = ["orders"]
url = "http://127.0.0.1:{port}/hook"
secret = "{secret}"
max = 3
timeout = 20
"""


def configure(database_url: str, port: int) -> str:
    """Add the bus and its subscription; the token of the gateway."""
    add_bus(database_url, {"orders": {"store": []}})
    with writing(database_url) as connection:
        wished = bus_file.read(BUS.format(port=port, secret=SECRET).encode())
        assert not wished.problems
        apply(connection, make_plan(read_stored(connection), wished.bus), SystemClock().now())
        return add_api_token(connection, "gateway", role="gateway_1", at=SystemClock().now())


@contextmanager
def receiver(port: int, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, receiving.__file__, str(port), str(file)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def calls(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def numbers(file: Path) -> list[int]:
    events = [event for call in calls(file) for event in json.loads(call["body"])["events"]]
    return [item["number"] for event in events for item in event["items"]]


def gateway(config: Path) -> Process:
    return Process(script("start_xbushttp"), "-c", config, output=config.with_name("http.log"))


def test_nothing_is_lost_and_only_the_same_batches_repeat(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    port, file = free_port(), tmp_path / "calls"
    token = configure(database_url, port)
    settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": token, "callback_hosts": "127.0.0.0/8"}
    daemon = start_daemon(database_url, {"http": settings})
    first = gateway(daemon.config)
    try:
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            for number in range(ENVELOPES):
                emitter.put("orders", [{"number": number}])
        with receiver(port, file):
            wait_until(lambda: len(calls(file)) >= 3, "the subscriber is called", 60)
        # The subscriber is dead, then the gateway, then the broker.
        first.kill()
        daemon.kill()
        daemon.start()
        first = gateway(daemon.config)
        with receiver(port, file):
            wait_until(lambda: set(numbers(file)) == {*range(ENVELOPES)}, "all has come", 90)
    finally:
        first.kill()
    bodies: defaultdict[str, set[str]] = defaultdict(set)
    for call in calls(file):
        bodies[call["headers"]["webhook-id"]].add(call["body"])
        Webhook(SECRET).verify(call["body"], call["headers"])
    assert all(len(same) == 1 for same in bodies.values())
    once = [json.loads(next(iter(same)))["events"] for same in bodies.values()]
    came = sorted(item["number"] for events in once for each in events for item in each["items"])
    assert came == [*range(ENVELOPES)]
    assert SECRET not in daemon.config.with_name("http.log").read_text()
