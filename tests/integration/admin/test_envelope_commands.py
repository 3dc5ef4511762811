"""``xbus envelope`` against a real database."""

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update

from tests.integration.admin.conftest import NOON, Log, Xbus
from tests.integration.admin.parked_bus import make_parked_bus
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.role_progress import count_owed
from xbus.model import bulk_attempt, cursor, envelope, event, node, registration, role


def test_envelopes_are_listed_newest_first(xbus: Xbus, log: Log) -> None:
    lines = xbus("envelope", "list", "-o", "wide").stdout.splitlines()
    assert [line.split() for line in lines[:1]] == [
        ["POSITION", "STATE", "ITEMS", "EMITTER", "OPENED", "CONSUMERS", "ID"]
    ]
    for line, envelope_id in zip(lines[1:], (log.open, log.cancelled, log.second, log.first), strict=True):
        assert str(envelope_id) in line
    assert lines[3].split()[-3:] == ["3", "owed", str(log.second)]
    assert lines[4].split() == [
        "1", "received", "1,500", "airport_1", "2030-05-17", "12:00:00Z", "1", "parked,", "1", "owed,",
        "1", "done", str(log.first),
    ]  # fmt: skip


def test_items_that_are_parked_alone_are_seen(xbus: Xbus, database_url: str) -> None:
    bus = make_parked_bus(database_url)
    lines = xbus("envelope", "list", "-o", "wide").stdout.splitlines()[1:]
    consumers = [re.split(r"  +", line)[-2] for line in lines]
    assert consumers == ["2 done", "2 done, 2 items parked alone", "2 parked"]
    listed = [json.loads(line)["parked_items"] for line in xbus("envelope", "list", "--json").stdout.splitlines()]
    assert listed == [0, 2, 0]
    assert ["parked", "alone", "2"] in _words(xbus("envelope", "show", str(bus.alone)).stdout)
    assert "parked alone" not in xbus("envelope", "show", str(bus.done)).stdout

    assert xbus("parked", "drop", str(bus.alone), "--item", "1", "--reason", "no use", "--yes").exit_code == 0
    assert "2 done, 1 item parked alone" in xbus("envelope", "list", "-o", "wide").stdout
    assert xbus("parked", "resume", str(bus.alone)).exit_code == 0
    assert "parked alone" not in xbus("envelope", "list").stdout


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_list_goes_on_below_the_last_id(xbus: Xbus, log: Log) -> None:
    first = xbus("envelope", "list", "--limit", "2").stdout
    assert str(log.second) not in first
    assert f"There may be more: --before {log.cancelled}" in first
    second = xbus("envelope", "list", "--before", str(log.cancelled)).stdout
    assert str(log.second) in second
    assert str(log.cancelled) not in second


def test_when_it_was_opened_tells_what_is_new_and_not_its_id(xbus: Xbus, log: Log, database_url: str) -> None:
    last = max(log.open, log.cancelled, log.second, log.first)
    opened = update(envelope).where(envelope.c.id == last).values(opened_at=datetime(2020, 2, 29, tzinfo=UTC))
    with writing(database_url) as connection:
        connection.execute(opened)

    first = xbus("envelope", "list", "--limit", "3").stdout
    assert str(last) not in first
    before = first.split()[-1]
    assert str(last) in xbus("envelope", "list", "--before", before).stdout


def test_a_list_does_not_go_on_behind_what_is_not_there(xbus: Xbus, log: Log) -> None:
    result = xbus("envelope", "list", "--before", str(UUID(int=7)))
    assert result.exit_code == 1
    assert "there is no envelope" in result.stderr


def test_a_list_may_be_of_one_state(xbus: Xbus, log: Log) -> None:
    listed = [json.loads(line) for line in xbus("envelope", "list", "--state", "open", "--json").stdout.splitlines()]
    assert [entry["envelope_id"] for entry in listed] == [str(log.open)]


def test_an_empty_list_says_so(xbus: Xbus) -> None:
    assert xbus("envelope", "list").stdout == "No envelopes.\n"
    assert xbus("envelope", "list", "--json").stdout == ""


def test_an_envelope_is_shown(xbus: Xbus, log: Log) -> None:
    shown = xbus("envelope", "show", "-o", "wide", str(log.first)).stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["state", "received"] in lines
    assert ["items", "1,500"] in lines
    assert ["store_1", "store", "done", "-", "-", "-"] in lines
    assert ["counter_1", "counter", "parked", "3", "refused", "no", "such", "carrier"] in lines
    assert ["(audit)", "audit", "owed", "-", "-", "the", "service", "has", "no", "role", "yet"] in lines
    failure = ["counter_1", "count", "send_item", "refused", "no", "such", "carrier", "7", "unprocessed"]
    assert ["2030-05-17", "12:00:00Z", *failure] in [line[:-1] for line in lines]


