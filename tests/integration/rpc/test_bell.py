"""Wake-ups over each transport."""

import asyncio
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.integration.rpc.conftest import SECONDS
from tests.support.strangers import Stranger
from tests.support.waiting import answered, eventually
from xbus.clock import SystemClock
from xbus.errors import ConfigurationError
from xbus.rpc.bell import DOMAIN, RINGS_AT_ONCE, UNFINISHED_BYTES, Bell
from xbus.rpc.context import Context
from xbus.rpc.curve import Authenticator, new_pair

RING = b"\x00\x00"
"""An empty message, as it is on the wire."""


@pytest.fixture(params=["inproc", "ipc", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"inproc": "inproc://#f2b", "ipc": f"ipc://{tmp_path}/f2b", "tcp": "tcp://127.0.0.1:0"}[request.param]


def new_bell(context: Context, closing: ExitStack, address: str) -> Bell:
    bell = Bell(context, address)
    closing.callback(bell.close)
    return bell


async def test_a_ring_wakes_and_many_are_one(context: Context, closing: ExitStack, address: str) -> None:
    listener = new_bell(context, closing, address)
    bound = listener.bind()
    bells = [new_bell(context, closing, bound) for _ in range(2)]
    for bell in bells:
        bell.connect()
    assert not await listener.wait(0.01)
    waiting = asyncio.ensure_future(listener.wait(SECONDS))
    await asyncio.sleep(0)
    for _ in range(1000):
        for bell in bells:
            bell.ring()
    assert await waiting
    while await listener.wait(0.05):
        pass
    bells[1].ring()
    assert await listener.wait(SECONDS)


async def test_over_a_network_only_who_has_the_key_rings(context: Context, closing: ExitStack) -> None:
    authenticator = Authenticator(context, SystemClock())
    closing.callback(authenticator.close)
    pair = new_pair()
    authenticator.admit(DOMAIN, lambda key: key == pair.public)
    authenticator.start()
    listener = Bell(context, "tcp://127.0.0.1:0", pair)
    closing.callback(listener.close)
    bound = listener.bind()
    strangers = [Bell(context, bound), Bell(context, bound, new_pair())]
    friend = Bell(context, bound, pair)
    for bell in (*strangers, friend):
        closing.callback(bell.close)
        bell.connect()
    for bell in strangers:
        bell.ring()
    assert not await listener.wait(0.25)

    async def heard() -> bool:
        friend.ring()
        return await listener.wait(0.05)

    await answered(heard, "the friend is heard")
    listener.ring()
    assert await friend.wait(SECONDS)


async def test_no_other_user_reaches_a_bell_over_ipc(context: Context, closing: ExitStack, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        new_bell(context, closing, f"ipc://{tmp_path}/f2b").bind()
        assert os.umask(0) == 0, "the program's own mode is as it was"
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "f2b").st_mode & 0o777 == 0o600


async def test_it_rings_back(context: Context, closing: ExitStack, address: str) -> None:
    bound_end = new_bell(context, closing, address)
    connected_end = new_bell(context, closing, bound_end.bind())
    connected_end.connect()

    for _ in range(3):
        connected_end.ring()
        assert await bound_end.wait(SECONDS)
        bound_end.ring()
        assert await connected_end.wait(SECONDS)


async def test_a_bell_may_ring_before_anyone_listens(context: Context, closing: ExitStack, tmp_path: Path) -> None:
    for address in ("inproc://#later", f"ipc://{tmp_path}/later"):
        bell = new_bell(context, closing, address)
        bell.connect()
        for _ in range(1000):
            bell.ring()
        listener = new_bell(context, closing, address)
        listener.bind()
        assert await listener.wait(SECONDS)


async def test_a_bell_may_ring_before_anyone_connects(context: Context, closing: ExitStack, address: str) -> None:
    bell = new_bell(context, closing, address)
    bell.bind()

    for _ in range(1000):
        bell.ring()


async def test_a_bad_address_is_told(context: Context, closing: ExitStack) -> None:
    bell = new_bell(context, closing, "nonsense")
    with pytest.raises(ConfigurationError):
        bell.connect()
    with pytest.raises(ConfigurationError):
        bell.bind()


async def test_strangers_take_no_ring_from_others(context: Context, closing: ExitStack) -> None:
    bound_end = new_bell(context, closing, "tcp://127.0.0.1:0")
    address = bound_end.bind()
    connected_end = new_bell(context, closing, address)
    connected_end.connect()
    strangers = [closing.enter_context(Stranger(address)) for _ in range(5)]
    for stranger in strangers:
        stranger.send_raw(RING)
    connected_end.ring()
    assert await bound_end.wait(SECONDS)
    await eventually(lambda: len(bound_end._ringers) == len(strangers) + 1, "all have rung")
    for _ in range(3):
        bound_end.ring()
        assert await connected_end.wait(SECONDS)


async def test_a_flood_of_rings_and_a_message_without_an_end_are_bounded(context: Context, closing: ExitStack) -> None:
    bound_end = new_bell(context, closing, "tcp://127.0.0.1:0")
    address = bound_end.bind()
    connected_end = new_bell(context, closing, address)
    connected_end.connect()
    with Stranger(address) as large, Stranger(address) as endless, Stranger(address, patience=0.2) as flooding:
        large.send_raw(b"\x02" + (10**6).to_bytes(8, "big"))
        assert await asyncio.to_thread(large.is_over)
        with suppress(ConnectionError):
            endless.send_raw(b"\x01\x00" * UNFINISHED_BYTES)
        assert await asyncio.to_thread(endless.is_over)
        with suppress(TimeoutError, ConnectionError):
            await asyncio.to_thread(flooding.send_raw, RING * 10**7)
        heard = bound_end._heard
        connected_end.ring()
        assert await bound_end.wait(SECONDS)
        assert heard <= RINGS_AT_ONCE
