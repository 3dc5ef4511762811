"""A server with shares: calls that wait for their turn keep their order, and none is forgotten."""

import asyncio
from collections.abc import Coroutine

from tests.integration.rpc.conftest import MAX_MESSAGE_BYTES, SECONDS, Connect, Serve
from tests.integration.rpc.verbs import Verbs
from tests.support.waiting import eventually
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.dispatch import verb
from xbus.rpc.guard import ServerLimits
from xbus.rpc.rests import LARGE_BYTES, Rests
from xbus.rpc.server import SHARE_BYTES, Server

LIMITS = ServerLimits(MAX_MESSAGE_BYTES, share_bytes=SHARE_BYTES)

MANY = 100


class Writes(Verbs):
    """Answers calls later, when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[str] = []
        self.at_once = 0
        """How many were carried out at the end of the turn with call 0. Later ones may have waited long enough."""
        self.server: Server | None = None

    @verb("write")
    def write(self, number: int) -> Coroutine[object, object, int]:
        self.called.append(number)
        if number == 0:
            asyncio.get_running_loop().call_soon(self._note)
        if self.server is not None:
            self.callers.append(self.server.caller_address)
        return self.wait()

    def _note(self) -> None:
        self.at_once = len(self.called)


async def contested(verbs: Writes, other: Client, deep: Client) -> list["asyncio.Future[Value]"]:
    """Have one call under way of one client, and calls of the other that have to wait."""
    calls = [other.call("write", -1, timeout=SECONDS)]
    await eventually(lambda: verbs.called == [-1], "the other calls")
    calls += [deep.call("write", number, timeout=SECONDS) for number in range(MANY)]
    await eventually(lambda: verbs.at_once, "the first calls are carried out")
    return calls


async def test_calls_of_a_connection_keep_their_order(serve: Serve, connect: Connect) -> None:
    verbs = Writes()
    _, address = serve(verbs, limits=LIMITS)
    calls = await contested(verbs, connect(address), connect(address))
    assert verbs.at_once < MANY
    verbs.gate.set_result(7)
    assert await asyncio.gather(*calls) == [7] * (MANY + 1)
    assert verbs.called == list(range(-1, MANY))


async def test_calls_that_wait_for_long_hold_nobody_back(serve: Serve, connect: Connect) -> None:
    verbs = Writes()
    _, address = serve(verbs, limits=LIMITS)
    calls = await contested(verbs, connect(address), connect(address))
    await eventually(lambda: len(verbs.called) == MANY + 1, "all are carried out, while none is answered")
    verbs.gate.set_result(7)
    await asyncio.gather(*calls)


async def test_a_server_that_ends_answers_the_calls_that_wait(serve: Serve, connect: Connect) -> None:
    verbs = Writes()
    server, address = serve(verbs, limits=LIMITS)
    calls = await contested(verbs, connect(address), connect(address))
    server.pause()
    draining = asyncio.create_task(server.drain(SECONDS))
    await eventually(lambda: len(verbs.called) == MANY + 1, "nothing waits any more")
    verbs.gate.set_result(7)
    assert await draining
    assert await asyncio.gather(*calls) == [7] * (MANY + 1)


async def test_a_call_that_waited_has_the_address_of_its_own_caller(serve: Serve, connect: Connect) -> None:
    verbs = Writes()
    verbs.server, address = serve(verbs, limits=LIMITS, address="tcp://0.0.0.0:0")
    port = address.rsplit(":", 1)[1]
    other, deep = connect(f"tcp://127.0.0.1:{port}"), connect(f"tcp://127.0.0.2:0;127.0.0.1:{port}")
    calls = await contested(verbs, other, deep)
    verbs.gate.set_result(7)
    await asyncio.gather(*calls)
    assert len(set(verbs.callers)) == 2
    assert verbs.callers[1:] == verbs.callers[-1:] * MANY


async def test_behind_a_large_call_its_connection_rests_beside_short_ones(serve: Serve, connect: Connect) -> None:
    took: list[int] = []

    class Stores:
        @verb("store")
        async def store(self, number: int, data: bytes) -> int:
            took.append(number)
            await asyncio.sleep(0)
            return number

    # By a clock that stands, and is far ahead, somebody calls for ever, and the large call has taken very long.
    rests = Rests(lambda: 1e12)
    _, address = serve(Stores(), limits=LIMITS, rests=rests)
    other, deep = connect(address), connect(address)
    large = [deep.call("store", number, b"x" * LARGE_BYTES, timeout=SECONDS) for number in (1, 2)]
    await eventually(lambda: took == [1, 2], "who calls alone does not rest")
    await asyncio.gather(*large)
    await other.call("store", 0, b"", timeout=SECONDS)
    first, second = (deep.call("store", number, b"x" * LARGE_BYTES, timeout=SECONDS) for number in (3, 4))
    await first
    for _ in range(3):
        await other.call("store", 0, b"", timeout=SECONDS)
    assert took == [1, 2, 0, 3, 0, 0, 0]
    assert await second == 4
