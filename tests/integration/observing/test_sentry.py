"""Exceptions go to Sentry, without what their variables hold."""

import gzip
import http.server
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from xbus import sentry
from xbus.clock import SystemClock
from xbus.config import HttpSettings
from xbus.errors import ConfigurationError
from xbus.http.program import build, reporting_exceptions

log = logging.getLogger("xbus.test")


class Sentry:
    """Takes events by HTTP, as Sentry does."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        bodies = self.bodies

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                bodies.append((gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode())
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self._server.server_port}/42"

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for body in self.bodies for line in body.splitlines() if line]
        return [line for line in lines if "logentry" in line]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Sentry]:
    server = Sentry()
    yield server
    server.close()


def fail(hidden: str) -> None:
    item = f"secret of {hidden}"
    raise ValueError(f"an item of {len(item)} bytes")


def test_an_exception_is_reported_without_variables_and_nothing_else_is(server: Sentry) -> None:
    with sentry.reporting(server.dsn, "back"):
        log.error("no exception", extra={"action": "unread"})
        try:
            fail("a client")
        except ValueError:
            log.exception("a run died", extra={"action": "run_died", "envelope_id": "0197"})
    log.error("after the end", exc_info=ValueError("late"))

    (event,) = server.events
    assert event["exception"]["values"][0]["type"] == "ValueError"
    assert event["logentry"]["message"] == "a run died"
    assert (event["extra"]["envelope_id"], event["tags"]["xbus.process"]) == ("0197", "back")
    assert event["release"].startswith("xbusd@")
    # The lines of the program are there, and what they held is not.
    assert "secret of {hidden}" in "".join(server.bodies)
    assert "secret of a client" not in "".join(server.bodies)


@pytest.mark.parametrize("dsn", ["https://sentry.example/42", "https://key@sentry.example/"])
def test_an_address_that_is_none_of_sentry(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="dsn"), sentry.reporting(dsn, "back"):
        pass


def test_a_fault_of_the_gateway_is_reported(server: Sentry) -> None:
    app = build(HttpSettings(), "tcp://127.0.0.1:9", SystemClock(), back="tcp://127.0.0.1:9")
    # Nobody knows of a fault in it, so this one is made.
    object.__setattr__(app.state.gateway, "front", None)
    with (
        reporting_exceptions(server.dsn),
        TestClient(app, client=("127.0.0.1", 5), raise_server_exceptions=False) as http,
    ):
        assert http.get("/readyz").status_code == 500
    (event,) = server.events
    assert event["exception"]["values"][0]["type"] == "AttributeError"
    assert (event["extra"]["action"], event["tags"]["xbus.process"]) == ("request_failed", "http")
