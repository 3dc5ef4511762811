"""A web application that answers also while the bus is away: each of its processes has an outbox of its own."""

import itertools
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from xbus.emitter import Emitter
from xbus.errors import Refused

url = os.environ.get("XBUS_FRONT", "tcp://127.0.0.1:1984")
stack = ExitStack()


def open_emitter(folder: Path) -> Emitter:
    for number in itertools.count(1):
        try:
            return stack.enter_context(Emitter(url, "test_emitter", "password", outbox=folder / f"{number}.outbox"))
        except Refused as refusal:
            if refusal.code != "outbox_in_use":
                raise
    raise AssertionError("numbers never end")


emitter = open_emitter(Path(os.environ.get("OUTBOXES", ".")))


def application(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    name = request["wsgi.input"].read().decode()
    emitter.put("test_event", [{"name": name}])
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [f"queued by process {os.getpid()}\n".encode()]
