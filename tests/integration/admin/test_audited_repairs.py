"""Each repair by a command leaves its row in the audit."""

import hashlib
import json

import pytest

from tests.integration.admin.conftest import Xbus
from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    """Of an envelope that is parked for two roles, and of one with items that are parked alone."""
    return make_parked_bus(database_url)


def test_repairs_are_in_the_audit(xbus: Xbus, bus: ParkedBus) -> None:
    value = '{"name": "Eve"}'
    both, alone = str(bus.both), str(bus.alone)
    done = [
        xbus("parked", "correct", both, "--event", "1", "--item", "0", "--value", value, "--reason", "a typo"),
        xbus("parked", "resume", both, "--role", "store_1", "--reason", "corrected"),
        xbus("parked", "drop", both, "--reason", "too late", "--yes"),
        xbus("parked", "resume", alone),
        xbus("failure", "track", "1", "processing", "--comment", "asked"),
        xbus("replay", "--type", "clients", "--role", "store_1", "--from", "1", "--reason", "lost", "--yes"),
    ]
    assert [each.output for each in done if each.exit_code != 0] == []

    rows = [json.loads(line) for line in xbus("audit", "list", "-o", "json", "--limit", "100").stdout.splitlines()]
    actions = {"corrected", "resumed", "dropped", "tracked", "replayed"}
    found = [row for row in reversed(rows) if row["action"] in actions]
    role = f'of envelope {alone} for role "counter_1"'
    assert [(row["action"], row["object"], row["reason"]) for row in found] == [
        ("corrected", f"item 0 of event {bus.event_id(bus.both)} for all", "a typo"),
        ("resumed", f'envelope {both} for role "store_1"', "corrected"),
        ("dropped", f'envelope {both} for role "counter_1"', "too late"),
        ("resumed", f"item 1 of event 1 {role}", ""),
        ("resumed", f"item 3 of event 1 {role}", ""),
        ("tracked", "failure 1", "asked"),
        ("replayed", found[-1]["object"], "lost"),
    ]
    assert found[-1]["object"].endswith('of event_type "clients" to role "store_1"')
    # The audit outlives the data, so it has no item.
    assert "Eve" not in json.dumps(rows)
    digest = len(hashlib.sha256().hexdigest())
    assert len(found[0]["before"]) == len(found[0]["after"]) == len("SHA-256 ") + digest
    assert found[0]["before"] != found[0]["after"]


def test_a_repair_that_is_refused_leaves_no_row(xbus: Xbus, bus: ParkedBus) -> None:
    assert xbus("parked", "drop", str(bus.done), "--reason", "too late", "--yes").exit_code == 1
    rows = xbus("audit", "list", "-o", "json", "--limit", "100").stdout
    assert "dropped" not in rows
