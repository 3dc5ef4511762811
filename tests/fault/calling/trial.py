"""Starts gateways and a subscriber, strikes them and the broker at random from a seed, and lets all be called."""

import asyncio
import http.client
import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

from tests.fault.calling.judge import Call, CallRuling, judge_calls
from tests.support import receiving
from tests.support.bus import add_bus, apply_text
from tests.support.daemon import Daemon
from tests.support.gateway import Gate
from tests.support.ports import free_port
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock

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
max = 5
timeout = 20
attempts = 1000
first_delay = 0.1
longest_delay = 0.5
"""

STRIKES = {"gateway": 4, "subscriber": 4, "broker": 1}
"""How often each kind of strike is chosen, in relation."""

PAUSE_SECONDS = 1.0
"""Seconds between two strikes at the most."""

DRAIN_SECONDS = 180.0
"""Seconds until all has come at the end. A dead gateway keeps its batch for a lease of ten seconds."""


def set_up(url: str, port: int) -> tuple[str, str]:
    """Make the bus of a trial; the tokens of the gateways and of the shop."""
    add_bus(url, {"orders": {"store": []}})
    at = SystemClock().now()
    apply_text(url, BUS.format(port=port))
    with writing(url) as connection:
        gateways = add_api_token(connection, "gateways", role="gateway_1", at=at)
        return gateways, add_api_token(connection, "shop", emitter="emitter_1", at=at)


class HttpTrial:
    """One trial.

    Args:
        url: of a database with a schema.
        folder: for all files.
        seed: of what is struck when.

    Attributes:
        struck: how often, by kind.
        acknowledged: the numbers that the shop was told are durable.
    """

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._port = free_port()
        self._file = folder / "calls.jsonl"
        gateways, self._token = set_up(url, self._port)
        settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_hosts": "127.0.0.0/8"}
        self._broker = Daemon(folder / "daemon", url, {"http": settings | {"callback_token": gateways}})
        self._gates: list[Gate] = []
        self._subscriber: subprocess.Popen[bytes] | None = None
        self._chance = random.Random(seed)
        self._is_over = False
        self.struck: Counter[str] = Counter()
        self.acknowledged: list[int] = []

    async def run(self, strikes: int) -> CallRuling:
        """Strike so often, let all be called, and judge.

        Raises:
            TimeoutError: not all has come in time.
        """
        self._broker.start()
        try:
            self._gates = [Gate(self._broker.config, f"gateway_{number}").start() for number in (1, 2)]
            self._receive()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.to_thread(self._publish))
                for _ in range(strikes):
                    await asyncio.sleep(self._chance.uniform(0, PAUSE_SECONDS))
                    await asyncio.to_thread(self._strike)
                self._is_over = True
            async with asyncio.timeout(DRAIN_SECONDS):
                while not {*self.acknowledged} <= {number for call in self._calls() for number in call.numbers}:
                    await asyncio.sleep(0.2)
        finally:
            self._is_over = True
            for gate in self._gates:
                gate.kill()
            self._end_subscriber()
            self._broker.kill()
        return judge_calls(self.acknowledged, self._calls())

    def _publish(self) -> None:
        """Publish one number after another, each again under its key until a gateway says that it is durable."""
        number = 0
        while not self._is_over:
            number += 1
            while not self._put(number):
                pass
            self.acknowledged.append(number)

    def _put(self, number: int) -> bool:
        gate = self._gates[number % len(self._gates)]
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        headers["Idempotency-Key"] = f"order {number}"
        body = json.dumps([{"number": number}]).encode()
        request = urllib.request.Request(f"{gate.address}/v1/types/orders/envelopes", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{error.code}: {error.read()!r}"
            return False
        except (OSError, http.client.HTTPException):
            # The gateway died before its answer, or within it.
            return False
        return True

    def _strike(self) -> None:
        kind = self._chance.choices([*STRIKES], [*STRIKES.values()])[0]
        self.struck[kind] += 1
        match kind:
            case "broker":
                self._broker.crash()
                self._broker.start()
            case "gateway":
                gate = self._chance.choice(self._gates)
                gate.kill()
                gate.start()
            case "subscriber":
                self._end_subscriber()
                self._receive()

    def _receive(self) -> None:
        program = [sys.executable, receiving.__file__, str(self._port), str(self._file)]
        self._subscriber = subprocess.Popen(program)

    def _end_subscriber(self) -> None:
        if self._subscriber is not None:
            self._subscriber.kill()
            self._subscriber.wait()

    def _calls(self) -> list[Call]:
        """Read the calls that the subscriber has kept whole."""
        text = self._file.read_text() if self._file.exists() else ""
        kept = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [Call(each["headers"]["webhook-id"], _numbers(each["body"])) for each in kept]


def _numbers(body: str) -> tuple[int, ...]:
    return tuple(item["number"] for event in json.loads(body)["events"] for item in event["items"])
