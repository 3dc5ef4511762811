"""Calls of the shared verb: those of a turn of the loop are carried out together, before any other call behind them."""

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from tests.integration.rpc.conftest import SECONDS, Connect, Dial, Serve
from tests.support.waiting import eventually
from xbus.errors import CallError, ConfigurationError, Failed, Refused
from xbus.rpc.dispatch import Dispatch, Give, SharedCall, shared, verb
from xbus.rpc.frames import Reply, decode_reply, encode_request


def _arguments(number: int, note: str = "") -> None:
    """Tell the parameters of the shared verb."""


class Shared:
    """Notes which calls came together, and answers each by its number, at once or by hand.

    Args:
        at_once: whether it answers at once.
    """

    def __init__(self, *, at_once: bool = True) -> None:
        self.together: list[list[int]] = []
        self.waiting: list[tuple[Sequence[SharedCall], Give]] = []
        self.seen: list[int] = []
        self._at_once = at_once

    @shared("xbus.put", _arguments)
    def put(self, calls: Sequence[SharedCall], give: Give) -> None:
        numbers: list[int] = [call.args[0] for call in calls if isinstance(call.args[0], int)]
        self.together.append(numbers)
        if -1 in numbers:
            raise KeyError("a secret of the inside")
        if self._at_once:
            give(calls, [Refused("no", code="refused") if number == 1313 else number for number in numbers])
        else:
            self.waiting.append((calls, give))

    @verb("look")
    def look(self) -> int:
        seen = sum(map(len, self.together))
        self.seen.append(seen)
        return seen


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
async def test_calls_that_come_together_are_carried_out_together(
    serve: Serve, connect: Connect, tmp_path: object, kind: str
) -> None:
    served = Shared()
    _, address = serve(served, address=f"ipc://{tmp_path}/server" if kind == "ipc" else "tcp://127.0.0.1:0")
    clients = [connect(address) for _ in range(3)]
    await asyncio.gather(*[client.call("look", timeout=SECONDS) for client in clients])
    calls = [client.call("xbus.put", number, timeout=SECONDS) for client in clients for number in range(50)]
    assert await asyncio.gather(*calls) == [*range(50)] * 3
    assert sorted(number for together in served.together for number in together) == sorted([*range(50)] * 3)
    assert len(served.together) < 75


async def test_another_call_is_carried_out_behind_the_calls_before_it(serve: Serve, connect: Connect) -> None:
    served = Shared()
    _, address = serve(served)
    client = connect(address)
    calls = []
    for number in range(10):
        calls += [client.call("xbus.put", number, timeout=SECONDS), client.call("look", timeout=SECONDS)]
    await asyncio.gather(*calls)
    assert served.seen == [*range(1, 11)]


async def test_one_that_is_wrong_is_refused_and_the_others_are_carried_out(serve: Serve, connect: Connect) -> None:
    served = Shared()
    server, address = serve(served)
    client = connect(address)
    arguments: list[tuple[object, ...]] = [(1,), ("no number",), (2, "note"), (), (1313,), (3,)]
    calls = [client.call("xbus.put", *each, timeout=SECONDS) for each in arguments]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    told = [answer.code if isinstance(answer, CallError) else answer for answer in answers]
    assert told == [1, "wrong_arguments", 2, "wrong_arguments", "refused", 3]
    assert server.refused == {"wrong_arguments": 2, "refused": 1}
    assert server.unanswered_bytes == server.unanswered == 0


async def test_an_error_inside_answers_all_of_them(serve: Serve, connect: Connect) -> None:
    server, address = serve(Shared())
    client = connect(address)
    calls = [client.call("xbus.put", number, timeout=SECONDS) for number in (1, -1)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, Failed) and answer.code for answer in answers][-1] == "internal_error"
    assert server.unanswered == 0


async def test_calls_that_wait_for_their_answer_are_counted_drained_and_given_up(
    serve: Serve, connect: Connect
) -> None:
    served = Shared(at_once=False)
    server, address = serve(served)
    client = connect(address)
    first, second = (client.call("xbus.put", number, timeout=SECONDS) for number in (1, 2))
    await eventually(lambda: server.unanswered == 2, "both wait", SECONDS)
    assert server.unanswered_bytes > 0
    assert not await server.drain(0)
    server.give_up(0, Failed("the journal is silent", code="journal_unavailable"))
    for call in (first, second):
        with pytest.raises(Failed) as error:
            await call
        assert error.value.code == "journal_unavailable"
    assert server.unanswered == server.unanswered_bytes == 0
    for calls, give in served.waiting:
        give(calls, [7] * len(calls))
    assert await server.drain(SECONDS)
    assert await client.call("look", timeout=SECONDS) == 2


