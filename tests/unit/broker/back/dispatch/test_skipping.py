"""A role that lags too far and skips, with a whole back over a journal in memory."""

import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.journal import NOW
from xbus import model
from xbus.broker.housekeeping.lagging import LagKeeper
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.supervision.health import Health


async def may_lack(broker: Broker, envelopes: int) -> None:
    row = {"kind": "role", "subject_id": broker.scribe.role_id(), "envelopes": envelopes, "when_behind": "skip"}
    await broker.journal.run(lambda connection: connection.execute(sa.insert(model.lag_limit).values(**row)))


async def read_dropped(broker: Broker) -> list[str]:
    dropped = sa.select(model.history.c.reason).where(
        model.history.c.subject == "delivery", model.history.c.move == "dropped"
    )
    return await broker.journal.read(lambda connection: list(connection.execute(dropped).scalars()))


async def until_carried_out(broker: Broker) -> None:
    count = sa.select(sa.func.count()).select_from(model.decision)
    while await broker.journal.read(lambda connection: connection.execute(count).scalar_one()):
        broker.ring()


async def test_a_role_that_returns_gets_what_its_limit_left(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_2")
        for number in range(5):
            await broker.put(b"%d" % number)
        await broker.until(lambda: len(broker.items("store_2")) == 5)
        await may_lack(broker, 2)
        clock = SystemClock()
        keeper = LagKeeper(journal, clock, Health("broker", clock), broker.back.decided)
        await keeper.look()
        await until_carried_out(broker)
        await broker.register("store_1")
        await broker.until(lambda: broker.items("store_1") == [b"3", b"4"])
        told = "skips up to position 3: it lacks some 5 envelopes, and max_lag allows 2"
        assert await read_dropped(broker) == [f'role "store_1" {told}'] * 3
        await keeper.look()
        assert len(await read_dropped(broker)) == 3


async def test_what_is_parked_is_left_to_a_person(journal: Journal) -> None:
    async with running(journal) as broker:
        for number in range(3):
            await broker.put(b"%d" % number)
        first = sa.select(model.envelope.c.id).where(model.envelope.c.position == 1).scalar_subquery()
        row = {"role_id": broker.scribe.role_id(), "envelope_id": first, "position": 1, "state": "parked"}
        rest = {"attempts": 1, "code": "refused", "cause": "no", "changed_at": NOW}
        await journal.run(lambda connection: connection.execute(sa.insert(model.delivery).values(**row, **rest)))
        await may_lack(broker, 1)
        clock = SystemClock()
        await LagKeeper(journal, clock, Health("broker", clock), broker.back.decided).look()
        await until_carried_out(broker)
        assert len(await read_dropped(broker)) == 1
        count = sa.select(sa.func.count()).select_from(model.delivery)
        assert await broker.journal.read(lambda connection: connection.execute(count).scalar_one()) == 1
