"""``xbus fsck`` against a real database."""

import json

from tests.integration.admin.conftest import Xbus
from tests.integration.admin.parked_bus import make_parked_bus
from tests.support.journal import change_segments
from xbus.broker.journal.database.connection import writing


def test_a_good_journal_ends_with_0(xbus: Xbus, database_url: str) -> None:
    result = xbus("fsck")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "Nothing is wrong."


def test_a_damaged_one_ends_with_1_and_names_the_rows(xbus: Xbus, database_url: str) -> None:
    bus = make_parked_bus(database_url)
    with writing(database_url) as connection:
        change_segments(connection, [bus.event_id(bus.done)], data=b"\xc4\x01y")
    result = xbus("fsck", "-o", "wide")
    assert result.exit_code == 1
    assert f"{bus.event_id(bus.done)}, 0" in result.stdout
    found = [json.loads(line) for line in xbus("fsck", "--json").stdout.splitlines()]
    (changed,) = [each for each in found if each["code"] == "segment_changed"]
    assert (changed["severity"], changed["table"]) == ("problem", "log_segment")
    assert changed["row_key"] == f"{bus.event_id(bus.done)}, 0"
    few = xbus("fsck", "--most", "1")
    assert (few.exit_code, "give a larger --most" in few.stderr) == (1, True)
