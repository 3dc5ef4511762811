"""One-item calls, ``send_item`` as the old emitters make it: how many a second are acknowledged, and so durable.

Floor: a bare echo in a process of its own which stores what it gets in one row of a table, commits, and sends it back;
with many in flight it takes what is there into one row and one commit, as the bus does. The caller is the same.
"""

import zmq

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD, running_bus
from benchmarks.calls import call, connected, durable_echo, rate, request
from benchmarks.databases import Databases
from benchmarks.items import sample
from benchmarks.result import Result
from benchmarks.sizes import Sizes


def measure_one(databases: Databases, sizes: Sizes) -> Result:
    """One at a time: the next call is made when the one before is answered."""
    return _measure(databases, sizes.rounds, sizes.single_calls, in_flight=1)


def measure_100(databases: Databases, sizes: Sizes) -> Result:
    """A hundred calls in flight at any time."""
    return _measure(databases, sizes.rounds, sizes.pipelined_calls, in_flight=100)


def _measure(databases: Databases, rounds: int, calls: int, in_flight: int) -> Result:
    with (
        databases() as url,
        running_bus(url) as daemon,
        durable_echo(databases) as echo,
        connected(daemon.front) as front,
    ):
        message = _item_call(front)
        item = [sample()[0]]
        found = [(rate(front, message, calls, in_flight), rate(echo, item, calls, in_flight)) for _ in range(rounds)]
    return Result.median(found, "calls/s")


def _item_call(front: "zmq.Socket[bytes]") -> list[bytes]:
    """The call that sends an item, within an envelope and event that are opened for it."""
    token = call(front, "login", EMITTER, PASSWORD)
    envelope_id = call(front, "start_envelope", token)
    event_id = call(front, "start_event", token, envelope_id, EVENT_TYPE, 0)
    return request("send_item", token, envelope_id, event_id, sample()[0])
