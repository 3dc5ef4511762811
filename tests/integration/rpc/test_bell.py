"""Wake-ups over each transport."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from xbus.errors import ConfigurationError
from xbus.rpc.bell import Bell, Listener
from xbus.rpc.context import Context


@pytest.fixture(params=["inproc", "ipc", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"inproc": "inproc://#f2b", "ipc": f"ipc://{tmp_path}/f2b", "tcp": "tcp://127.0.0.1:0"}[request.param]


async def test_a_ring_wakes_and_many_are_one(context: Context, closing: ExitStack, address: str) -> None:
    listener = Listener(context, address)
    closing.callback(listener.close)
    bound = listener.bind()
    bells = [Bell(context, bound) for _ in range(2)]
    for bell in bells:
        closing.callback(bell.close)
    assert not await listener.wait(0.01)
    waiting = asyncio.ensure_future(listener.wait(10))
    await asyncio.sleep(0)
    for _ in range(1000):
        for bell in bells:
            bell.ring()
    assert await waiting
    while await listener.wait(0.05):
        pass
    bells[1].ring()
    assert await listener.wait(10)


async def test_a_bell_may_ring_before_anyone_listens(context: Context, closing: ExitStack, tmp_path: Path) -> None:
    for address in ("inproc://#later", f"ipc://{tmp_path}/later"):
        bell = Bell(context, address)
        closing.callback(bell.close)
        for _ in range(1000):
            bell.ring()
        listener = Listener(context, address)
        closing.callback(listener.close)
        listener.bind()
        assert await listener.wait(10)


async def test_a_bad_address_is_told(context: Context, closing: ExitStack) -> None:
    with pytest.raises(ConfigurationError):
        Bell(context, "nonsense")
    listener = Listener(context, "nonsense")
    closing.callback(listener.close)
    with pytest.raises(ConfigurationError):
        listener.bind()
