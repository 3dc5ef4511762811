"""The gateway in a process of its own: broker and gateway come and go, and nothing acknowledged is lost or doubled."""

import asyncio
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.browser import browsing
from tests.support.bus import add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.gateway import Gate, serving_http
from tests.support.memory import peak_mib, resident_mib
from tests.support.processes import run, script
from tests.support.showing import shown
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock

ITEMS = 20_000


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "items.ndjson"
    path.write_text("".join(f'{{"number": {number}, "text": "{"x" * 80}"}}\n' for number in range(ITEMS)))
    return path


def curl(address: str, token: str, body: Path, *options: str) -> "subprocess.Popen[bytes]":
    url = f"{address}/v1/types/orders/envelopes"
    keyed = ("-H", "Idempotency-Key: the order", "-H", "Content-Type: application/x-ndjson", "-u", f"{token}:")
    return subprocess.Popen(["curl", "-sS", *keyed, *options, "-T", body, "-X", "POST", url], stdout=subprocess.PIPE)


def receipt(sending: "subprocess.Popen[bytes]") -> dict[str, Any]:
    answer, _ = sending.communicate(timeout=90)
    told: dict[str, Any] = json.loads(answer)
    return told


def test_an_envelope_is_taken_once_whatever_ends(database_url: str, start_daemon: StartDaemon, body: Path) -> None:
    add_bus(database_url, {"orders": {"store": []}})
    with writing(database_url) as connection:
        token = add_api_token(connection, "shop", emitter="emitter_1", at=SystemClock().now())
    daemon = start_daemon(database_url, {"http": {"listen": "127.0.0.1:0", "insist_seconds": 30}})
    with serving_http(daemon.config) as address:
        # A client that is killed in mid body leaves nothing; the same gateway takes the same again.
        killed = curl(address, token, body, "--limit-rate", "200k")
        killed.kill()
        killed.communicate()
        sending = curl(address, token, body, "--limit-rate", "2M")
        daemon.kill()
        daemon.start()
        first = receipt(sending)
    assert first["items"] == ITEMS
    with serving_http(daemon.config) as address:
        assert receipt(curl(address, token, body)) == first
    assert shown(database_url, first["envelope_id"]).summary.items == ITEMS


# -- reading -----------------------------------------------------------------------------------------------------------


def add_tokens(url: str, *, reader: str, emitter: str = "emitter_1") -> tuple[str, str]:
    """Add a token that sends, and one that reads."""
    at = SystemClock().now()
    with writing(url) as connection:
        sends = add_api_token(connection, "sends", emitter=emitter, at=at)
        return sends, add_api_token(connection, "reads", role=f"{reader}_1", at=at)


class HttpProgram:
    """A program with a token, which knows no more than HTTP.

    Args:
        address: of a gateway.
        token: its own.
    """

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._token = token

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        """Ask; the status and what the answer says."""
        url = f"{self.address}{path}?{urllib.parse.urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def batch(self, **query: str) -> Any:
        """Get a batch."""
        status, told = self.ask("GET", "/v1/readers/billing/batch", wait="20s", **query)
        assert status == 200, (status, told)
        return told

    def settle(self, checkpoint: str) -> tuple[int, Any]:
        """Settle a batch."""
        return self.ask("POST", "/v1/readers/billing/checkpoint", {"checkpoint": checkpoint})


def values(batch: Any) -> list[Any]:
    return [item for event in batch["events"] for item in event["items"]]


def test_whatever_is_killed_the_same_batch_comes_again_and_nothing_is_skipped(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"orders": {}})
    add_reader(database_url, "billing", "orders", start="oldest", ranges=1, lease=2.0, batch_items=10)
    sends, reads = add_tokens(database_url, reader="billing")
    daemon = start_daemon(database_url, {"http": {"listen": "127.0.0.1:0", "insist_seconds": 30}})
    gates = [Gate(daemon.config, name).start() for name in ("first", "second")]
    try:
        status, _ = HttpProgram(gates[0].address, sends).ask("POST", "/v1/types/orders/envelopes", [*range(100)])
        assert status == 201
        got: list[Any] = []
        for turn in range(10):
            handed = HttpProgram(gates[0].address, reads).batch()
            assert not handed["repeated"]
            if turn % 3 == 1:
                gates[0].kill()
                gates[0].start()
            elif turn % 3 == 2:
                daemon.kill()
                daemon.start()
            # Whoever asks at another gateway gets the same batch, and settles it there.
            again = HttpProgram(gates[1].address, reads).batch()
            assert (again["from"], again["to"]) == (handed["from"], handed["to"])
            assert (values(again), again["repeated"]) == (values(handed), True)
            got += values(again)
            # A killed broker has another counter; the newest ticket settles it.
            assert HttpProgram(gates[turn % 2].address, reads).settle(again["checkpoint"])[0] == 200
            # A checkpoint that was killed in mid call is sent again.
            assert HttpProgram(gates[0].address, reads).settle(again["checkpoint"])[0] == 200
        assert got == [*range(100)]
        assert HttpProgram(gates[0].address, reads).ask("GET", "/v1/readers/billing/batch") == (204, None)
    finally:
        for gate in gates:
            gate.kill()


