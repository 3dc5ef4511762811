"""An emitter that goes through an outage of the database, and what must hold afterwards."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer
from tests.support.waiting import answered, eventually
from xbus.errors import Failed
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context

CALL_SECONDS = 90.0
PAUSE_SECONDS = 0.02


class Rider:
    """Sends an envelope with one item after the other, each again until it is acknowledged.

    Args:
        client: of the front.
        token: of an emitter.
        item_bytes: how large each item is.
    """

    def __init__(self, client: Client, token: str, item_bytes: int) -> None:
        self._client = client
        self._token = token
        self._item_bytes = item_bytes
        self.acknowledged: list[str] = []
        self.codes: set[str] = set()
        self._enough = False

    async def run(self) -> None:
        while not self._enough:
            envelope_id, event = str(uuid.uuid4()), str(uuid.uuid4())
            data = pack_items([os.urandom(self._item_bytes)])
            while not await self._put(envelope_id, [[event, "test_event", 1, data]]):
                await asyncio.sleep(PAUSE_SECONDS)
            self.acknowledged.append(envelope_id)

    async def _put(self, envelope_id: str, events: list[Any]) -> bool:
        try:
            await self._client.call("xbus.put_envelope", self._token, envelope_id, events, timeout=CALL_SECONDS)
        except Failed as failure:
            self.codes.add(failure.code)
            return False
        return True

    async def more(self, envelopes: int = 5) -> None:
        """Wait until so many more are acknowledged."""
        enough = len(self.acknowledged) + envelopes
        await eventually(lambda: len(self.acknowledged) >= enough, "envelopes are acknowledged")

    async def refused(self, code: str = "journal_unavailable") -> None:
        await eventually(lambda: code in self.codes, f"a call is answered with {code}")

    async def healthy(self, healthy: bool, code: str = "journal_unavailable") -> None:
        """Wait until health tells of that problem, or does not."""

        async def so() -> bool:
            return (code not in await self._problems()) is healthy

        await answered(so, f"health is {'good' if healthy else 'bad'} as to {code}")

    async def _problems(self) -> set[str]:
        report: Any = await self._client.call("xbus.health", timeout=CALL_SECONDS)
        return {problem["code"] for problem in report["problems"]}

    def stop(self) -> None:
        self._enough = True


@contextlib.asynccontextmanager
async def riding(daemon: Daemon, item_bytes: int = 10) -> AsyncIterator[Rider]:
    """While the block lasts envelopes go to a consumer; afterwards each that was acknowledged has come once."""
    context = new_context()
    client = Client(context, name="rider")
    client.connect(daemon.front)
    try:
        told: Any = await client.call("xbus.login", "emitter_1", PASSWORD, timeout=CALL_SECONDS)
        rider = Rider(client, told["token"], item_bytes)
        async with OldConsumer(daemon.back, "c_1") as consumer:
            sending = asyncio.create_task(rider.run())
            try:
                await rider.more()
                yield rider
                await rider.more()
            finally:
                rider.stop()
            await sending
            await consumer.wait_for(rider.acknowledged)
            assert consumer.committed == rider.acknowledged
    finally:
        client.close()
        context.destroy(linger=0)
    assert rider.codes <= {"journal_unavailable"}, rider.codes
    assert daemon.process.runs
