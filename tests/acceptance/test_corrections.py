"""One command cures a bad item for all who lack it and all who come, against the real broker."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, Nodes, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldRecipient, OldWorker
from tests.support.operating import Operator, xbus
from tests.support.showing import become
from tests.support.waiting import DEADLINE_SECONDS, eventually

ORDERS: Nodes = {"w": ["c"], "c": [], "d": [], "e": []}
"""``c`` is behind a worker that marks each item, ``d`` and ``e`` get it as it was emitted."""

OLD_ROLE = """
[[role]]
login = "c_2"
service = "c"
start = "oldest"
"""

SENT = [b"a", b"bad", b"c"]
CURED = [b"a", b"good", b"c"]
MARKED = [b"a w_1", b"good w_1", b"c w_1"]


def refuse_bad(envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
    return (False, [(indices, "no customer")]) if data.startswith(b"bad") else (True, None)


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


async def parked_bad_order(url: str, emitter: OldEmitter, *consumers: OldRecipient) -> str:
    """The id of an envelope that all of these refuse."""
    for consumer in consumers:
        consumer.behave["send_item"] = refuse_bad
    envelope_id = await emitter.emit(*SENT)
    parked = {consumer.login: "parked" for consumer in consumers}
    await become(url, envelope_id, DEADLINE_SECONDS, **parked)
    for consumer in consumers:
        await eventually(
            lambda consumer=consumer: [envelope_id] in consumer.got("stop_envelope"),  # type: ignore[misc]
            "it is stopped",
        )
        consumer.calls.clear()
    return envelope_id


async def correct(daemon: Daemon, envelope_id: str, data: bytes, *options: str) -> str:
    """Correct the second item; what the command says."""
    file: Path = daemon.config.with_name("item")
    file.write_bytes(data)
    common = ("--item", "1", "--file", str(file), "--reason", "asked them", "--resume")
    return await Operator(daemon).give("correct", envelope_id, *common, *options)


async def test_one_correction_cures_the_envelope_for_all(url: str, start_daemon: StartDaemon) -> None:
    add_bus(url, {"test_event": ORDERS})
    daemon = start_daemon(url)
    async with (
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1") as behind_worker,
        OldConsumer(daemon.back, "d_1") as direct,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id = await parked_bad_order(url, emitter, behind_worker, direct)

        told = await correct(daemon, envelope_id, b"good")

        assert "Roles that lack it: c_1 (parked), d_1 (parked), e_1 (owed)." in told
        assert "It goes through the workers again: w." in told
        # By what is sealed later it is known that the broker has looked.
        last = await emitter.emit(b"z")
        await behind_worker.wait_for([envelope_id, last])
        await direct.wait_for([envelope_id, last])
        assert behind_worker.items(envelope_id) == MARKED
        assert direct.items(envelope_id) == CURED

        # One that was away gets it in its turn, and so does one that is new and begins in the past.
        async with OldConsumer(daemon.back, "e_1") as away:
            await away.wait_for([envelope_id, last])
            assert away.items(envelope_id) == CURED
            known = daemon.log.count("configuration read")
            await xbus(daemon, "apply", "-", stdin=OLD_ROLE)
            await xbus(daemon, "password", "role", "c_2", "--stdin", stdin=PASSWORD)
            await eventually(lambda: daemon.log.count("configuration read") > known, "the new role is known")
            async with OldConsumer(daemon.back, "c_2") as new:
                await new.wait_for([envelope_id, last])
                assert new.items(envelope_id) == MARKED

            # A replay carries it to all; nobody else was bothered again.
            again = await emitter.call.replay_envelope(emitter.token, envelope_id)
            for consumer, expected in ((behind_worker, MARKED), (direct, CURED), (away, CURED)):
                await consumer.wait_for([again])
                assert consumer.items(again) == expected
                assert consumer.committed.count(envelope_id) == 1

    shown = await xbus(daemon, "envelope", "show", envelope_id)
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("  all ")]
    assert line[:4] == ["all", "1", "1", "corrected"]
    assert line[-2:] == ["asked", "them"]


async def test_a_correction_for_one_role_is_for_that_one_only(url: str, start_daemon: StartDaemon) -> None:
    add_bus(url, {"test_event": {"c": [], "d": [], "e": []}})
    daemon = start_daemon(url)
    async with (
        OldConsumer(daemon.back, "c_1") as cured,
        OldConsumer(daemon.back, "d_1") as other,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id = await parked_bad_order(url, emitter, cured, other)
        assert (await correct(daemon, envelope_id, b"good", "--role", "c_1")).splitlines()[:1] == [
            "Corrected item 1 of event 1 for c_1."
        ]
        await cured.wait_for([envelope_id])
        await become(url, envelope_id, c_1="done", d_1="parked")
        other.behave.clear()
        await Operator(daemon).give("resume", envelope_id)
        await other.wait_for([envelope_id])
        async with OldConsumer(daemon.back, "e_1") as away:
            await away.wait_for([envelope_id])
    assert cured.items(envelope_id) == CURED
    assert other.items(envelope_id) == away.items(envelope_id) == SENT


async def test_a_broker_that_was_down_knows_of_it_and_a_retry_carries_it(url: str, start_daemon: StartDaemon) -> None:
    add_bus(url, {"test_event": {"c": []}, "other": {"c": []}})
    daemon = start_daemon(url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        envelope_id, event_id = await emitter.start()
        consumer.behave["send_item"] = refuse_bad
        await emitter.send(envelope_id, event_id, *SENT)
        await emitter.end(envelope_id, event_id)
        await become(url, envelope_id, c_1="parked")
        file = daemon.config.with_name("item")
        file.write_bytes(b"good")
        common = ("--item", "1", "--file", str(file), "--reason", "asked them")
        await Operator(daemon).give("correct", envelope_id, *common)
        assert await emitter.call.retry_event(emitter.token, event_id)
        await become(url, envelope_id, c_1="retried")
        await eventually(lambda: consumer.committed, "the retry arrives")
        (again,) = consumer.committed
        assert consumer.items(again) == CURED
    daemon.stop()

    restarted = start_daemon(url)
    async with OldEmitter(restarted.front) as emitter, OldConsumer(restarted.back, "c_1") as consumer:
        replayed = await emitter.call.replay_envelope(emitter.token, envelope_id)
        await consumer.wait_for([replayed])
        assert consumer.items(replayed) == CURED
