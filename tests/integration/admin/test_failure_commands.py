"""``xbus failure`` against a real database."""

import json
from typing import Any

import pytest
from sqlalchemy import insert, select

from tests.integration.admin.conftest import NOON, Log, Xbus
from xbus.broker.journal.audit import person
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.people import add_person, disable_person
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.model import failure, role
from xbus.rights import Right


@pytest.fixture
def failures(log: Log, database_url: str) -> list[int]:
    """Ids of three failures: one of ``counter_1``, one of ``store_1``, one of nobody at the second envelope's end."""
    with writing(database_url) as connection:
        store = connection.execute(select(role.c.id).where(role.c.login == "store_1")).scalar_one()
        for told in (
            {"envelope_id": log.first, "role_id": store, "verb": "end_event", "code": "timed_out", "message": "silent"},
            {"envelope_id": log.second, "verb": "end_envelope", "code": "internal_error", "message": "\x1b[2Ja\nfault"},
        ):
            connection.execute(insert(failure).values(at=NOON, **told))
        return list(connection.execute(select(failure.c.id).order_by(failure.c.id)).scalars())


def listed(xbus: Xbus, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in xbus("failure", "list", "--json", *arguments).stdout.splitlines()]


def ids(xbus: Xbus, *arguments: str) -> list[int]:
    return [entry["failure_id"] for entry in listed(xbus, *arguments)]


def test_failures_are_listed_newest_first(xbus: Xbus, failures: list[int]) -> None:
    lines = [line.split() for line in xbus("failure", "list", "-o", "wide").stdout.splitlines()]
    at, last = ["2030-05-17", "12:00:00Z"], str(failures[2])
    assert lines == [
        ["AT", "ROLE", "NODE", "VERB", "CODE", "CAUSE", "ITEMS", "TRACKING", "ID"],
        [*at, "-", "-", "end_envelope", "internal_error", "\\x1b[2Ja", "fault", "-", "unprocessed", last],
        [*at, "store_1", "-", "end_event", "timed_out", "silent", "-", "unprocessed", str(failures[1])],
        [
            *at, "counter_1", "count", "send_item", "refused", "no", "such", "carrier", "7", "unprocessed",
            str(failures[0]),
        ],
    ]  # fmt: skip


def test_a_list_of_failures_may_be_of_some_only(xbus: Xbus, log: Log, failures: list[int]) -> None:
    first, second, third = failures
    assert ids(xbus) == [third, second, first]
    assert ids(xbus, "--role", "counter_1") == [first]
    assert ids(xbus, "--envelope", str(log.first)) == [second, first]
    assert ids(xbus, "--before", str(third), "--limit", "1") == [second]
    xbus("failure", "track", second, "on_hold")
    assert ids(xbus, "--state", "on_hold") == [second]
    assert ids(xbus, "--state", "unprocessed") == [third, first]
    assert f"There may be more: --before {second}" in xbus("failure", "list", "--limit", "2").stdout


def test_no_failures_are_told_so(xbus: Xbus, log: Log) -> None:
    assert xbus("failure", "list", "--envelope", str(log.second)).stdout == "No failures.\n"
    assert listed(xbus, "--envelope", str(log.second)) == []


def test_a_failure_is_shown_with_where_it_happened_and_what_was_done(xbus: Xbus, log: Log, failures: list[int]) -> None:
    assert xbus("failure", "track", failures[0], "processing", "--comment", "asked Ada").stdout == (
        f"Failure {failures[0]} is processing.\n"
    )
    xbus("failure", "track", failures[0], "corrected")
    lines = [line.split() for line in xbus("failure", "show", failures[0]).stdout.splitlines()]
    for told in (
        ["tracking", "corrected"],
        ["at", "2030-05-17", "12:00:00Z"],
        ["envelope", str(log.first)],
        ["node", "count"],
        ["role", "counter_1"],
        ["verb", "send_item"],
        ["items", "7"],
        ["cause", "no", "such", "carrier"],
    ):
        assert told in lines
    who = person().split()
    assert [line[2:] for line in lines[-2:]] == [["processing", *who, "asked", "Ada"], ["corrected", *who, "-"]]

    shown = json.loads(xbus("failure", "show", "--json", failures[0]).stdout)
    assert shown["indices"] == [7]
    assert shown["event_id"] is not None
    assert [(move["tracking"], move["comment"]) for move in shown["history"]] == [
        ("processing", "asked Ada"),
        ("corrected", ""),
    ]


def test_an_envelope_shows_how_far_its_failures_are_tracked(xbus: Xbus, log: Log, failures: list[int]) -> None:
    xbus("failure", "track", failures[0], "won_t_fix")
    shown = json.loads(xbus("envelope", "show", "--json", str(log.first)).stdout)
    told = [(entry["failure_id"], entry["node"], entry["indices"], entry["tracking"]) for entry in shown["failures"]]
    assert told == [(failures[1], None, None, "unprocessed"), (failures[0], "count", [7], "won_t_fix")]


def test_a_move_that_does_not_follow_is_refused_and_nothing_is_changed(xbus: Xbus, failures: list[int]) -> None:
    xbus("failure", "track", failures[0], "corrected")
    again = xbus("failure", "track", failures[0], "corrected", "--comment", "again")
    assert (again.exit_code, again.stderr) == (
        1,
        f"xbus: failure {failures[0]} is corrected already: it can become processing, on_hold, won_t_fix "
        "[tracking_refused]\n",
    )
    back = xbus("failure", "track", failures[0], "unprocessed")
    assert back.exit_code == 1
    assert back.stderr == (
        f"xbus: failure {failures[0]} is corrected and can't become unprocessed: it can become "
        "processing, on_hold, won_t_fix [tracking_refused]\n"
    )
    shown = json.loads(xbus("failure", "show", "--json", failures[0]).stdout)
    assert [move["tracking"] for move in shown["history"]] == ["corrected"]
    assert shown["tracking"] == "corrected"


