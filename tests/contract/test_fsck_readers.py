"""The examination of a journal finds places of readers that would skip items, and ranges that miss some."""

import pytest
import sqlalchemy as sa

from tests.support.fsck import examined
from tests.support.reading_bus import make_reading_bus
from xbus import model
from xbus.broker.journal.database.connection import writing

STRETCH, RANGE = model.reader_stretch, model.reader_range


def test_readers_that_read_have_no_faults(sqlite_url: str) -> None:
    make_reading_bus(sqlite_url)
    assert [fault for fault in examined(sqlite_url) if fault.table.startswith("reader")] == []


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (sa.update(STRETCH).values(position=1_000), "the log ends at 6"),
        (sa.update(STRETCH).values(position=-1), "the log ends at 6"),
        (sa.update(STRETCH).values(item=-1), "the log ends at 6"),
        (sa.update(STRETCH).where(STRETCH.c.to_position.is_not(None)).values(to_position=77), "its batch ends at 77"),
        (sa.update(STRETCH).values(last="0" * 16), "its stretches"),
        (sa.update(RANGE).values(handed_out=False), "no batch is out"),
        (sa.update(RANGE).where(RANGE.c.first == "0" * 16).values(first="1" * 16), "its ranges have 1111"),
        (sa.update(RANGE).where(RANGE.c.last == "f" * 16).values(last="e" * 16), "its ranges end before ffff"),
        (sa.update(RANGE).where(RANGE.c.owner.is_not(None)).values(expires_at=None), "no lease"),
        (sa.update(STRETCH).values(position=2), "and its history ends at 3"),
        (sa.update(STRETCH).values(item=1), "and its history ends at 3"),
        (sa.update(model.reader_move).values(to_position=4), "and its history ends at 4"),
    ],
)
def test_a_changed_place_or_range_is_named(sqlite_url: str, change: sa.Update, cause: str) -> None:
    make_reading_bus(sqlite_url)
    with writing(sqlite_url) as connection:
        connection.execute(change)
    found = [fault for fault in examined(sqlite_url) if fault.table.startswith("reader")]
    assert any(cause in fault.cause for fault in found), found
