"""Posts that wait together travel together: those of a token share messages to the front, however many come."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest

from tests.support.waiting import eventually
from xbus.clock import SystemClock
from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import EventStart
from xbus.emitter.options import Options
from xbus.emitter.receipt import Receipt
from xbus.errors import CallError, Failed, Refused, XbusError
from xbus.http.front import FrontConnection, publish
from xbus.ids import Ids
from xbus.rpc.codec import pack
from xbus.rpc.context import new_context
from xbus.rpc.dispatch import Dispatch, Give, SharedCall, shared, verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.messages import EnvelopeOptionsMap, GroupedError
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
        self.takes_groups = True

    @verb("xbus.get_limits")
    def get_limits(self, token: str) -> dict[str, object]:
        limits: dict[str, object] = {"session_seconds": 60, "max_item_bytes": 1000, "max_batch_bytes": 10_000}
        return {**limits, "groups": True} if self.takes_groups else limits

    @verb("xbus.renew")
    def renew(self, token: str) -> bool:
        return True

    @shared("xbus.put_envelopes", _arguments)
    def put_envelopes(self, calls: Sequence[SharedCall], give: Give) -> None:
        for call in calls:
            token, envelopes = call.args[:2]
            assert isinstance(token, str)
            assert isinstance(envelopes, list)
            self.messages.append((token, len(envelopes)))
            self._unanswered.append((call, give))

    def answer(self, *instead: object) -> None:
        """Answer all messages that have come.

        Args:
            instead: the answer to each envelope; nothing for receipts.
        """
        unanswered, self._unanswered = self._unanswered, []
        for call, give in unanswered:
            give([call], [list(instead) or [(envelope[0], 7, bytes(32)) for envelope in call.args[1]]])  # type: ignore[union-attr,index]


async def one_item() -> AsyncIterator[bytes]:
    yield pack({"a": 1})


@pytest.fixture
def front() -> SlowFront:
    return SlowFront()


@pytest.fixture
async def connection(front: SlowFront) -> AsyncIterator[FrontConnection]:
    context = new_context()
    server = Server(context, Dispatch(front), name="front", limits=ServerLimits(100_000))
    address = server.bind("tcp://127.0.0.1:0")
    server.start()
    clock = SystemClock()
    try:
        async with FrontConnection(address, clock, Ids(clock, random.Random(7).randbytes), Options()) as connection:
            yield connection
    finally:
        server.close()
        with suppress(XbusError):
            context.destroy(linger=0)


async def test_posts_that_wait_together_go_in_one_message_by_token(
    front: SlowFront, connection: FrontConnection
) -> None:
    posts: list[asyncio.Task[Receipt]] = []

    def post(line: EmitterContext, count: int) -> None:
        posts.extend([asyncio.create_task(publish(line, START, one_item(), {})) for _ in range(count)])

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


def told(error: CallError) -> GroupedError:
    """Make the answer to an envelope that is not taken."""
    is_refused = isinstance(error, Refused)
    return {"refused": is_refused, "code": error.code, "cause": error.cause, "next_step": "", "details": {}}


@pytest.mark.parametrize("options", [{}, {"key": "order 1"}], ids=["plain", "under_a_key"])
async def test_a_refusal_is_final(front: SlowFront, connection: FrontConnection, options: EnvelopeOptionsMap) -> None:
    post = asyncio.create_task(publish(await connection.line("north"), START, one_item(), options))
    await eventually(lambda: len(front.messages) == 1, "it comes")
    front.answer(told(Refused("other content is open", code="content_differs")))
    with pytest.raises(Refused, match="other content is open"):
        await post


@pytest.mark.parametrize("options", [{}, {"key": "order 1"}], ids=["plain", "under_a_key"])
async def test_a_post_that_is_not_taken_for_now_comes_again(
    front: SlowFront, connection: FrontConnection, options: EnvelopeOptionsMap
) -> None:
    post = asyncio.create_task(publish(await connection.line("north"), START, one_item(), options))
    for count in (1, 2):
        await eventually(lambda count=count: len(front.messages) == count, "it comes")  # type: ignore[misc]
        front.answer(told(Failed("paused", code="paused")))
    await eventually(lambda: len(front.messages) == 3, "it comes again")
    front.answer((bytes(16), 7, bytes(32)))
    assert (await post).position == 7


async def test_an_older_front_gets_single_calls(front: SlowFront, connection: FrontConnection) -> None:
    front.takes_groups = False
    with pytest.raises(Refused, match="start_envelope"):
        await publish(await connection.line("north"), START, one_item(), {})
    assert front.messages == []
