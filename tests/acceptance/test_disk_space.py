"""A journal with little space, and one that removes what all have got."""

import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.waiting import DEADLINE_SECONDS, answered, eventually
from xbus.errors import Failed
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context

ITEM = bytes(20_000)


@pytest.fixture
def daemon(database_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(database_url, {"test_event": {"c": []}})
    return start_daemon(database_url, {"journal": {"max_bytes": 200_000}})


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[Client]:
    context = new_context()
    client = Client(context, name="emitter")
    client.connect(daemon.front)
    yield client
    client.close()
    context.destroy(linger=0)


async def problems(client: Client) -> list[str]:
    report: Any = await client.call("xbus.health", timeout=DEADLINE_SECONDS)
    return [problem["code"] for problem in report["problems"]]


async def is_well(client: Client) -> bool:
    return not await problems(client)


async def test_a_full_journal_takes_nothing_new_and_opens_again_when_recipients_have_got_theirs(
    daemon: Daemon, client: Client
) -> None:
    told: Any = await client.call("xbus.login", "emitter_1", PASSWORD, timeout=DEADLINE_SECONDS)
    token = told["token"]

    async def put(envelope: list[Any]) -> Any:
        return await client.call("xbus.put_envelope", token, *envelope, timeout=DEADLINE_SECONDS)

    def envelope() -> list[Any]:
        return [str(uuid.uuid4()), [[str(uuid.uuid4()), "test_event", 1, pack_items([ITEM])]]]

    async def taken(envelope: list[Any]) -> Any:
        """What is stored while the broker counts counts twice, for a moment."""
        try:
            return await put(envelope)
        except Failed as refusal:
            assert refusal.code == "journal_full"
            return None

    async with OldEmitter(daemon.front, "emitter_2") as old_emitter:
        open_id, event_id = await old_emitter.start()
        sent: list[tuple[list[Any], Any]] = []
        for new in [envelope() for _ in range(10)]:
            sent.append((new, await answered(partial(taken, new), "there is room for it")))
        with pytest.raises(Failed, match=r"journal has \d+ bytes") as full:
            await put(envelope())
        assert full.value.code == "journal_full"
        assert await old_emitter.call.start_envelope(old_emitter.token) == ""
        # One that is open may grow a little, and may always be ended.
        grow = partial(old_emitter.call.send_item, old_emitter.token, open_id, event_id, ITEM)
        await answered(grow, "there is room for one more item")
        assert await grow() is False
        await old_emitter.end(open_id, event_id)
        assert await problems(client) == ["journal_full"]

        async with OldConsumer(daemon.back, "c_1") as consumer:
            await consumer.wait_for([first[0] for first, _ in sent] + [open_id])
            await eventually(lambda: "action=pruned" in daemon.log, "what it has got is removed")
            await answered(lambda: is_well(client), "there is room again")
            # A repeat gets its receipt, and nothing is delivered again.
            assert await put(sent[0][0]) == sent[0][1]
            last = envelope()
            await put(last)
            await consumer.wait_for([last[0]])
        assert len(consumer.committed) == len(set(consumer.committed)) == len(sent) + 2


async def test_an_emitter_that_fills_the_journal_is_refused_before_another_one(daemon: Daemon, client: Client) -> None:
    tokens: list[str] = []
    for login in ("emitter_1", "emitter_2"):
        told: Any = await client.call("xbus.login", login, PASSWORD, timeout=DEADLINE_SECONDS)
        tokens.append(told["token"])

    async def refusal_of(token: str, size: int = 1_000) -> str:
        events = [[str(uuid.uuid4()), "test_event", 1, pack_items([bytes(size)])]]
        try:
            await client.call("xbus.put_envelope", token, str(uuid.uuid4()), events, timeout=DEADLINE_SECONDS)
        except Failed as refusal:
            assert refusal.code == "journal_full"
            return refusal.cause
        return ""

    async def takes(token: str, size: int = 1_000) -> bool:
        return not await refusal_of(token, size)

    async def is_too_much() -> bool:
        return "has sent so much" in await refusal_of(floods)

    floods, sends_little = tokens
    for _ in range(9):
        await answered(partial(takes, floods, len(ITEM)), "there is room for it")
    await answered(is_too_much, "it is refused")
    for _ in range(3):
        await answered(partial(takes, sends_little), "there is room for another one")
        assert await is_too_much()
    assert await problems(client) == ["journal_full"]
