"""A broker reads the configuration once for all who wait, and checks it after edits by SQL; on every database."""

import asyncio
from typing import Any, cast

import sqlalchemy as sa

from tests.contract.test_readers import change
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec
from xbus.broker.journal.configuration.table_checks import read_checked
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.topics import ensure_topics
from xbus.clock import SystemClock
from xbus.supervision.health import Health

WRONG = "configuration_wrong"


class ReadsOf:
    """A journal that counts how often the configuration is read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.reads = 0

    async def read(self, question: Any, *arguments: Any) -> Any:
        self.reads += question is read_checked
        return await self._journal.read(question, *arguments)


async def test_one_reads_for_all(journal: Journal, scribe: Scribe) -> None:
    counting = ReadsOf(journal)
    configuration = Configuration(cast(Journal, counting))
    await asyncio.gather(*(configuration.refresh() for _ in range(10)))
    assert counting.reads == 1
    await journal.run(change, BusSpec(event_types={"new": EventTypeSpec("new", False, {})}))
    await asyncio.gather(*(configuration.refresh() for _ in range(10)))
    assert (counting.reads, "new" in configuration.catalog.event_types) == (2, True)


async def test_what_programs_change_is_taken_and_what_sql_edits_is_checked(journal: Journal, scribe: Scribe) -> None:
    health = Health("broker", SystemClock())
    configuration = Configuration(journal, health)
    await configuration.refresh()
    await journal.run(break_a_rule)
    await configuration.refresh()
    assert [problem.code for problem in health.problems] == [WRONG]
    await journal.run(change_by_a_program)
    await configuration.refresh()
    assert [problem.code for problem in health.problems] == [WRONG], "it is checked until it is right"
    await journal.run(mend_it)
    await configuration.refresh()
    assert not health.problems
    assert "later" in configuration.catalog.event_types


def break_a_rule(connection: sa.Connection) -> None:
    connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(jitter=7))


def mend_it(connection: sa.Connection) -> None:
    connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(jitter=0.5))


def change_by_a_program(connection: sa.Connection) -> None:
    ensure_topics(connection, ["later"], NOW)
