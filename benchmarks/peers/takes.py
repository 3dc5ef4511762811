"""``python -m benchmarks.peers.takes PEER ADDRESS MESSAGES``: takes that many messages of a peer, and ends.

It prints a line of JSON when it is connected, and one about the messages as ``benchmarks.programs.takes``.
"""

import asyncio
import json
import sys

from benchmarks.envelopes.ages import Ages
from benchmarks.envelopes.stamps import sent_ns
from benchmarks.peers.known import connector


async def main(peer: str, address: str, messages: int) -> None:
    """Take the messages, and print how long it took."""
    async with connector(peer)(address, 1) as client:
        ages = Ages()
        print(json.dumps({"ready": True}), flush=True)
        await client.take(lambda message: ages.add(sent_ns(message)), messages)
        print(json.dumps(ages.report()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
