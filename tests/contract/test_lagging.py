"""Roles that lag further than they may; on every database."""

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, edit_sqlite, settle_all
from xbus import model
from xbus.broker.housekeeping.lagging import CODE, LagKeeper
from xbus.broker.journal.configuration import read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.lagging import Lagging, find_lagging
from xbus.clock import LONGEST_SPAN, SystemClock
from xbus.supervision.health import Health


class Soon(SystemClock):
    """An hour after what the tests write."""

    def now(self) -> datetime:
        return NOW + timedelta(hours=1)


async def limit(journal: Journal, scribe: Scribe, login: str = "store_1", **limits: object) -> None:
    row = {"kind": "role", "subject_id": scribe.role_id(login), "when_behind": "alarm", **limits}
    await journal.run(lambda connection: connection.execute(sa.insert(model.lag_limit).values(**row)))


async def find(journal: Journal) -> list[Lagging]:
    return await journal.read(find_lagging, Soon().now())


async def count(journal: Journal, table: sa.Table, *which: sa.ColumnElement[bool]) -> int:
    statement = sa.select(sa.func.count()).select_from(table).where(*which)
    return await journal.read(lambda connection: int(connection.execute(statement).scalar_one()))


@pytest.fixture
def health() -> Health:
    return Health("broker", Soon())


async def test_a_role_without_a_limit_may_lag(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    assert await find(journal) == []


async def test_a_number_of_envelopes_is_a_limit(journal: Journal, scribe: Scribe) -> None:
    for _ in range(5):
        await scribe.put([b"x"])
    await scribe.put([b"x"], type_name="secrets")
    await limit(journal, scribe, envelopes=3)
    (found,) = await find(journal)
    assert (found.login, found.upto) == ("store_1", 2)
    assert found.told == "it lacks some 5 envelopes, and max_lag allows 3"
    await settle_all(journal, 2)
    assert await find(journal) == []


async def test_an_age_is_a_limit(journal: Journal, scribe: Scribe) -> None:
    for _ in range(2):
        await scribe.put([b"x"])
    await limit(journal, scribe, seconds=3_599)
    (found,) = await find(journal)
    assert (found.login, found.upto) == ("store_1", 2)
    assert found.told.startswith("the oldest envelope that it lacks was received 2020-02-29 12:00 UTC")
    await settle_all(journal, 2)
    assert await find(journal) == []


async def test_an_age_beyond_all_dates_is_no_limit(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await limit(journal, scribe, seconds=1e300)
    assert await find(journal) == []
    assert (await journal.read(read_stored)).in_use.roles["store_1"].max_lag == LONGEST_SPAN


@pytest.mark.parametrize("place", [1, 3])
async def test_a_moment_that_cannot_be_read_is_not_old(place: int, journal: Journal, scribe: Scribe) -> None:
    """The first envelope is too old, and the other four are not."""
    for _ in range(5):
        await scribe.put([b"x"])
    fresh = sa.update(model.envelope).where(model.envelope.c.position > 1).values(closed_at=Soon().now())
    await journal.run(lambda connection: connection.execute(fresh))
    await limit(journal, scribe, seconds=1_800)
    await edit_sqlite(journal, "UPDATE envelope SET closed_at = '27.11.2026' WHERE position = ?", place)
    assert [found.upto for found in await find(journal)] == ([] if place == 1 else [1])


async def test_by_an_age_too_no_more_are_skipped_at_once_than_the_history_takes(
    journal: Journal, scribe: Scribe
) -> None:
    for _ in range(5):
        await scribe.put([b"x"])
        await scribe.put([b"x"], type_name="secrets")
    await limit(journal, scribe, seconds=60)
    for most, upto in ((2, 3), (5, 9), (6, 10)):
        (found,) = await journal.read(find_lagging, Soon().now(), most)
        assert found.upto == upto
    await settle_all(journal, 3)
    (found,) = await journal.read(find_lagging, Soon().now(), 2)
    assert found.upto == 7, "the next look goes on"


async def test_an_alarm_lasts_as_long_as_the_lag(journal: Journal, scribe: Scribe, health: Health) -> None:
    await scribe.put([b"x"])
    await limit(journal, scribe, seconds=60)
    keeper = LagKeeper(journal, Soon(), health, lambda: None)
    await keeper.look()
    (problem,) = health.problems
    assert (problem.code, problem.about) == (CODE, "store_1")
    await settle_all(journal, 1)
    await keeper.look()
    assert health.healthy


async def test_a_role_that_nobody_serves_is_detached(journal: Journal, scribe: Scribe, health: Health) -> None:
    await scribe.put([b"x"])
    await limit(journal, scribe, seconds=60, when_behind="detach")
    await LagKeeper(journal, Soon(), health, lambda: None).look()
    assert health.healthy
    assert await count(journal, model.role, model.role.c.detached_at.is_not(None)) == 1
    told = (model.history.c.subject == "role", model.history.c.move == "detached")
    assert await count(journal, model.history, *told) == 1
    assert await count(journal, model.audit, model.audit.c.action == "detached") == 1
    await LagKeeper(journal, Soon(), health, lambda: None).look()
    assert await count(journal, model.history, *told) == 1


async def test_a_role_skips_once_for_each_lag(journal: Journal, scribe: Scribe, health: Health) -> None:
    for _ in range(3):
        await scribe.put([b"x"])
    await limit(journal, scribe, envelopes=1, when_behind="skip")
    decided = []
    keeper = LagKeeper(journal, Soon(), health, lambda: decided.append(1))
    for _ in range(2):
        await keeper.look()
    assert health.healthy
    assert len(decided) == 1
    row = (model.decision.c.role_id == scribe.role_id(), model.decision.c.until_position == 2)
    assert await count(journal, model.decision, *row) == 1
    assert await count(journal, model.history, model.history.c.move == "skipped") == 1
