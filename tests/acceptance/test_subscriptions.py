"""Subscriptions in real programs: gateway, broker and subscriber die between call and checkpoint, nothing is lost."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from tests.conftest import StartDaemon
from tests.support import receiving
from tests.support.bus import PASSWORD, add_bus, apply_text
from tests.support.gateway import Gate
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.waiting import wait_until
from xbus.broker.back.readers import MOST_WAIT_SECONDS
from xbus.broker.journal.api_tokens import add_api_token
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.emitter import Emitter
from xbus.http.callbacks.service import GatewayBack
from xbus.http.front import SIGNS
from xbus.rpc.client import open_client

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ENVELOPES = 60

CLOUD = """
[[subscription]]
name = "cloud"
event_types = ["orders"]
url = "http://127.0.0.1:{port}/hook"
format = "cloudevents"
max = 3
timeout = 0
"""

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


def configure(database_url: str, port: int, more: str = "") -> str:
    """Add the bus and its subscription; the token of the gateway."""
    add_bus(database_url, {"orders": {"store": []}})
    apply_text(database_url, BUS.format(port=port, secret=SECRET) + more)
    with writing(database_url) as connection:
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


class Shop(BaseHTTPRequestHandler):
    """A subscriber that takes batches once ``status`` says so."""

    status = 500
    ids: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.ids.append(self.headers["webhook-id"])
        self.send_response(self.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_shop() -> Iterator[tuple[type[Shop], int]]:
    answering = type("AnsweringShop", (Shop,), {"ids": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield answering, server.server_address[1]
        server.shutdown()


def xbus(config: Path, *arguments: str) -> str:
    done = subprocess.run([script("xbus"), *arguments, "-c", config], capture_output=True, text=True, check=True)
    return done.stdout


def asked(address: str, path: str, token: str) -> Any:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def read_metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_a_refused_batch_is_parked_and_resumed_and_a_pause_stops_its_calls(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    with serving_shop() as (shop, port):
        token = configure(sqlite_url, port)
        settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": token}
        settings |= {"callback_hosts": "127.0.0.0/8", "metrics_from": "127.0.0.1"}
        settings["listen"] = f"127.0.0.1:{free_port()}"
        retry = {"attempts": "40", "first_delay": "0.5", "longest_delay": "0.5", "jitter": "0"}
        daemon = start_daemon(sqlite_url, {"http": settings, "back": retry})
        serving = gateway(daemon.config)
        try:
            with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
                emitter.put("orders", [{"number": 1}])
            wait_until(lambda: len(shop.ids) == 1, "the shop is called", 60)
            xbus(daemon.config, "pause", "service", "subscription/shop", "--reason", "to look")
            wait_until(lambda: "version=8" in daemon.log_file.read_text(), "the broker knows of the pause", 30)
            called, later = len(shop.ids), time.monotonic() + 3
            wait_until(lambda: time.monotonic() > later, "six delays have passed", 30)
            # One call may have been under way.
            assert len(shop.ids) <= called + 1 < 40
            xbus(daemon.config, "resume", "service", "subscription/shop")
            wait_until(lambda: "callback_refused" in xbus(daemon.config, "parked", "batch", "list"), "it is parked", 60)
            (parked,) = set(shop.ids)
            assert len(shop.ids) == 40
            assert "batches_parked" in xbus(daemon.config, "why", "--role", "shop")
            (told,) = asked(settings["listen"], "/v1/subscriptions", token)["subscriptions"]
            assert (told["state"], told["failures"], told["parked_batches"]) == ("failed", 40, 1)
            assert told["code"] == "callback_refused"
            metrics = read_metrics(settings["listen"])
            assert metrics['routemaster_delivery_batches_total{status="failure",subscriber="shop"}'] == 40
            assert metrics['routemaster_latency_batches_count_total{subscriber="shop"}'] == 1
            assert metrics['routemaster_subscriber_queue_events{subscriber="shop"}'] == 0
            shop.status = 204
            xbus(daemon.config, "parked", "batch", "resume", parked, "--reason", "mended")
            wait_until(lambda: len(shop.ids) == 41, "the batch comes again", 60)
            assert set(shop.ids) == {parked}
        finally:
            serving.kill()


def test_a_revoked_callback_token_is_refused_and_nobody_is_called(sqlite_url: str, start_daemon: StartDaemon) -> None:
    with serving_shop() as (shop, port):
        shop.status = 204
        token = configure(sqlite_url, port)
        settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": token}
        daemon = start_daemon(sqlite_url, {"http": settings | {"callback_hosts": "127.0.0.0/8"}})
        serving = gateway(daemon.config)
        try:
            with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
                emitter.put("orders", [{"number": 1}])
                wait_until(lambda: len(shop.ids) == 1, "the shop is called", 60)
                xbus(daemon.config, "token", "revoke", "gateway")
                log = daemon.config.with_name("http.log")
                wait_until(lambda: "subscriptions not read" in log.read_text(), "the token is refused", 30)
                emitter.put("orders", [{"number": 2}])
            looks = log.read_text().count("subscriptions not read")
            wait_until(lambda: log.read_text().count("subscriptions not read") > looks + 1, "it looks again", 30)
            assert len(shop.ids) == 1
        finally:
            serving.kill()


async def test_a_gateway_hears_of_a_subscription_at_once(sqlite_url: str, start_daemon: StartDaemon) -> None:
    token = configure(sqlite_url, free_port())
    daemon = start_daemon(sqlite_url)
    with ExitStack() as exit_stack:
        back = GatewayBack(open_client(exit_stack, daemon.back, SystemClock(), SIGNS), token)
        first = await back.subscriptions(-1, MOST_WAIT_SECONDS)
        assert [each["name"] for each in first["subscriptions"]] == ["shop"]
        async with asyncio.timeout(MOST_WAIT_SECONDS / 2), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(back.subscriptions(first["changes"], MOST_WAIT_SECONDS))
            tasks.create_task(asyncio.to_thread(apply_text, sqlite_url, CLOUD.format(port=free_port())))
    assert [each["name"] for each in waiting.result()["subscriptions"]] == ["cloud", "shop"]


def test_two_gateways_share_a_subscription_and_events_of_cloudevents_go_round(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    port, file = free_port(), tmp_path / "calls"
    token = configure(sqlite_url, free_port(), CLOUD.format(port=port))
    with writing(sqlite_url) as connection:
        shop = add_api_token(connection, "shop", emitter="emitter_1", at=SystemClock().now())
    settings = {"listen": "127.0.0.1:0", "callbacks": "yes", "callback_token": token, "callback_hosts": "127.0.0.0/8"}
    daemon = start_daemon(sqlite_url, {"http": settings})
    gates = [Gate(daemon.config, name).start() for name in ("north", "south")]
    try:
        with receiver(port, file):
            sent = [cloud_event(number) for number in range(12)]
            for number, event in enumerate(sent[:6]):
                write = to_binary_event if number % 2 else to_structured_event
                message = write(event)
                post(gates[number % 2].address, shop, message.headers, message.body)
            batch = json.dumps([json.loads(JSONFormat().write(event)) for event in sent[6:9]]).encode()
            post(gates[0].address, shop, {"content-type": "application/cloudevents-batch+json"}, batch)
            wait_until(lambda: len(received(file)) >= 9, "the subscriber is called", 60)
            ids = [call["headers"]["webhook-id"] for call in calls(file)]
            assert len(ids) == len(set(ids)), "one call for each batch, however many gateways there are"
            # One of them has the range. Whichever it is, the other one goes on.
            for dead, living, event in ((0, 1, sent[9]), (1, 0, sent[10])):
                gates[dead].kill()
                message = to_binary_event(event)
                post(gates[living].address, shop, message.headers, message.body)
                wait_until(partial(has_come, file, event), "the other gateway calls", 60)
                gates[dead].start()
    finally:
        for gate in gates:
            gate.kill()
    # The events of a batch of CloudEvents are envelopes of their own, in any order.
    came = sorted(received(file), key=lambda event: event[1]["number"])
    assert came == [*map(told, sent[:11])]


def cloud_event(number: int) -> CloudEvent:
    given = {"type": "orders", "source": "/shop", "id": f"order {number}", "specversion": "1.0"}
    given |= {"datacontenttype": "application/json", "subject": f"client {number % 3}"}
    return CloudEvent(given | {"time": datetime(2030, 1, 1, tzinfo=UTC)}, {"number": number})


def post(address: str, token: str, headers: Any, body: Any) -> None:
    url = f"{address}/v1/cloudevents"
    request = urllib.request.Request(url, body, {**headers, "Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def has_come(file: Path, event: BaseCloudEvent) -> bool:
    return told(event) in received(file)


def told(event: BaseCloudEvent) -> tuple[Any, Any]:
    return event.get_attributes(), event.get_data()


def received(file: Path) -> list[tuple[Any, Any]]:
    """The events that came, as the library of the package index reads them; each batch once."""
    once = {call["headers"]["webhook-id"]: json.loads(call["body"]) for call in calls(file)}
    return [told(JSONFormat().read(CloudEvent, json.dumps(each))) for batch in once.values() for each in batch]
