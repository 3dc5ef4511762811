"""The health of a broker that does not answer."""

import asyncio

import anyio.to_thread
from httpx2 import ASGITransport, AsyncClient

from tests.integration.monitor.conftest import CHEAP, Monitor
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.admin.why.inquiry import RunningBroker
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build


class SilentBroker(RunningBroker):
    """A broker that nobody hears again, and that counts who asks."""

    asked = 0

    async def health_of_both(self) -> tuple[None, None]:
        self.asked += 1
        await asyncio.Event().wait()
        return None, None


async def test_who_waits_for_the_broker_keeps_no_thread_from_others(monitor: Monitor) -> None:
    bus = monitor.bus
    broker = SilentBroker(None)
    app = build(BusAccess(bus.config, bus.journal, bus.clock, CHEAP, broker), is_encrypted=False)
    token = monitor.program("nina").headers["authorization"]
    anyio.to_thread.current_default_thread_limiter().total_tokens = 2
    async with AsyncClient(transport=ASGITransport(app), base_url="http://m", headers={"authorization": token}) as at:
        waiting = [asyncio.create_task(at.get("/api/health")) for _ in range(3)]
        await eventually(lambda: broker.asked == 3, "all ask for the health")
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert (await at.get("/api/types")).status_code == 200
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
