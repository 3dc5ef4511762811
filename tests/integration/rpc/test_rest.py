"""A server at which nobody calls leaves the machine alone."""

import asyncio
import selectors
from pathlib import Path

from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import answered
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.guard import ServerLimits
from xbus.rpc.guard.watch import LOOK_SECONDS
from xbus.rpc.server import Server

LOOKS = 10

MOST_TURNS = LOOKS // 2
"""A few turns are others': the end of the sleep, and the look at peers that are slow to greet."""


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of its loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def test_a_guard_looks_only_while_there_are_connections(tmp_path: Path) -> None:
    selector = CountingSelector()

    async def rests() -> bool:
        """Check whether the loop has hardly any turns while the guard could look often."""
        before = selector.turns
        await asyncio.sleep(LOOKS * LOOK_SECONDS)
        return selector.turns - before <= MOST_TURNS

    async def is_awake() -> bool:
        return not await rests()

    async def main() -> None:
        context = new_context()
        # libzmq has this address, and so the guard.
        server = Server(context, Dispatch(Verbs()), name="test server", limits=ServerLimits(100_000))
        address = server.bind(f"ipc://{tmp_path}/socket")
        server.start()
        await answered(rests, "the guard of a new server rests")
        client = Client(context, name="test client")
        client.connect(address)
        assert await client.call("echo", 1) == 1
        await answered(is_awake, "the guard looks")
        client.close()
        await answered(rests, "the guard rests again")
        server.close()
        context.destroy(linger=0)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())
