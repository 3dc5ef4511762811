"""An emitter that always keeps so many calls under way, in a process of its own.

    python -m tests.support.flooding ADDRESS LOGIN DEPTH BYTES

Each call brings an envelope of one item, of so many bytes. Once a second the program writes how many were answered.
"""

import asyncio
import sys
import time
from uuid import uuid4

from tests.support.bus import PASSWORD
from xbus.errors import Failed
from xbus.rpc.client import Client
from xbus.rpc.codec import Value, pack_items
from xbus.rpc.context import new_context

SECONDS = 60.0


class Flood:
    """Sends envelopes without a pause.

    Args:
        client: connected to the front.
        token: of the login.
        size: the bytes of each item.
    """

    def __init__(self, client: Client, token: str, size: int) -> None:
        self._client = client
        self._token = token
        self._data = pack_items([b"x" * size])
        self.answered = 0

    def put(self) -> "asyncio.Future[Value]":
        """Send an envelope."""
        events = [[str(uuid4()), "test_event", 1, self._data]]
        return self._client.call("xbus.put_envelope", self._token, str(uuid4()), events, timeout=SECONDS)

    async def send(self) -> None:
        """Send one envelope after the other, for ever."""
        while True:
            try:
                await self.put()
            except Failed:
                await asyncio.sleep(0.01)
            else:
                self.answered += 1


async def logged_in(client: Client, login: str) -> str:
    """Log in at the front, and give the token."""
    answer = await client.call("xbus.login", login, PASSWORD, timeout=SECONDS)
    assert isinstance(answer, dict)
    return str(answer["token"])


async def main(address: str, login: str, depth: int, size: int) -> None:
    """Flood until the process is ended."""
    context = new_context()
    client = Client(context, name="flood")
    client.connect(address)
    flood = Flood(client, await logged_in(client, login), size)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(depth):
            tasks.create_task(flood.send())
        while True:
            before, began = flood.answered, time.monotonic()
            await asyncio.sleep(1)
            sys.stdout.write(f"answered {(flood.answered - before) / (time.monotonic() - began):.0f} a second\n")


if __name__ == "__main__":
    _, place, name, deep, item_bytes = sys.argv
    asyncio.run(main(place, name, int(deep), int(item_bytes)))