def test_what_bulk_workers_make_of_an_envelope_is_shown(xbus: Xbus, log: Log, database_url: str) -> None:
    assert "OUTPUTS" not in xbus("envelope", "show", str(log.first)).stdout
    with writing(database_url) as connection:
        event_id = connection.execute(select(event.c.id).where(event.c.envelope_id == log.first)).scalar_one()
        node_id, name = connection.execute(select(node.c.id, node.c.name).order_by(node.c.id).limit(1)).one()
        role_id, login = connection.execute(select(role.c.id, role.c.login).order_by(role.c.id).limit(1)).one()
        begun = {"event_id": event_id, "node_id": node_id, "role_id": role_id, "lease_until": NOON}
        failed = {"id": UUID(int=1), "state": "failed", "started_at": NOON, "ended_at": NOON, "cause": "no column x"}
        later = {"id": UUID(int=2), "state": "building", "started_at": NOON + timedelta(minutes=1), "progress": 0.4217}
        for row in (failed, later):
            connection.execute(insert(bulk_attempt).values(**begun, **row))
    shown = xbus("envelope", "show", "-o", "wide", str(log.first)).stdout.partition("OUTPUTS OF BULK WORKERS\n")[2]
    at = ["2030-05-17", "12:00:00Z"]
    assert [line.split() for line in shown.splitlines()[1:3]] == [
        ["1", name, login, "building", "42%", "-", "-", "2030-05-17", "12:01:00Z", "-", "-"],
        ["1", name, login, "failed", "0%", "-", "-", *at, *at, "no", "column", "x"],
    ]
    told = json.loads(xbus("envelope", "show", "--json", str(log.first)).stdout)["outputs"]
    assert [(output["state"], output["progress"]) for output in told] == [("building", 0.4217), ("failed", 0.0)]


def event_state(xbus: Xbus, envelope_id: UUID) -> str:
    (event,) = json.loads(xbus("envelope", "show", "--json", str(envelope_id)).stdout)["event_list"]
    assert ["1", "flights", event["state"], "1,500", "2,000", event["event_id"]] in [
        line.split() for line in xbus("envelope", "show", "-o", "wide", str(envelope_id)).stdout.splitlines()
    ]
    return str(event["state"])


def test_each_event_has_a_state(xbus: Xbus, log: Log) -> None:
    states = [event_state(xbus, envelope_id) for envelope_id in (log.first, log.second, log.cancelled, log.open)]
    assert states == ["partial", "pending", "cancelled", "pending"]


def test_an_event_is_under_way_where_a_registered_role_may_have_it_in_hand(
    xbus: Xbus, log: Log, database_url: str
) -> None:
    with writing(database_url) as connection:
        store = connection.execute(select(role.c.id).where(role.c.login == "store_1")).scalar_one()
        connection.execute(update(cursor).where(cursor.c.role_id == store).values(handed_to=2))
    assert event_state(xbus, log.second) == "pending"
    with writing(database_url) as connection:
        connection.execute(
            insert(registration).values(role_id=store, token_hash=b"", uri="tcp://here:1", registered_at=NOON)
        )
    assert event_state(xbus, log.second) == "delivering"
    with writing(database_url) as connection:
        connection.execute(update(cursor).values(position=2))
    # Nobody ever provided one of the services.
    assert event_state(xbus, log.second) == "partial"


def test_an_envelope_that_is_still_owed_is_shown_so(xbus: Xbus, log: Log) -> None:
    shown = json.loads(xbus("envelope", "show", "--json", str(log.second)).stdout)
    assert {role["role"]: role["state"] for role in shown["roles"]} == {
        None: "owed",
        "store_1": "owed",
        "counter_1": "owed",
    }
    assert shown["hash"] == "01" * 32
    assert shown["opened_at"] == "2030-05-17T12:00:00+00:00"
    assert shown["event_list"][0]["type"] == "flights"


def test_a_removed_role_is_told_with_what_it_did_not_get(xbus: Xbus, log: Log) -> None:
    xbus("apply", "--prune", "--yes", "--owed", "keep", "-", stdin="")
    shown = json.loads(xbus("envelope", "show", "--json", str(log.second)).stdout)
    assert {role["role"]: role["cause"] for role in shown["roles"]}["store_1"] == "the role is removed"


def test_an_envelope_that_is_open_is_owed_to_nobody(xbus: Xbus, log: Log) -> None:
    shown = json.loads(xbus("envelope", "show", "--json", str(log.open)).stdout)
    assert shown["roles"] == []
    assert shown["position"] is None


def test_an_envelope_that_is_not_there_is_refused(xbus: Xbus, log: Log) -> None:
    result = xbus("envelope", "show", "00000000-0000-0000-0000-000000000000")
    assert result.exit_code == 1
    assert result.stderr == (
        "xbus: there is no envelope 00000000-0000-0000-0000-000000000000: see xbus envelope list [envelope_unknown]\n"
    )


@pytest.mark.parametrize("arguments", [["show", "7"], ["list", "--limit", "0"], ["list", "--state", "lost"]])
def test_a_wrong_command_line_is_refused(xbus: Xbus, arguments: list[str]) -> None:
    assert xbus("envelope", *arguments).exit_code == 2


@pytest.mark.parametrize(("login", "owed"), [("store_1", 1), ("counter_1", 2)])
def test_what_a_role_is_owed_is_counted(log: Log, database_url: str, login: str, owed: int) -> None:
    with reading(database_url) as connection:
        assert count_owed(connection, login) == owed
