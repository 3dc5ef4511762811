"""``python -m benchmarks.peers``: one JSON line per peer and number of messages in flight, on standard output.

``ONLY`` names one peer, ``ENVELOPES`` is how many messages are sent where not so many as usual, ``FIGURES`` is a file
that keeps the lines for the report; all are read from the environment. The rounds of all peers are taken in turns.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial

from benchmarks.__main__ import chosen
from benchmarks.databases import databases, of_server
from benchmarks.peers import bus, nats_jetstream, procrastinate_jobs, rabbitmq, redis_streams
from benchmarks.peers.rounds import Peer, measure
from benchmarks.peers.servers import PeerMissing, PeerServer
from benchmarks.recording import Recorder
from benchmarks.sizes import Sizes
from benchmarks.stopping import end_all_on_sigterm
from tests.support.postgres import NotFound, Server, cluster

IN_FLIGHT = (1, 10, 100)


def main(only: str, sizes: Sizes, recorder: Recorder) -> None:
    """Measure and print.

    Args:
        only: a peer; all of them where it is empty.
        sizes: how much is sent.
        recorder: gets the figures.
    """
    recorder.begin("bench-peers")
    with ExitStack() as exit_stack:
        peers = list(_started(exit_stack, only, recorder))
        for in_flight in IN_FLIGHT:
            messages = sizes.small_single if in_flight == 1 else sizes.small_pipelined
            for peer, found in measure(peers, in_flight, messages, sizes.rounds):
                labels = {
                    "scenario": f"peers_{in_flight}",
                    "peer": peer.name,
                    "settings": f"{peer.server.version}, {peer.settings}",
                }
                recorder.record(found.labelled(**labels))


def _started(exit_stack: ExitStack, only: str, recorder: Recorder) -> Iterator[Peer]:
    known = {**_own(exit_stack), **_others(), **_on_postgresql(exit_stack)}
    for name in chosen("ONLY", only, known, ""):
        settings, server = known[name]
        try:
            yield Peer(name, settings, exit_stack.enter_context(server()))
        except PeerMissing as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr, flush=True)
            recorder.leave_out(name, str(missing))


Known = Mapping[str, tuple[str, Callable[[], AbstractContextManager[PeerServer]]]]
"""Settings and servers by the names of peers."""


def _own(exit_stack: ExitStack) -> Known:
    sqlite = exit_stack.enter_context(databases("sqlite"))
    return {"xbus_sqlite": (bus.SETTINGS, partial(bus.server, sqlite))}


def _others() -> Known:
    synced = partial(nats_jetstream.server, nats_jetstream.SYNCED)
    return {
        "rabbitmq": (rabbitmq.SETTINGS, rabbitmq.server),
        "redis": (redis_streams.SETTINGS, redis_streams.server),
        "nats_unsynced": (nats_jetstream.SETTINGS, nats_jetstream.server),
        "nats_synced": (nats_jetstream.SETTINGS_SYNCED, synced),
    }


def _on_postgresql(exit_stack: ExitStack) -> Known:
    try:
        private = exit_stack.enter_context(cluster(on_disk=True))
    except NotFound as missing:
        print(f"what needs PostgreSQL is left out: {missing}", file=sys.stderr, flush=True)
        return {}
    server = exit_stack.enter_context(closing(Server(private.url)))
    return {
        "xbus_postgresql": (bus.SETTINGS, partial(bus.server, of_server(server), private.pid)),
        "procrastinate": (procrastinate_jobs.SETTINGS, partial(procrastinate_jobs.server, server, private.pid)),
    }


if __name__ == "__main__":
    end_all_on_sigterm()
    main(os.environ.get("ONLY", ""), Sizes.of_environment(), Recorder.of_environment())
