"""The front's verbs of ``docs/wire.md`` as aiozmq calls them: each with its answer, and all its refusals."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, close, connect
from tests.support.operating import xbus
from tests.support.waiting import eventually

SESSION_SECONDS = 4
"""Longer than anything takes from a login to the first call after it."""

UNKNOWN = "0b9d6a0e-6c0f-4a8e-9a3f-3d9f6f1c2a11"


@pytest.fixture
async def emitter(shared: Daemon) -> AsyncIterator[OldEmitter]:
    async with OldEmitter(shared.front) as emitter:
        yield emitter


@pytest.fixture
async def other(shared: Daemon) -> AsyncIterator[OldEmitter]:
    async with OldEmitter(shared.front, "emitter_2") as emitter:
        yield emitter


@pytest.fixture
async def consumer(shared: Daemon) -> AsyncIterator[OldConsumer]:
    async with OldConsumer(shared.back, "c_1") as consumer:
        yield consumer


async def refused(daemon: Daemon, answer: Any, code: str, verb: Callable[..., Any], *args: Any) -> None:
    """The old answer for a refusal, and its reason in the log."""
    before = daemon.log.count(f"code={code}")
    assert await verb(*args) == answer
    await eventually(lambda: daemon.log.count(f"code={code}") == before + 1, f"{code} is logged")


async def test_login_and_logout(shared: Daemon) -> None:
    client = await connect(shared.front)
    token = await client.call.login("emitter_1", PASSWORD)
    second = await client.call.login("emitter_1", PASSWORD)
    assert isinstance(token, str)
    assert token
    assert second not in ("", token)
    for login, password in [("emitter_1", "wrongpass"), ("nobody", PASSWORD), ("", ""), ("c_1", PASSWORD)]:
        await refused(shared, "", "login_refused", client.call.login, login, password)
    assert await client.call.logout(token) is True
    await refused(shared, False, "session_unknown", client.call.logout, token)
    await refused(shared, "", "session_unknown", client.call.start_envelope, token)
    assert await client.call.start_envelope(second)
    assert token not in shared.log
    assert second not in shared.log
    assert "wrongpass" not in shared.log
    await close(client)


async def test_ids_are_uuids(emitter: OldEmitter) -> None:
    envelope_id, event_id = await emitter.start()
    assert str(uuid.UUID(envelope_id)) == envelope_id
    assert str(uuid.UUID(event_id)) == event_id
    assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True


@pytest.mark.parametrize("token", [UNKNOWN, "", "é" * 1000])
async def test_an_unknown_token_is_refused_everywhere(token: str, shared: Daemon, emitter: OldEmitter) -> None:
    envelope_id, event_id = await emitter.start()
    calls: list[tuple[str, tuple[Any, ...], Any]] = [
        ("logout", (token,), False),
        ("start_envelope", (token,), ""),
        ("start_event", (token, envelope_id, "test_event", 0), ""),
        ("send_item", (token, envelope_id, event_id, b"x"), False),
        ("end_event", (token, envelope_id, event_id), (False, None)),
        ("end_envelope", (token, envelope_id), False),
        ("cancel_envelope", (token, envelope_id), False),
    ]
    for verb, args, answer in calls:
        await refused(shared, answer, "session_unknown", getattr(emitter.call, verb), *args)
    # Nothing of it had an effect.
    await emitter.end(envelope_id, event_id)


@pytest.mark.parametrize("envelope_id", [UNKNOWN, "", "no uuid", "x" * 10_000, UNKNOWN.upper() + "\0"])
async def test_an_unknown_envelope_is_refused_everywhere(envelope_id: str, shared: Daemon, emitter: OldEmitter) -> None:
    own, event_id = await emitter.start()
    token = emitter.token
    code = "envelope_unknown"
    await refused(shared, "", code, emitter.call.start_event, token, envelope_id, "test_event", 0)
    await refused(shared, False, code, emitter.call.send_item, token, envelope_id, event_id, b"x")
    await refused(shared, (False, None), code, emitter.call.end_event, token, envelope_id, event_id)
    await refused(shared, False, code, emitter.call.end_envelope, token, envelope_id)
    await refused(shared, False, code, emitter.call.cancel_envelope, token, envelope_id)
    await emitter.end(own, event_id)


async def test_another_emitters_envelope_is_as_unknown(
    shared: Daemon, emitter: OldEmitter, other: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, event_id = await emitter.start()
    await emitter.send(envelope_id, event_id, b"mine")
    token, code = other.token, "envelope_unknown"
    for _ in range(2):  # while it is open, and when it is sealed
        await refused(shared, "", code, other.call.start_event, token, envelope_id, "test_event", 0)
        await refused(shared, False, code, other.call.send_item, token, envelope_id, event_id, b"x")
        await refused(shared, (False, None), code, other.call.end_event, token, envelope_id, event_id)
        await refused(shared, False, code, other.call.end_envelope, token, envelope_id)
        await refused(shared, False, code, other.call.cancel_envelope, token, envelope_id)
        await emitter.end(envelope_id, event_id)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == [b"mine"]


async def test_event_types_are_checked(shared: Daemon, emitter: OldEmitter) -> None:
    envelope_id, event_id = await emitter.start()
    for name in ("nothing", "", "test_event ", "TEST_EVENT"):
        await refused(shared, "", "unknown_type", emitter.call.start_event, emitter.token, envelope_id, name, 0)
    await refused(
        shared, "", "type_not_allowed", emitter.call.start_event, emitter.token, envelope_id, "forbidden_event", 0
    )
    await emitter.end(envelope_id, event_id)


async def test_an_unknown_event_is_refused(shared: Daemon, emitter: OldEmitter) -> None:
    envelope_id, event_id = await emitter.start()
    second, of_second = await emitter.start()
    for unknown in (UNKNOWN, "", of_second):
        await refused(shared, False, "event_unknown", emitter.call.send_item, emitter.token, envelope_id, unknown, b"x")
        await refused(
            shared, (False, None), "event_unknown", emitter.call.end_event, emitter.token, envelope_id, unknown
        )
    await emitter.end(envelope_id, event_id)
    await emitter.end(second, of_second)


async def test_an_open_event_keeps_its_envelope_open(
    shared: Daemon, emitter: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, first = await emitter.start()
    second = await emitter.start_event(envelope_id)
    await emitter.end_event(envelope_id, first)
    await refused(shared, False, "event_open", emitter.call.end_envelope, emitter.token, envelope_id)
    await emitter.send(envelope_id, second, b"still open")
    await emitter.end(envelope_id, second)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == [b"still open"]


async def test_what_is_ended_takes_no_more_and_repeats_its_answer(
    shared: Daemon, emitter: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, event_id = await emitter.start()
    await emitter.send(envelope_id, event_id, b"0")
    for _ in range(3):
        await emitter.end_event(envelope_id, event_id)
    await refused(shared, False, "event_closed", emitter.call.send_item, emitter.token, envelope_id, event_id, b"1")
    for _ in range(3):
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
        await emitter.end_event(envelope_id, event_id)
        await refused(
            shared, False, "envelope_closed", emitter.call.send_item, emitter.token, envelope_id, event_id, b"1"
        )
        await refused(
            shared, "", "envelope_closed", emitter.call.start_event, emitter.token, envelope_id, "test_event", 0
        )
        await refused(shared, False, "envelope_closed", emitter.call.cancel_envelope, emitter.token, envelope_id)
    behind = await emitter.emit()
    await consumer.wait_for([envelope_id, behind])
    assert consumer.committed.count(envelope_id) == 1
    assert consumer.items(envelope_id) == [b"0"]


async def test_a_cancelled_envelope_is_never_delivered(
    shared: Daemon, emitter: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, event_id = await emitter.start()
    await emitter.send(envelope_id, event_id, b"0")
    for _ in range(2):
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True
    await refused(shared, False, "envelope_closed", emitter.call.send_item, emitter.token, envelope_id, event_id, b"1")
    await refused(shared, False, "envelope_closed", emitter.call.end_envelope, emitter.token, envelope_id)
    behind = await emitter.emit()
    await consumer.wait_for([behind])
    assert envelope_id not in consumer.committed
    assert envelope_id in await xbus(shared, "envelope", "list", "--state", "cancelled", "-o", "wide")


async def test_an_item_over_the_limit_is_refused_and_one_at_it_taken(
    shared: Daemon, emitter: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, event_id = await emitter.start()
    await emitter.send(envelope_id, event_id, b"")
    for size in (1001, 100_000, 10_000_000):
        await refused(
            shared, False, "item_too_large", emitter.call.send_item, emitter.token, envelope_id, event_id, b"x" * size
        )
    await emitter.send(envelope_id, event_id, b"x" * 1000)
    await emitter.end(envelope_id, event_id)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == [b"", b"x" * 1000]


@pytest.mark.parametrize(("item", "taken"), [(b"x", 20), (b"x" * 1000, 4)])
async def test_an_envelope_over_a_limit_takes_no_more(
    item: bytes, taken: int, shared: Daemon, emitter: OldEmitter, consumer: OldConsumer
) -> None:
    envelope_id, event_id = await emitter.start()
    second = await emitter.start_event(envelope_id)
    for number in range(taken):
        await emitter.send(envelope_id, (event_id, second)[number % 2], item)
    for event in (event_id, second):
        await refused(
            shared, False, "envelope_too_large", emitter.call.send_item, emitter.token, envelope_id, event, item
        )
    await emitter.end(envelope_id, event_id, second)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == [item] * taken


async def test_an_empty_envelope_may_be_sent(emitter: OldEmitter) -> None:
    envelope_id = await emitter.call.start_envelope(emitter.token)
    assert await emitter.call.end_envelope(emitter.token, envelope_id) is True
    assert await emitter.call.end_envelope(emitter.token, envelope_id) is True


async def test_a_session_expires_when_it_is_not_used_and_nothing_is_open(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"front": {"session_seconds": SESSION_SECONDS}})
    async with OldEmitter(daemon.front) as idle, OldEmitter(daemon.front, "emitter_2") as sending:
        envelope_id, event_id = await sending.start()
        await asyncio.sleep(SESSION_SECONDS + 0.1)
        await refused(daemon, "", "session_unknown", idle.call.start_envelope, idle.token)
        await refused(daemon, False, "session_unknown", idle.call.logout, idle.token)
        # None expires under an open envelope.
        await sending.send(envelope_id, event_id, b"x")
        await sending.end(envelope_id, event_id)
        await asyncio.sleep(SESSION_SECONDS + 0.1)
        await refused(daemon, "", "session_unknown", sending.call.start_envelope, sending.token)
