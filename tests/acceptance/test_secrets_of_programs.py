"""Secrets of gateways, subscribers and clients are in nothing that a run writes: logs, commands, pages, arguments."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.conftest import StartDaemon
from tests.support.browser import monitoring
from tests.support.bus import PASSWORD, add_bus, apply_text
from tests.support.gateway import serving_http
from tests.support.operating import run_command
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.people import add_person, add_token
from xbus.clock import SystemClock
from xbus.emitter import Emitter
from xbus.rights import Right

SIGNS = "whsec_c2VjcmV0LW9mLWEtc3Vic2NyaXB0aW9uLTQ3MTE="
OF_LISTENER = "uuid-of-the-listener-90210"
NO_TOKEN = "xbus_api_no-such-token-31337"
STORE = "object-store-secret-1f2e3d"
IN_ADDRESS = "secret-of-the-address-77aa01"

BUS = """
[[emitter_profile]]
name = "clients"
new_types = "*"

[[emitter_profile]]
name = "registrars"
clients = "clients"

[[emitter]]
login = "root"
profile = "registrars"

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
max = 1
timeout = 20
"""

NAMES = ("orders", "emitter_1", "gateway_1", "store_1", "shop", "listener")
"""What pages of the monitor have as parameters."""

PAGES = (
    "types/orders",
    "services/callbacks",
    "profiles/clients",
    "emitters/root",
    "recipients/gateway_1",
)

COMMANDS = (
    ("export",),
    ("subscription", "list"),
    ("subscription", "show", "shop"),
    ("subscription", "list", "--json"),
    ("subscription", "show", "shop", "--json"),
    ("subscription", "show", "listener"),
    ("token", "list", "--json"),
    ("config", "show"),
    ("audit", "list"),
    ("health",),
    ("reader", "list"),
)


def test_no_secret_of_programs_is_written(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    port = free_port()
    apply_text(sqlite_url, BUS.format(port=port, secret=SIGNS))
    with writing(sqlite_url) as connection:
        at = SystemClock().now()
        tokens = {
            "root": add_api_token(connection, "root", emitter="root", at=at),
            "own": add_api_token(connection, "gateway", role="gateway_1", at=at),
            "emitter": add_api_token(connection, "emitter", emitter="emitter_1", at=at),
        }
        person = add_person(connection, "watcher", (Right.VIEWER,), None, at)
        watcher = add_token(connection, person.id, "test", (), None, at)
    http = {
        "listen": "127.0.0.1:0",
        "callbacks": "yes",
        "callback_token": tokens["own"],
        "callback_hosts": "127.0.0.0/8",
    }
    http |= {"metrics_from": "127.0.0.1"}
    others = {"logging": {"level": "DEBUG"}, "monitor": {"listen": "127.0.0.1:0"}}
    daemon = start_daemon(sqlite_url, {"http": http, **others})
    written: dict[str, str] = {}
    with _environment("AWS_SECRET_ACCESS_KEY", STORE), serving_http(daemon.config) as gateway:

        def ask(token: str, method: str, path: str, body: object = None) -> Any:
            answer = httpx2.request(method, f"{gateway}{path}", json=body, auth=(token, "x"), timeout=30)
            written[f"{method} {path} as {len(written)}"] = answer.text
            return answer

        made = httpx2.post(f"{gateway}/api_tokens", json={"name": "listener"}, auth=(tokens["root"], "x"), timeout=30)
        tokens["client"] = made.json()["token"]
        wish = {"topics": ["widgets"], "callback": "https://127.0.0.1:1/events", "uuid": OF_LISTENER, "timeout": 20}
        assert ask(tokens["client"], "POST", "/subscription", {**wish, "max": 1}).status_code == 204
        event = {"type": "create", "url": "https://shop.example/1", "timestamp": 1_900_000_000_123}
        assert ask(tokens["client"], "POST", "/topics/widgets", event).status_code == 204
        for path in ("/subscriptions", "/topics", "/pulse", "/v1/types/orders/tail", "/no/such/page", "/metrics"):
            for token in (tokens["client"], tokens["emitter"], NO_TOKEN):
                is_own_list = path == "/subscriptions" and token == tokens["client"]
                if not is_own_list and ("tail" not in path or token == NO_TOKEN):
                    ask(token, "GET", path)
        # The Ruby client reads the uuid of its own subscription; the answers to others lack it.
        own = httpx2.get(f"{gateway}/subscriptions", auth=(tokens["client"], "x"), timeout=30)
        assert [each["uuid"] for each in own.json()] == [OF_LISTENER]
        ask(tokens["root"], "GET", "/api_tokens")
        ask(tokens["emitter"], "POST", "/v1/types/no_such_type", [1])
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            emitter.put("orders", [{"number": 1}])
        shown = run_command("subscription", "show", "shop", "-c", daemon.config)
        assert "shop" in shown.stdout
        wait_until(
            lambda: "callback" in daemon.config.with_name("http.log").read_text(), "calls that nobody takes are logged"
        )
        for command in COMMANDS:
            done = run_command(*command, "-c", daemon.config)
            assert done.returncode in (0, 1), (command, done.stderr)
            written[f"xbus {' '.join(command)}"] = done.stdout + done.stderr
        with monitoring(daemon.config) as monitor:
            written |= _pages(monitor, watcher)
            written |= _arguments()
        written |= _refused_stores(daemon.config)
    written["log of the monitor"] = daemon.config.with_name("monitor.log").read_text()
    written["log of the gateway"] = daemon.config.with_name("http.log").read_text()
    assert daemon.stop() == 0
    written["log"] = daemon.log
    secrets = {SIGNS, SIGNS.removeprefix("whsec_"), OF_LISTENER, NO_TOKEN, STORE, IN_ADDRESS, watcher, *tokens.values()}
    assert len(written) > 40
    assert [(place, secret) for place, text in written.items() for secret in secrets if secret in text] == []


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Have the programs that are started here find a secret in their environment."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _refused_stores(config: Path) -> dict[str, str]:
    """What is said of object stores whose address contains a key."""
    written = {}
    for number, place in enumerate((f"s3://key:{IN_ADDRESS}@bucket/x", f"s3://bucket/x?secret_key={IN_ADDRESS}")):
        wrong = config.with_name(f"store-{number}.ini")
        wrong.write_text(config.read_text() + f"\n[journal]\nobjects = {place}\n")
        for command in (("config", "show"), ("config", "check"), ("doctor",), ("health",)):
            done = run_command(*command, "-c", wrong)
            written[f"xbus {command} of {number}"] = done.stdout + done.stderr
            assert done.returncode != 0 or command == ("config", "show"), (command, done.stdout)
    return written


def _arguments() -> dict[str, str]:
    """The arguments of all programs that this test has started, and of those that they have started."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    written = {}
    for pid in ours:
        with suppress(OSError):
            written[f"arguments of {pid}"] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    assert len(written) > 3, "this test, the broker, the gateway and the monitor"
    return written


def _pages(address: str, token: str) -> dict[str, str]:
    """All that the monitor tells by its interface and by pages, with parameters too; errors as well."""
    with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        described = client.get("/api/openapi.json").json()["paths"]
        kinds = [path for path, verbs in described.items() if "get" in verbs and "live" not in path]
        paths = [*dict.fromkeys(re.sub(r"{[^}]*}", name, path) for path in kinds for name in NAMES)]
        answers = [client.get(path if path.startswith("/api") else f"/api{path}") for path in paths]
        assert sum(answer.status_code == 200 for answer in answers) > 12, [(str(a.url), a.status_code) for a in answers]
        readers = [f"readers/{reader['reader']}" for reader in client.get("/api/readers").json()["found"]]
        assert len(readers) == 2, "one of each subscription"
        pages = [client.get(f"/{page}") for page in ("", *PAGES, *readers)]
        assert {answer.status_code for answer in pages} == {200}, [(str(a.url), a.status_code) for a in pages]
        return {str(answer.url): answer.text for answer in (*pages, *answers)}
