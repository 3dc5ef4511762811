"""``python -m benchmarks.peers.sends PEER ADDRESS LOAD PID...``: sends messages to a peer.

The load and the line of JSON that it prints are those of ``benchmarks.programs.puts``.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from time import monotonic

from benchmarks.envelopes.load import Load
from benchmarks.envelopes.stamps import stamped
from benchmarks.envelopes.stopwatch import Stopwatch
from benchmarks.peers.client import PeerClient
from benchmarks.peers.known import connector


async def main(peer: str, address: str, load: Load, server_pids: list[int]) -> None:
    """Send the load, and print how long it took."""
    async with connector(peer)(address, load.in_flight) as client:
        turns, seconds = iter(range(load.envelopes)), list[float]()
        stopwatch = Stopwatch(*server_pids)
        await asyncio.gather(*(send(client, turns, seconds, load.item_bytes) for _ in range(load.in_flight)))
        print(json.dumps(stopwatch.report(seconds)), flush=True)


async def send(client: PeerClient, turns: Iterator[int], seconds: list[float], size: int) -> None:
    """Send one message after the other, until all of them have been begun by somebody."""
    for _ in turns:
        began = monotonic()
        await client.send(stamped(size))
        seconds.append(monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Load(**json.loads(sys.argv[3])), list(map(int, sys.argv[4:]))))
