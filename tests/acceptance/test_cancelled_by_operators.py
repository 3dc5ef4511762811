"""Operators cancel open envelopes beside the running broker, and without it."""

import asyncio
import json

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus, xbus
from tests.support.waiting import answered, eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Refused

REASON = "must not be delivered \x1b[2J\u202e\nby anybody"
TOLD_REASON = "must not be delivered \\x1b[2J\\u202e\nby anybody"
ON_ONE_LINE = TOLD_REASON.replace("\n", "\\n")
"""Emitters print it on terminals, and write it to logs."""


@pytest.fixture
def daemon(database_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(database_url, {"test_event": {"c": []}, "question": {"d": []}}, immediate={"question"})
    return start_daemon(database_url)


async def cancel(daemon: Daemon, envelope_id: str) -> str:
    return await xbus(daemon, "envelope", "cancel", envelope_id, "--reason", REASON, "--yes")


async def why(daemon: Daemon, envelope_id: str) -> tuple[str, str]:
    """The code and the cause of the first answer."""
    found = json.loads((await xbus(daemon, "why", envelope_id, "--json")).splitlines()[0])
    return found["code"], found["cause"]


async def test_a_program_that_still_sends_is_told_why(daemon: Daemon) -> None:
    async with (
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
        OldConsumer(daemon.back, "c_1") as consumer,
    ):
        with pytest.raises(Refused) as refusal:
            async with emitter.envelope() as envelope, envelope.event("test_event") as event:
                await event.send(1)
                await event.flush()

                async def is_known(envelope_id: str = str(envelope.id)) -> bool:
                    return envelope_id in await xbus(daemon, "envelope", "list", "-o", "json")

                await answered(is_known, "the journal has the envelope")
                told = await cancel(daemon, envelope.id)
                assert "of emitter_1 is open since" in told
                assert f"Cancelled envelope {envelope.id}." in told
                await eventually(lambda: "an operator cancelled" in daemon.log, "the front knows")
                await event.send(2)
        assert refusal.value.code == "envelope_closed"
        assert TOLD_REASON in refusal.value.cause
        code, cause = await why(daemon, envelope.id)
        assert code == "cancelled"
        assert TOLD_REASON in cause
        async with emitter.envelope() as other, other.event("test_event") as event:
            await event.send(3)
        await consumer.wait_for([other.id])
        assert consumer.committed == [other.id]
    acts = [json.loads(line) for line in (await xbus(daemon, "audit", "list", "--json")).splitlines()]
    (act,) = [act for act in acts if act["action"] == "cancelled"]
    assert (act["object"], act["before"], act["reason"]) == (f"envelope {envelope.id}", "open", ON_ONE_LINE)


async def test_an_emitter_of_the_old_generation_is_refused_at_once(daemon: Daemon) -> None:
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"1")
        await emitter.end_event(envelope_id, event_id)
        await cancel(daemon, envelope_id)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is False
        assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True
    assert f"end_envelope refused: envelope {envelope_id} is cancelled: by " in daemon.log


async def test_a_consumer_that_replied_forgets_the_envelope(daemon: Daemon) -> None:
    async with OldConsumer(daemon.back, "d_1") as desk, OldEmitter(daemon.front) as emitter:
        desk.do_has_immediate_reply = lambda: (True, ["question"])  # type: ignore[method-assign]
        await desk.register()
        desk.behave["end_event"] = lambda *_: (True, "yes")
        envelope_id, event_id = await emitter.start("question")
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == (True, "yes")
        await cancel(daemon, envelope_id)
        await eventually(lambda: [envelope_id] in desk.got("stop_envelope"), "the consumer is told to forget it")
        assert desk.committed == []


async def test_a_sealed_envelope_stays_and_an_open_one_needs_no_broker(daemon: Daemon) -> None:
    async with OldEmitter(daemon.front) as emitter:
        sealed = await emitter.emit(b"1")
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"1")
        refused = await run_xbus(daemon, "envelope", "cancel", sealed, "--reason", REASON, "--yes")
        assert refused.returncode == 1
        assert "[envelope_sealed]" in refused.stderr
        assert "xbus pause role" in refused.stderr
        unsure = await run_xbus(daemon, "envelope", "cancel", envelope_id[:13], "--reason", REASON, stdin="n\n")
        assert (unsure.returncode, (await why(daemon, envelope_id))[0]) == (1, "open")
        await asyncio.to_thread(daemon.stop)
        await cancel(daemon, envelope_id)
        again = await run_xbus(daemon, "envelope", "cancel", envelope_id, "--reason", REASON, "--yes")
        assert (
            again.returncode,
            "[envelope_closed]" in again.stderr,
            ON_ONE_LINE in again.stderr,
        ) == (1, True, True)
        daemon.start()
        assert await emitter.call.send_item(emitter.token, envelope_id, event_id, b"2") is False
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([sealed])
        assert consumer.committed == [sealed]
