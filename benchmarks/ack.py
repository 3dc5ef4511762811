"""One-item calls, ``send_item`` as the old emitters make it: how many a second are acknowledged, and so durable.

Floor: a bare echo in a process of its own which stores what it gets in one row of a table, commits, and sends it back;
with many in flight it takes what is there into one row and one commit, as the bus does. The caller is the same.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD, running_bus
from benchmarks.databases import Databases
from benchmarks.items import sample
from benchmarks.programs.running import running
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.waiting import wait_until
from xbus.rpc.frames import decode_reply, encode_request, sender_prefix

ANSWER_MS = 30_000


def measure_one(databases: Databases, sizes: Sizes) -> Result:
    """One at a time: the next call is made when the one before is answered."""
    return _measure(databases, sizes.rounds, sizes.single_calls, in_flight=1)


def measure_100(databases: Databases, sizes: Sizes) -> Result:
    """A hundred calls in flight at any time."""
    return _measure(databases, sizes.rounds, sizes.pipelined_calls, in_flight=100)


def _measure(databases: Databases, rounds: int, calls: int, in_flight: int) -> Result:
    with databases() as url, running_bus(url) as daemon, databases() as bare, running("echo", bare) as echo:
        wait_until(lambda: echo.text.endswith("\n"), "the echo is ready")
        with connected(daemon.front) as front, connected(echo.text.strip()) as echoing:
            call = _item_call(front)
            item = [sample()[0]]
            found = [
                (rate(front, call, calls, in_flight), rate(echoing, item, calls, in_flight)) for _ in range(rounds)
            ]
    return Result.median(found, "calls/s")


@contextmanager
def connected(address: str) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set(zmq.RCVTIMEO, ANSWER_MS)
        socket.set(zmq.LINGER, 0)
        socket.connect(address)
        yield socket


def _item_call(front: "zmq.Socket[bytes]") -> list[bytes]:
    """The call that sends an item, within an envelope and event that are opened for it."""
    token = _call(front, "login", EMITTER, PASSWORD)
    envelope_id = _call(front, "start_envelope", token)
    event_id = _call(front, "start_event", token, envelope_id, EVENT_TYPE, 0)
    return _request("send_item", token, envelope_id, event_id, sample()[0])


def _call(front: "zmq.Socket[bytes]", verb: str, *arguments: Any) -> Any:
    front.send_multipart(_request(verb, *arguments))
    return _answer(front.recv_multipart())


def _request(verb: str, *arguments: Any) -> list[bytes]:
    return encode_request(sender_prefix(0, 0), 0, time.time(), verb, arguments)


def _answer(frames: list[bytes]) -> Any:
    reply = decode_reply(frames)
    assert reply.error is None, reply.error
    assert reply.answer, "the call was refused"
    return reply.answer


def rate(socket: "zmq.Socket[bytes]", message: list[bytes], calls: int, in_flight: int) -> float:
    """Answers a second, to so many calls of which so many are made before the first answer is awaited."""
    began = time.perf_counter()
    for _ in range(in_flight):
        socket.send_multipart(message)
    answers = [socket.recv_multipart()]
    for _ in range(calls - in_flight):
        socket.send_multipart(message)
        answers.append(socket.recv_multipart())
    for _ in range(in_flight - 1):
        answers.append(socket.recv_multipart())
    elapsed = time.perf_counter() - began
    if len(message) > 1:
        for frames in answers:
            _answer(frames)
    return calls / elapsed
