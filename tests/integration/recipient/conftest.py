"""A broker for recipients, and recipients that it serves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.integration.recipient.broker_double import LOGIN, SECONDS, BrokerDouble
from tests.support.waiting import eventually
from xbus.recipient import Recipient, serve
from xbus.rpc.context import new_context


@pytest.fixture
async def broker() -> AsyncIterator[BrokerDouble]:
    """A broker double, listening."""
    context = new_context()
    double = BrokerDouble(context).start()
    yield double
    double.stop()
    context.destroy(linger=0)


class Served:
    """A recipient that runs in a task of the test's loop."""

    def __init__(self, broker: BrokerDouble, recipient: Recipient | type[Recipient], options: dict[str, Any]) -> None:
        self._stop = asyncio.Event()
        options = {"heartbeat_seconds": 0.05, "stop_timeout": 0.1, **options}
        self.task = asyncio.create_task(serve(recipient, broker.address, LOGIN, "password", self._stop, **options))

    def tell_to_stop(self) -> None:
        """What a signal does."""
        self._stop.set()

    async def stop(self) -> None:
        """Stop it and wait for its end."""
        self.tell_to_stop()
        await asyncio.wait_for(self.task, SECONDS)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture(params=["own connection", "port"])
def bind(request: pytest.FixtureRequest) -> str:
    """Where the recipient listens; the test runs once for each way in which the broker may call."""
    return "tcp://127.0.0.1:*" if request.param == "port" else ""


@pytest.fixture
async def serve_recipient(broker: BrokerDouble, bind: str) -> AsyncIterator[Serve]:
    """Serves a recipient until the test is over; returns once it is registered."""
    running: list[Served] = []

    async def start(recipient: Recipient | type[Recipient], **options: Any) -> Served:
        served = Served(broker, recipient, {"bind": bind, **options})
        running.append(served)
        await eventually(lambda: broker.registered or served.task.done(), "the recipient registers")
        return served

    yield start
    for served in running:
        if not served.task.done():
            await served.stop()