class Raw:
    """A caller that hears every answer, also one that nobody waits for.

    Args:
        dial: connects it.
        address: of the server.
    """

    def __init__(self, dial: Dial, address: str) -> None:
        self._socket = dial(address, RCVTIMEO=int(SECONDS * 1000))

    def call(self, request_id: int, name: str, *args: object) -> None:
        """Make a call."""
        self._socket.send_multipart([bytes(each) for each in encode_request(b"1234", request_id, 0.0, name, args)])

    def heard(self) -> Reply:
        """Wait for the next answer."""
        return decode_reply(self._socket.recv_multipart())


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
async def test_an_answer_goes_early_by_another_thread_while_the_loop_is_busy(
    serve: Serve, dial: Dial, tmp_path: object, kind: str
) -> None:
    served = Shared(at_once=False)
    server, address = serve(served, address=f"ipc://{tmp_path}/server" if kind == "ipc" else "tcp://127.0.0.1:0")
    raw = Raw(dial, address)
    raw.call(7, "xbus.put", 1)
    await eventually(lambda: server.unanswered == 1, "the call waits", SECONDS)
    ((calls, give),) = served.waiting
    sending = threading.Thread(target=calls[0].send_early, args=([b"receipt", 3],))
    sending.start()
    sending.join()
    if kind == "tcp":  # libzmq sends by the loop alone
        assert raw.heard() == (7, [b"receipt", 3], None)
    assert server.unanswered == 1
    give(calls, [[b"receipt", 3]])
    assert server.unanswered == server.unanswered_bytes == 0
    raw.call(8, "look")
    if kind == "ipc":
        assert (await asyncio.to_thread(raw.heard)).id == 7
    assert (await asyncio.to_thread(raw.heard)).id == 8


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_call_that_is_given_up_has_one_answer(serve: Serve, dial: Dial, is_early: bool) -> None:
    served = Shared(at_once=False)
    server, address = serve(served)
    raw = Raw(dial, address)
    raw.call(7, "xbus.put", 1)
    await eventually(lambda: server.unanswered == 1, "the call waits", SECONDS)
    ((calls, give),) = served.waiting
    steps = [partial(calls[0].send_early, 5), partial(server.give_up, 0, Failed("silent", code="journal_unavailable"))]
    for step in steps if is_early else reversed(steps):
        step()
    give(calls, [5])
    assert server.unanswered == server.unanswered_bytes == 0
    assert server.refused == ({} if is_early else {"journal_unavailable": 1})
    raw.call(8, "look")
    first, second = [await asyncio.to_thread(raw.heard) for _ in range(2)]
    assert (first.id, second.id) == (7, 8)
    assert first.answer == 5 if is_early else isinstance(first.error, Failed)


async def test_calls_that_were_answered_early_take_no_part_of_their_share(serve: Serve, connect: Connect) -> None:
    served = Shared(at_once=False)
    server, address = serve(served)
    client = connect(address)
    for number in range(300):  # more than a connection may have under way
        call = client.call("xbus.put", number, timeout=SECONDS)
        await eventually(lambda: len(served.waiting) == 1, "the call waits", SECONDS)
        calls, give = served.waiting.pop()
        calls[0].send_early(number)
        assert await call == number
        give(calls, [number])
    assert server.unanswered == server.unanswered_bytes == 0


async def test_a_server_that_ends_carries_out_what_it_has_read(serve: Serve, connect: Connect) -> None:
    served = Shared()
    server, address = serve(served)
    client = connect(address)
    assert await client.call("look", timeout=SECONDS) == 0
    calls = [client.call("xbus.put", number, timeout=SECONDS) for number in range(500)]
    assert await calls[0] == 0
    server.pause()
    assert await server.drain(SECONDS)
    carried_out = sum(map(len, served.together))
    assert await asyncio.gather(*calls[:carried_out]) == [*range(carried_out)]


def test_only_one_verb_is_shared() -> None:
    class Another:
        @shared("xbus.other", _arguments)
        def other(self, calls: Sequence[SharedCall], give: Give) -> None:
            """Never called."""

    with pytest.raises(ConfigurationError):
        Dispatch(Shared(), Another())
