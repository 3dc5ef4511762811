"""Posts that wait together travel together: those of a token share messages to the front, however many come."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import EventStart
from xbus.emitter.options import Options
from xbus.emitter.receipt import Receipt
from xbus.errors import XbusError
from xbus.http.front import FrontConnection, publish
from xbus.ids import Ids
from xbus.rpc.codec import pack
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch, Give, SharedCall, shared, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.server import Server

START = EventStart("orders")


def _arguments(token: str, envelopes: list[object], in_order: bool = False) -> None:
    """Tell the parameters of ``xbus.put_envelopes``."""


class SlowFront:
    """Notes the messages that come, and answers them by hand."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, int]] = []
        """The token and the number of envelopes of each."""
        self._unanswered: list[tuple[SharedCall, Give]] = []

    @verb("xbus.get_limits")
    def get_limits(self, token: str) -> dict[str, object]:
        return {"session_seconds": 60, "max_item_bytes": 1000, "max_batch_bytes": 10_000, "groups": True}

    @shared("xbus.put_envelopes", _arguments)
    def put_envelopes(self, calls: Sequence[SharedCall], give: Give) -> None:
        for call in calls:
            token, envelopes = call.args[:2]
            assert isinstance(token, str)
            assert isinstance(envelopes, list)
            self.messages.append((token, len(envelopes)))
            self._unanswered.append((call, give))

    def answer(self) -> None:
        """Answer all messages that have come."""
        unanswered, self._unanswered = self._unanswered, []
        for call, give in unanswered:
            give([call], [[(envelope[0], 7, bytes(32)) for envelope in call.args[1]]])  # type: ignore[union-attr,index]


async def one_item() -> AsyncIterator[bytes]:
    yield pack({"a": 1})


async def test_posts_that_wait_together_go_in_one_message_by_token() -> None:
    front = SlowFront()
    context = new_context()
    server = Server(context, Dispatch(front), name="front", limits=ServerLimits(100_000))
    address = server.bind("tcp://127.0.0.1:0")
    server.start()
    clock = SystemClock()
    posts: list[asyncio.Task[Receipt]] = []

    def post(line: EmitterContext, count: int) -> None:
        posts.extend([asyncio.create_task(publish(line, START, one_item(), {})) for _ in range(count)])

    try:
        async with FrontConnection(address, clock, Ids(clock, random.Random(7).randbytes), Options()) as connection:
            north, south = await connection.line("north"), await connection.line("south")
            for count in (1, 3):
                post(north, count)
                await eventually(lambda count=count: ("north", count) in front.messages, "they come together")  # type: ignore[misc]
            # As many messages as may be out wait for their answers: what comes now waits, by token.
            for _ in range(5):
                post(north, 2)
                await asyncio.sleep(0)
            post(south, 4)
            await eventually(lambda: ("south", 4) in front.messages, "the other token waits for nobody")
            assert front.messages == [("north", 1), ("north", 3), ("south", 4)]
            front.answer()
            await eventually(lambda: len(front.messages) == 4, "those that waited come")
            front.answer()
            receipts = await asyncio.gather(*posts)
            assert front.messages[3:] == [("north", 10)]
            assert len({receipt.envelope_id for receipt in receipts}) == 18
    finally:
        server.close()
        with suppress(XbusError):
            context.destroy(linger=0)
