"""The figures of readers, subscriptions and bots, read from a journal."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tests.support.reading_bus import make_reading_bus
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.journal import Journal
from xbus.broker.metrics.of_journal import JournalLook
from xbus.clock import SystemClock


class LaterClock(SystemClock):
    """Tells times an hour after the present one."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(hours=1)


async def shown(url: str) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and its labels."""
    async with Journal.open(url, "broker") as journal:
        look = JournalLook(journal, LaterClock(), None, 0, wait_seconds=60)
        await look.refresh()
        families = list(look.families())
    return {(family.name, *labels.values()): value for family in families for labels, value in family.samples}


async def test_a_scrape_shows_readers_subscriptions_and_bots(database_url: str) -> None:
    bus = make_reading_bus(database_url)
    bus.slow("summary")
    bus.run("summary", state="due", ended_at=None)
    bus.run("summary", state="done")
    with writing(database_url) as connection:
        shop = sa.select(model.subscription.c.service_id).where(model.subscription.c.name == "shop").scalar_subquery()
        failing = {"failures": 4, "code": "callback_failed", "failing_since": datetime.now(UTC)}
        state = model.subscription_state
        connection.execute(sa.update(state).where(state.c.service_id == shop).values(failing))
    values = await shown(database_url)
    # One range of billing has settled two of five; the other one, which nobody reads, none.
    assert values["xbus_reader_lag_events", "billing"] == 5
    assert 3600 <= values["xbus_reader_lag_seconds", "billing"] < 4600
    assert [values["xbus_reader_ranges", "billing", state] for state in ("free", "leased", "out")] == [1, 0, 1]
    assert values["xbus_reader_paused", "billing"] == values["xbus_reader_detached", "billing"] == 0
    assert {key: value for key, value in values.items() if key[0] == "xbus_subscription_failures"} == {
        ("xbus_subscription_failures", "shop"): 4
    }
    assert (values["xbus_bot_runs", "summary", "due"], values["xbus_bot_runs", "summary", "running"]) == (1, 0)
    assert (values["xbus_bot_failures", "summary"], values["xbus_bot_slowed", "summary"]) == (10, 1)
    assert (values["xbus_bot_failures", "nightly/report"], values["xbus_bot_slowed", "nightly/report"]) == (0, 0)
