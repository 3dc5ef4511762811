"""Health tells of a reader that nobody reads for."""

from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.reader.test_sharing import Programs
from tests.support.bus import add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from tests.support.waiting import answered
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.roles import list_roles
from xbus.clock import SystemClock
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.states import PresenceState


async def test_health_tells_of_a_reader_that_stays_away(tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "xbus.db")
    add_bus(url, {"orders": {"store": []}})
    add_reader(url, "billing", "orders", lease=1.0)
    options = {"health": {"interval": 0.1, "absent_minutes": 0, "parked_minutes": "never"}}
    broker = Daemon(tmp_path / "daemon", url, options)
    broker.start()
    context = new_context()
    client = Client(context, name="health", clock=SystemClock())
    client.connect(broker.back)

    async def absent() -> list[str]:
        answer: Any = await client.call("xbus.health", timeout=30)
        return [problem["about"] for problem in answer["problems"] if problem["code"] == "reader_absent"]

    async def present() -> bool:
        return not await absent()

    try:
        async with Programs(broker) as programs:
            assert await present()
            await programs.send("orders", 1)
            assert await answered(absent, "the reader is told of") == ["billing"]
            program = await programs.begin("billing")
            batch = await program.batch()
            await answered(present, "the end is told of")

            async def is_shown(state: PresenceState) -> bool:
                with reading(url) as connection:
                    return [role.state for role in list_roles(connection, "billing_1")] == [state]

            await program.drain(batch)
            await program.call("xbus.leave_ranges")
            await answered(partial(is_shown, PresenceState.PRESENT), "the role is shown as present")
            await program.log_out()
            await answered(partial(is_shown, PresenceState.ABSENT), "the role is shown as absent")
    finally:
        client.close()
        context.destroy(linger=0)
        broker.kill()
