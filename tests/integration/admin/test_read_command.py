"""``xbus read`` against a real database."""

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from tests.integration.admin.conftest import NOON, Xbus
from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus
from xbus.admin.search import StreamRequest, read_stream
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.slices.values import Place
from xbus.model import envelope, event_type


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    return make_parked_bus(database_url)


def objects(xbus: Xbus, *arguments: str) -> list[dict[str, Any]]:
    result = xbus("read", "clients", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def places(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(item["position"], item["event_number"] - 1, item["index"]) for item in found]


def test_items_come_in_the_order_of_the_log_from_any_place_on(xbus: Xbus, bus: ParkedBus) -> None:
    found = objects(xbus)
    assert places(found) == sorted(places(found))
    assert {item["type"] for item in found} == {"clients"}
    third = ":".join(map(str, places(found)[2]))
    assert objects(xbus, "--from", third) == found[2:]
    assert objects(xbus, "--limit", "2") == found[:2]
    assert objects(xbus, "--from", "head") == []
    (wanted,) = [item for item in found if item["value"] == {"name": "ada", "number": 1}][:1]
    assert wanted in objects(xbus, "--where", "name=ada", "--where", "number=1")
    lines = xbus("read", "clients", "--from", third, "--limit", "1").stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{third} 20")


def test_moments_and_ages_are_starts(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        last = max(item["position"] for item in objects(xbus))
        later = NOON + timedelta(days=400)
        connection.execute(update(envelope).where(envelope.c.position >= last).values(closed_at=later))
    assert {item["position"] for item in objects(xbus, "--from", later.isoformat())} == {last}
    assert objects(xbus, "--from", "-1h") == objects(xbus, "--from", "1h")


def test_secret_fields_are_neither_shown_nor_compared(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        connection.execute(update(event_type).where(event_type.c.name == "clients").values(secret="name"))
    assert "ada" not in xbus("read", "clients").stdout
    assert objects(xbus, "--where", "name=ada") == []
    assert objects(xbus, "--where", "name=ada", "--show-secrets") != []


def test_it_waits_for_more_at_the_end(bus: ParkedBus) -> None:
    looks = iter([True, True, False])
    wanted = StreamRequest("clients", "oldest", None, [])
    found = list(read_stream(bus.url, wanted, lambda: next(looks)))
    assert list(looks) == []
    with reading(bus.url):
        assert [each.place for each in found] == sorted(each.place for each in found)
    assert found[0].place >= Place(1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("read", "nothing"), "nothing"),
        (("read", "clients", "--from", "1:2"), "is no place in the log"),
        (("read", "clients", "--from", "yesterday"), "neither a place in the log nor a moment"),
        (("read", "clients", "--from", "1000000"), "beyond the end of the log"),
        (("read", "clients", "--where", "name"), "is no condition"),
    ],
)
def test_what_makes_no_sense_is_refused(xbus: Xbus, bus: ParkedBus, arguments: tuple[str, ...], told: str) -> None:
    result = xbus(*arguments)
    assert result.exit_code in (1, 2)
    assert told in result.output