@pytest.fixture
def trouble(log: Log, database_url: str) -> str:
    """The group of 700 failures of one trouble, beside another one."""
    of_it = fingerprint(None, "timed_out", "no answer to 1")
    row = {"at": NOON, "envelope_id": log.first, "verb": "end_envelope", "code": "timed_out", "fingerprint": of_it}
    with writing(database_url) as connection:
        connection.execute(insert(failure), [{**row, "message": f"no answer to {number}"} for number in range(700)])
        add_person(connection, "ada", [Right.OPERATOR], None, NOON)
        add_person(connection, "ben", [], None, NOON)
        disable_person(connection, "ben", NOON)
    return of_it


def test_failures_of_one_trouble_are_one_line(xbus: Xbus, trouble: str) -> None:
    lines = [line.split() for line in xbus("failure", "list", "--groups").stdout.splitlines()]
    assert lines[0][-3:] == ["FAILURES", "TRACKING", "GROUP"]
    assert lines[1][-1] == trouble
    assert lines[1][-4:-1] == ["700", "700", "unprocessed"]
    groups = listed(xbus, "--groups", "--code", "timed_out")
    assert [(group["failed_calls"], group["cause"], group["owners"]) for group in groups] == [
        (700, "no answer to 699", [])
    ]
    assert len(listed(xbus, "--group", trouble, "--limit", "1000")) == 700
    page = xbus("failure", "list", "--groups", "--limit", "1").stdout
    assert f"There may be more: --groups --before {groups[0]['failure_id']}" in page
    assert listed(xbus, "--groups", "--before", str(groups[0]["failure_id"]))[0]["role"] == "counter_1"


def test_a_group_is_tracked_assigned_released_and_commented(xbus: Xbus, trouble: str) -> None:
    (group,) = listed(xbus, "--groups", "--code", "timed_out")
    newest = str(group["failure_id"])
    assert xbus("failure", "track", newest, "corrected").exit_code == 0
    tracked = xbus("failure", "track", "--group", trouble, "corrected", "--comment", "a cable")
    assert tracked.stdout == "699 failures of the group are corrected.\n"
    assert xbus("failure", "track", "--group", trouble, "corrected").stdout == "No failure of the group changes.\n"
    assert xbus("failure", "assign", "--group", trouble, "ada").stdout == "700 failures of the group are ada's.\n"
    assert xbus("failure", "release", newest).stdout == f"Failure {newest} is nobody's.\n"
    assert xbus("failure", "assign", newest, str(int(newest) - 1), "ada").stderr.endswith("[assigned_already]\n")
    assert xbus("failure", "comment", newest, "seen again").stdout == f"Failure {newest} has the comment.\n"
    (group,) = listed(xbus, "--groups", "--owner", "ada", "--state", "corrected")
    assert (group["by_tracking"], group["owners"]) == ([{"tracking": "corrected", "failed_calls": 700}], ["ada"])
    shown = json.loads(xbus("failure", "show", "--json", newest).stdout)
    assert [(move["action"], move["tracking"], move["owner"], move["comment"]) for move in shown["history"]] == [
        ("tracked", "corrected", None, ""),
        ("assigned", None, "ada", ""),
        ("released", None, None, ""),
        ("commented", None, None, "seen again"),
    ]
    assert (shown["owner"], shown["fingerprint"]) == (None, trouble)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["track", "--group", "0" * 16, "corrected"], "failure_group_unknown"),
        (["list", "--group", "x"], "failure_group_unknown"),
        (["assign", "1", "nobody"], "unknown_person"),
        (["assign", "1", "ben"], "person_disabled"),
        (["list", "--owner", "nobody"], "unknown_person"),
        (["list", "--groups", "--owner", "nobody"], "unknown_person"),
        (["list", "--groups", "--role", "nobody"], "unknown_login"),
    ],
)
def test_groups_and_persons_that_are_not_there_are_refused(
    xbus: Xbus, trouble: str, arguments: list[str], code: str
) -> None:
    result = xbus("failure", *arguments)
    assert (result.exit_code, result.stderr.endswith(f"[{code}]\n")) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["track", "corrected"],
        ["track", "1", "--group", "0" * 16, "corrected"],
        ["comment", "1", " "],
        ["release"],
        ["list", "--groups", "--group", "0" * 16],
    ],
)
def test_a_move_of_nothing_in_particular_is_refused(xbus: Xbus, log: Log, arguments: list[str]) -> None:
    assert xbus("failure", *arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["show", "999999"], ["track", "999999", "corrected"]])
def test_a_failure_that_is_not_there_is_refused(xbus: Xbus, failures: list[int], arguments: list[str]) -> None:
    result = xbus("failure", *arguments)
    assert result.exit_code == 1
    assert result.stderr == "xbus: there is no failure 999999: see xbus failure list [failure_unknown]\n"


def test_a_role_that_is_not_there_is_refused(xbus: Xbus, failures: list[int]) -> None:
    result = xbus("failure", "list", "--role", "nobody")
    assert result.exit_code == 1
    assert result.stderr == 'xbus: there is no role "nobody": xbus export shows the roles [unknown_login]\n'


@pytest.mark.parametrize(
    "arguments",
    [["show", "x"], ["show", "0"], ["show", str(2**63)], ["list", "--state", "lost"], ["track", "1", "lost"]],
)
def test_a_wrong_command_line_is_refused(xbus: Xbus, log: Log, arguments: list[str]) -> None:
    assert xbus("failure", *arguments).exit_code == 2
