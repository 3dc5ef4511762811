"""The broker is killed while what waited for the first graph of its type is taken over: all of it comes, once."""

import asyncio
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.waiting import eventually

ENVELOPES = 60


async def test_what_waited_for_the_first_graph_comes_though_the_broker_is_killed(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}, "early": {}})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % number, type_name="early") for number in range(ENVELOPES)]
        await consumer.wait_for([await emitter.emit(b"other")])
        held, goes_on = asyncio.Event(), asyncio.Event()

        async def hold_after_some(*_: Any) -> Any:
            """However fast all of it goes: more is to come when the broker is killed."""
            if len(consumer.committed) > 3:
                held.set()
                await goes_on.wait()
            return True, None

        consumer.behave["end_envelope"] = hold_after_some
        add_bus(database_url, {"test_event": {"c": []}, "early": {"c": []}})
        await eventually(held.is_set, "some were delivered")
        daemon.crash()
        consumer.behave.clear()
        goes_on.set()
        await asyncio.to_thread(daemon.start)
        late = [await emitter.emit(b"late", type_name="early") for _ in range(3)]
        await consumer.wait_for([*sent, *late])
        again = [envelope_id for envelope_id in sent if consumer.committed.count(envelope_id) > 1]
        assert all("stop_envelope" in consumer.verbs(envelope_id) for envelope_id in again)
        assert len(again) <= 64
