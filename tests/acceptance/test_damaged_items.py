"""A damaged item is parked and told of: no consumer gets what a bad disk made of it."""

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.journal import change_segments
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus
from tests.support.showing import become, progress
from xbus import model
from xbus.broker.journal.database.connection import writing


async def test_a_damaged_item_is_parked_and_others_are_delivered(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        before = await emitter.emit(b"2000 EUR")
        damaged = await emitter.emit(b"1000 EUR")
        after = await emitter.emit(b"3000 EUR")
    daemon.stop()
    with writing(database_url) as connection:
        rows = connection.execute(sa.select(model.log_segment.c.event_id, model.log_segment.c.data)).all()
        (event_id,) = [row.event_id for row in rows if b"1000 EUR" in bytes(row.data)]
        change_segments(connection, [event_id], data=b"\xc4\x089000 EUR")
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([before, after])
        await become(database_url, damaged, c_1="parked")
        assert consumer.committed == [before, after]
    parked = progress(database_url, damaged)["c_1"]
    assert parked.code == "segment_damaged"
    assert str(event_id) in str(parked.cause)
    health = await run_xbus(daemon, "health")
    assert "segment_damaged" in health.stdout
