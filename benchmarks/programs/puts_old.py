"""``python -m benchmarks.programs.puts_old FRONT LOAD PID``: sends envelopes of one item by the verbs of old clients.

Each of the clients, all in this process, has a socket of its own and awaits each answer before its next call:
``start_envelope``, ``start_event``, ``send_item``, ``end_event``, ``end_envelope``. The load and the line of JSON that
it prints are those of ``puts``.
"""

import json
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any, TypeAlias

import zmq

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD
from benchmarks.calls import ANSWER_MS, answer, call, connected, request
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.stamps import stamped
from benchmarks.envelopes.stopwatch import Stopwatch

Calls: TypeAlias = Generator[list[bytes], Any, None]
"""Calls of one client: yields the frames of each and gets its answer."""


def main(front: str, load: Load, broker_pid: int) -> None:
    """Log all clients in, send the envelopes, and print how long it took."""
    with ExitStack() as exit_stack:
        sockets = [exit_stack.enter_context(connected(front)) for _ in range(load.emitters)]
        turns, seconds = iter(range(load.envelopes)), list[float]()
        calls = {socket: send(call(socket, "login", EMITTER, PASSWORD), turns, seconds, load) for socket in sockets}
        stopwatch = Stopwatch(broker_pid)
        carry_out(calls)
        print(json.dumps(stopwatch.report(seconds)), flush=True)


def carry_out(calls: dict["zmq.Socket[bytes]", Calls]) -> None:
    """Make the calls of all clients, each when the one before it is answered."""
    poller, open_calls = zmq.Poller(), 0
    for socket, of_client in calls.items():
        if (first := next(of_client, None)) is not None:
            socket.send_multipart(first)
            poller.register(socket, zmq.POLLIN)
            open_calls += 1
    while open_calls:
        readable = poller.poll(ANSWER_MS)
        assert readable, "the broker answers"
        for socket, _ in readable:
            try:
                socket.send_multipart(calls[socket].send(answer(socket.recv_multipart())))
            except StopIteration:
                poller.unregister(socket)
                open_calls -= 1


def send(token: str, turns: Iterator[int], seconds: list[float], load: Load) -> Calls:
    """Send one envelope after the other, until all of them have been begun by some client."""
    for _ in turns:
        began = monotonic()
        item = stamped(load.item_bytes)
        envelope_id = yield request("start_envelope", token)
        event_id = yield request("start_event", token, envelope_id, EVENT_TYPE, 1)
        yield request("send_item", token, envelope_id, event_id, item)
        yield request("end_event", token, envelope_id, event_id)
        yield request("end_envelope", token, envelope_id)
        seconds.append(monotonic() - began)


if __name__ == "__main__":
    main(sys.argv[1], Load(**json.loads(sys.argv[2])), int(sys.argv[3]))
