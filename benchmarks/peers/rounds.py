"""Rounds of all peers in turns, so that whatever else the machine does meanwhile slows all alike."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.envelopes.load import Load
from benchmarks.envelopes.rounds import most_seconds_of
from benchmarks.envelopes.stopwatch import MS
from benchmarks.peers.servers import PeerServer
from benchmarks.processes import cpu_seconds, peaks_mib
from benchmarks.programs.running import reports
from benchmarks.result import Result
from tests.support.processes import Process, module
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Peer:
    """A server that is measured.

    Attributes:
        name: as ``benchmarks.peers.known`` has it.
        settings: in words, for those who read the figures.
    """

    name: str
    settings: str
    server: PeerServer


def measure(peers: Sequence[Peer], in_flight: int, messages: int, rounds: int) -> Iterator[tuple[Peer, Result]]:
    """Measure all peers with so many messages in flight."""
    load = Load(1, in_flight, messages)
    played = [[_play(peer, load) for peer in peers] for _ in range(rounds)]
    for number, peer in enumerate(peers):
        of_peer = [of_round[number] for of_round in played]
        more = {name: median(figures[name] for figures in of_peer) for name in of_peer[0]}
        more["server_peak_mib"] = peaks_mib(*peer.server.pids)
        yield peer, Result(more.pop("acknowledged_per_s"), None, "messages/s", more)


def _play(peer: Peer, load: Load) -> Mapping[str, float]:
    most_seconds = most_seconds_of(load.envelopes)
    with _running("takes", peer, load.envelopes) as taker:
        wait_until(lambda: reports(taker) or not taker.runs, f"the taker of {peer.name} is ready")
        with _running("sends", peer, json.dumps(asdict(load)), *peer.server.pids) as sender:
            assert sender.wait(most_seconds) == 0, sender.text
            sent = reports(sender)[-1]
        assert taker.wait(most_seconds) == 0, taker.text
        server_cpu = cpu_seconds(*peer.server.pids) - sent["server_cpu_before"]
        taken = reports(taker)[-1]
    return {
        "acknowledged_per_s": load.envelopes / (sent["ended"] - sent["began"]),
        "delivered_per_s": load.envelopes / (taken["last"] - sent["began"]),
        "server_cpu_ms": server_cpu * MS / load.envelopes,
        "sender_cpu_ms": sent["cpu"] * MS / load.envelopes,
        "taker_cpu_ms": taken["cpu"] * MS / load.envelopes,
        "acknowledged_p50_ms": sent["p50_ms"],
        "acknowledged_p99_ms": sent["p99_ms"],
        "delivered_p50_ms": taken["p50_ms"],
        "delivered_p99_ms": taken["p99_ms"],
    }


@contextmanager
def _running(name: str, peer: Peer, *arguments: object) -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as folder:
        command = [*module(f"benchmarks.peers.{name}"), peer.name, peer.server.address, *map(str, arguments)]
        process = Process(*command, output=Path(folder) / "output")
        try:
            yield process
        finally:
            process.kill()
