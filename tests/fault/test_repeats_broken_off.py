"""The broker is killed while envelopes come again: each comes again once, however often it is asked for."""

import asyncio

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.showing import become
from tests.support.waiting import eventually

ENVELOPES = 10


async def test_a_retry_that_a_crash_broke_off_is_done_once(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        consumer.behave["send_item"] = lambda *_: (False, [([0], "too old")])
        sent = {}
        for number in range(ENVELOPES):
            envelope_id, event_id = await emitter.start()
            await emitter.send(envelope_id, event_id, b"%d" % number)
            await emitter.end(envelope_id, event_id)
            sent[event_id] = envelope_id
        for envelope_id in sent.values():
            await become(database_url, envelope_id, c_1="parked")
        before = len(consumer.calls)
        consumer.behave.clear()

        async def retry(event_id: str) -> str:
            return str(await emitter.call.retry_event(emitter.token, event_id))

        asked = [asyncio.create_task(retry(event_id)) for event_id in sent]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        daemon.crash()
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
        answered = {event_id: task.result() for event_id, task in zip(sent, asked, strict=True) if not task.cancelled()}
        await asyncio.to_thread(daemon.start)

        again = {event_id: await retry(event_id) for event_id in sent}
        assert "" not in again.values()
        assert again.items() >= answered.items() != set()
        for envelope_id in sent.values():
            await become(database_url, envelope_id, c_1="retried")
        last = await emitter.emit(b"last")
        await consumer.wait_for([last])

        def items() -> dict[str, bytes]:
            """What came again, or came last, by event; what the crash broke off may come behind the last one."""
            return {args[1]: args[3] for verb, *args in consumer.calls[before:] if verb == "send_item"}

        await eventually(lambda: items().keys() >= set(again.values()), "all come again")
        # The same ids may have come twice, where the crash broke off their delivery; other ids never.
        assert sorted(items().values()) == sorted([*(b"%d" % number for number in range(ENVELOPES)), b"last"])
