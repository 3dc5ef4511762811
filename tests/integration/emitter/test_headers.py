"""Headers at a front that does not know them yet: everything else goes on, and they are refused with their cure."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.emitter.front_double import FrontDouble
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused

HEADERS = {"correlation_id": "17"}


async def of_envelope(emitter: AsyncEmitter) -> None:
    async with emitter.envelope(headers=HEADERS) as envelope, envelope.event("test_event"):
        pass


async def of_event(emitter: AsyncEmitter) -> None:
    async with emitter.envelope() as envelope, envelope.event("test_event", headers=HEADERS):
        pass


async def partition_key(emitter: AsyncEmitter) -> None:
    async with emitter.envelope() as envelope, envelope.event("test_event", partition_key="client 7"):
        pass


async def put(emitter: AsyncEmitter) -> None:
    await emitter.put("test_event", [b"a"], headers=HEADERS)


async def put_with_key(emitter: AsyncEmitter) -> None:
    await emitter.put("test_event", [b"a"], partition_key="client 7")


async def put_large(emitter: AsyncEmitter) -> None:
    await emitter.put("test_event", [b"a" * 900] * 10, headers=HEADERS)


@pytest.mark.parametrize("send", [of_envelope, of_event, partition_key, put, put_with_key, put_large])
async def test_an_old_front_takes_none(front: FrontDouble, send: Callable[[AsyncEmitter], Any]) -> None:
    del front.limits["groups"]
    async with AsyncEmitter(front.address, "test_emitter", "password") as emitter:
        with pytest.raises(Refused, match="the broker is too old for headers and partition keys") as refusal:
            await send(emitter)
        assert refusal.value.code == "headers_unsupported"
        assert refusal.value.next_step == "send without them, or upgrade the broker"
        assert {envelope.state for envelope in front.envelopes.values()} <= {"cancelled"}
        assert (await emitter.put("test_event", [b"a"], headers={})).items == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"headers": {"mine": None}}, "bad_header"),
        ({"headers": {"mine": "x" * 4096}}, "headers_too_large"),
        ({"partition_key": ""}, "bad_partition_key"),
    ],
)
async def test_bad_ones_are_refused_before_any_call(front: FrontDouble, given: dict[str, Any], code: str) -> None:
    async with AsyncEmitter(front.address, "test_emitter", "password") as emitter:
        with pytest.raises(Refused) as refusal:
            await emitter.put("test_event", [b"a"], **given)
        assert refusal.value.code == code
        async with emitter.envelope() as envelope:
            with pytest.raises(Refused) as refusal:
                envelope.event("test_event", **given)
            assert refusal.value.code == code
            # A mistake that the program caught leaves the envelope as it was.
            async with envelope.event("test_event") as event:
                await event.send(b"a")
        assert front.only().state == "sealed"
