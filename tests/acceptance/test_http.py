"""The gateway in a process of its own: broker and gateway come and go, and nothing acknowledged is lost or doubled."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.gateway import serving_http
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
