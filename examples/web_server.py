"""A web application that sends the name that is posted to it, for any WSGI server."""

import atexit
import os
from collections.abc import Iterable
from contextlib import ExitStack
from wsgiref.types import StartResponse, WSGIEnvironment

from xbus.emitter import Emitter
from xbus.errors import Failed

url = os.environ.get("XBUS_FRONT", "tcp://127.0.0.1:1984")

stack = ExitStack()
emitter = stack.enter_context(Emitter(url, "test_emitter", "password", retry_seconds=5))
atexit.register(stack.close)


def application(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    name = request["wsgi.input"].read().decode()
    try:
        receipt = emitter.put("test_event", [{"name": name}])
    except Failed as failure:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"try again later: {failure.code}\n".encode()]
    start_response("201 Created", [("Content-Type", "text/plain")])
    return [f"sealed at position {receipt.position}, sent by process {os.getpid()}\n".encode()]