@contextmanager
def encrypted(daemon: Daemon, folder: Path) -> Iterator[str]:
    """A gateway that has a key, and reaches the encrypted addresses of the broker alone; its address."""
    key = folder / "gateway.key"
    assert run(script("xbus"), "keys", "new", key).returncode == 0
    # Its key is allowed for one login at each side, and carries the calls of all tokens.
    for owner in (("emitter", "emitter_2"), ("role", "billing_1")):
        assert run(script("xbus"), "keys", "allow", *owner, key, "-c", daemon.config).returncode == 0
    server = run(script("xbus"), "keys", "show", "-c", daemon.config).stdout.strip()
    config = folder / "gateway.ini"
    front, back = (
        f"xbus://{place}?key={server}&client_key={key}" for place in (daemon.encrypted_front, daemon.encrypted_back)
    )
    config.write_text(f"[http]\nlisten = 127.0.0.1:0\nfront = {front}\nback = {back}\n")
    with serving_http(config) as served:
        yield served


def test_a_gateway_with_a_key_uses_the_encrypted_addresses(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"orders": {}})
    add_reader(sqlite_url, "billing", "orders", start="oldest")
    sends, reads = add_tokens(sqlite_url, reader="billing")
    assert run(script("xbus"), "keys", "new", tmp_path / "server.key").returncode == 0
    addresses = {"frontsocket.curve": "tcp://127.0.0.1:0", "backsocket.curve": "tcp://127.0.0.1:0"}
    daemon = start_daemon(sqlite_url, {"zmq": addresses, "curve": {"key_file": tmp_path / "server.key"}})
    with encrypted(daemon, tmp_path) as address:
        assert HttpProgram(address, sends).ask("POST", "/v1/types/orders/envelopes", {"n": 1})[0] == 201
        assert values(HttpProgram(address, reads).batch()) == [{"n": 1}]


FOLLOWERS = 500

MOST_MIB = 400 / 10_000
"""Of memory that a follower may take."""


async def test_a_follower_takes_little_memory(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"orders": {}})
    add_reader(sqlite_url, "billing", "orders", start="oldest")
    sends, reads = add_tokens(sqlite_url, reader="billing")
    daemon = start_daemon(sqlite_url, {"http": {"listen": "127.0.0.1:0"}})
    gate = Gate(daemon.config, "gate").start()

    async def follow() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gate.address.rpartition(":")[2]))
        head = f"GET /v1/types/orders/tail HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {reads}\r\n\r\n"
        writer.write(head.encode())
        await reader.readuntil(b"id: from:")
        return reader, writer

    try:
        send = HttpProgram(gate.address, sends)
        await asyncio.to_thread(send.ask, "POST", "/v1/types/orders/envelopes", {"n": 0})
        before = resident_mib(gate.pid)
        async with asyncio.timeout(60):
            followers = [await follow() for _ in range(FOLLOWERS)]
            await asyncio.to_thread(send.ask, "POST", "/v1/types/orders/envelopes", {"n": 1})
            for reader, _ in followers:
                assert b'"value":{"n":1}' in await reader.readuntil(b"}}")
        assert (peak_mib(gate.pid) - before) / FOLLOWERS < MOST_MIB
        for _, writer in followers:
            writer.close()
    finally:
        gate.kill()


async def test_the_event_source_of_a_browser_goes_on_behind_a_killed_gateway(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"orders": {}})
    add_reader(sqlite_url, "billing", "orders", start="oldest")
    sends, reads = add_tokens(sqlite_url, reader="billing")
    daemon = start_daemon(sqlite_url, {"http": {"listen": "127.0.0.1:0"}})
    gate = Gate(daemon.config, "gate").start()
    try:
        async with browsing(gate.address) as context:
            # As a web server in front of the gateway adds it for those who have logged in there.
            await context.set_extra_http_headers({"Authorization": f"Bearer {reads}"})
            page = await context.new_page()
            await page.goto("/healthz")
            await page.evaluate(
                """() => {
                    window.got = [];
                    window.source = new EventSource("/v1/types/orders/tail");
                    source.onmessage = event => got.push([event.lastEventId, JSON.parse(event.data).value]);
                }"""
            )
            await page.wait_for_function("source.readyState === EventSource.OPEN")
            send = HttpProgram(gate.address, sends)
            await asyncio.to_thread(send.ask, "POST", "/v1/types/orders/envelopes", {"n": 1})
            await page.wait_for_function("got.length === 1")
            gate.kill()
            await page.wait_for_function("source.readyState === EventSource.CONNECTING")
            gate.start()
            # Sent while the browser is not there yet, or just there: it comes once in either case.
            await asyncio.to_thread(send.ask, "POST", "/v1/types/orders/envelopes", [{"n": 2}, {"n": 3}])
            await page.wait_for_function("got.length >= 3")
            assert await page.evaluate("got") == [["1", {"n": 1}], ["2", {"n": 2}], ["2:0:1", {"n": 3}]]
    finally:
        gate.kill()
