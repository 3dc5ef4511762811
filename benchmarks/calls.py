"""Calls of the verbs of old clients over a bare socket, and the echo that they are compared with.

Nothing but the frames is made in this process, so that it can call faster than any broker answers.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from benchmarks.databases import Databases
from benchmarks.programs.running import running
from tests.support.waiting import wait_until
from xbus.rpc.frames import decode_reply, encode_request, sender_prefix

ANSWER_MS = 30_000


@contextmanager
def connected(address: str) -> Iterator["zmq.Socket[bytes]"]:
    """A socket that calls what listens at an address."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set(zmq.RCVTIMEO, ANSWER_MS)
        socket.set(zmq.LINGER, 0)
        socket.connect(address)
        yield socket


@contextmanager
def durable_echo(databases: Databases) -> Iterator["zmq.Socket[bytes]"]:
    """A socket to a process that commits what it gets as one row of a table, and sends it back: the floor of calls.

    With many calls in flight it takes what has arrived into one row and one commit, as the bus does.
    """
    with databases() as bare, running("echo", bare) as echo:
        wait_until(lambda: echo.text.endswith("\n"), "the echo is ready")
        with connected(echo.text.strip()) as socket:
            yield socket


def call(front: "zmq.Socket[bytes]", verb: str, *arguments: Any) -> Any:
    """Call a verb and give its answer."""
    front.send_multipart(request(verb, *arguments))
    return answer(front.recv_multipart())


def request(verb: str, *arguments: Any) -> list[bytes]:
    """Make the frames of a call."""
    return [*map(bytes, encode_request(sender_prefix(0, 0), 0, time.time(), verb, arguments))]


def answer(frames: list[bytes]) -> Any:
    """Read an answer that is no refusal."""
    reply = decode_reply(frames)
    assert reply.error is None, reply.error
    assert reply.answer, "the call was refused"
    return reply.answer


def rate(socket: "zmq.Socket[bytes]", message: list[bytes], calls: int, in_flight: int) -> float:
    """Answers a second, to so many calls of which so many are made before the first answer is awaited."""
    in_flight = min(in_flight, calls)
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
            answer(frames)
    return calls / elapsed
