"""The broker's housekeeping archives by the command that people use, in a process of its own."""

from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.daemon import write_config
from tests.support.journal import Scribe, add_small_bus, looking, settle_all
from xbus import model
from xbus.broker.housekeeping.archiving import CODE, ArchiveKeeper, archive_command
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.supervision.health import Health


async def test_what_is_old_enough_is_archived_without_a_person(sqlite_url: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url, {"journal": {"archive": "files"}})
    with looking(sqlite_url) as connection:
        add_small_bus(connection)
        of_type = sa.update(model.event_type).where(model.event_type.c.name == "notes")
        connection.execute(of_type.values(archive_after=60))
    async with Journal.open(sqlite_url, "broker") as journal:
        scribe = await Scribe.of(journal)
        await scribe.put([b"x"] * 3)
        await scribe.put([b"y"], type_name="flights")
        await settle_all(journal, 2)
        health = Health("back", StandingClock())
        await ArchiveKeeper(journal, SystemClock(), health, "files", archive_command(config)).look()
        assert health.problems == []
        of_event = model.log_segment.c.event_id == model.log_event.c.event_id
        left = sa.select(model.log_event.c.event_type).join(model.log_segment, of_event)
        assert await journal.read(lambda connection: list(connection.execute(left).scalars())) == ["flights"]
        (file,) = (tmp_path / "files").rglob("*.parquet")
        assert pq.ParquetFile(file).metadata.num_rows == 3

        await scribe.put([b"z"])
        await settle_all(journal, 3)
        await ArchiveKeeper(journal, SystemClock(), health, "files", ("false",)).look()
        (problem,) = health.problems
        assert problem.code == CODE
