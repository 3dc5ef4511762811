"""A round trip as Routemaster's own: the root makes clients, one subscribes, one pushes, and the bus calls back."""

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2

from tests.conftest import StartDaemon
from tests.support.bus import add_bus, apply_text
from tests.support.gateway import serving_http
from tests.support.waiting import wait_until
from xbus.admin import bus_file
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.configuration import make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock

BUS = """\
[[service]]
name = "callbacks"
kind = "gateway"

[[role]]
login = "gateway_1"
service = "callbacks"

[[emitter_profile]]
name = "clients"
event_types = []
new_types = "*"

[[emitter_profile]]
name = "registrar"
event_types = []
clients = "clients"

[[emitter]]
login = "root"
profile = "registrar"
"""

LISTENER = """\
[[subscription]]
name = "listener"
event_types = ["widgets"]
url = "{url}"
format = "routemaster"
timeout = 20
max = 2
verify = false
"""


@contextmanager
def listening(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Receive over TLS with a certificate that nobody signed; the address, and the calls: user name and body."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    calls: list[Any] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            user = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode()
            assert self.headers["content-type"] == "application/json"
            calls.append((user.partition(":")[0], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/events", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_one_client_pushes_another_one_is_called_with(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(database_url, {"orders": {"store": []}})
    apply_text(database_url, BUS)
    with writing(database_url) as connection:
        at = SystemClock().now()
        root = add_api_token(connection, "root", emitter="root", at=at)
        own = add_api_token(connection, "gateway", role="gateway_1", at=at)
    settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": own, "callback_hosts": "127.0.0.0/8"}
    daemon = start_daemon(database_url, {"http": settings})
    with listening(tmp_path) as (url, calls), serving_http(daemon.config) as address:

        def ask(token: str, method: str, path: str, body: object = None) -> Any:
            return httpx2.request(method, f"{address}{path}", json=body, auth=(token, "x"), timeout=30)

        def client(name: str) -> str:
            made = ask(root, "POST", "/api_tokens", {"name": name})
            assert made.status_code == 201
            return str(made.json()["token"])

        listener, publisher = client("listener"), client("publisher")
        wish = {"topics": ["widgets"], "callback": url, "uuid": "of-the-listener", "timeout": 20, "max": 2}
        assert ask(listener, "POST", "/subscription", wish).status_code == 204
        # Only an operator says that nobody needs to have signed the certificate.
        apply_text(database_url, LISTENER.format(url=url))
        pushed = [
            {"type": kind, "url": f"https://app.example/widgets/{number}", "timestamp": 1_473_000_000_000 + number}
            for number, kind in enumerate(("create", "update", "noop", "delete"))
        ]
        pushed[1]["data"] = {"a": 1}
        for event in pushed:
            assert ask(publisher, "POST", "/topics/widgets", event).status_code == 204
        wait_until(lambda: sum(len(events) for _, events in calls) >= len(pushed), "all events came", 60)
        assert {user for user, _ in calls} == {"of-the-listener"}
        assert max(len(events) for _, events in calls) <= 2
        came = [event for _, events in calls for event in events]
        assert came == [
            {"topic": "widgets", "type": each["type"], "url": each["url"], "t": each["timestamp"]}
            | ({"data": each["data"]} if "data" in each else {})
            for each in pushed
        ]
        # What waits for its call comes all the same when its topic is removed.
        assert ask(listener, "POST", "/subscription", wish | {"timeout": 5_000}).status_code == 204
        late = {"type": "noop", "url": "https://app.example/widgets/5", "timestamp": 1_473_000_000_005}
        assert ask(publisher, "POST", "/topics/widgets", late).status_code == 204
        assert ask(publisher, "DELETE", "/topics/widgets").status_code == 204
        assert ask(listener, "GET", "/topics").json() == []
        (own,) = ask(listener, "GET", "/subscriptions").json()
        assert (own["topics"], own["events"]["queued"]) == ([], 1)
        wait_until(lambda: calls[-1][1][-1]["t"] == late["timestamp"], "the last event comes", 60)
        with reading(database_url) as connection:
            stored = read_stored(connection)
        exported = bus_file.read(bus_file.write(stored.in_use).encode())
        assert not exported.problems
        assert make_plan(stored, exported.bus, prune=True).changes == ()
        assert ask(listener, "DELETE", "/subscriber").status_code == 204
