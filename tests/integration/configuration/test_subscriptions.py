"""Subscriptions in the bus file: read, refused, applied, written, renamed and removed; the secret is seen nowhere."""

import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from xbus import model
from xbus.admin import bus_file
from xbus.broker.journal.configuration import Plan, apply, make_plan, read_stored
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

TYPES = '[[event_type]]\nname = "orders"\n'
HOOK = """\
[[subscription]]
name = "shop"
event_types = ["orders"]
url = "https://shop.example/hook"
max = 7
timeout = 250
format = "cloudevents"
verify = false
ranges = 2
"""


def plan_of(connection: sa.Connection, text: str, *, prune: bool = False) -> tuple[Plan, list[str]]:
    read = bus_file.read(text.encode())
    plan = make_plan(read_stored(connection), read.bus, prune=prune, unreadable=read.unreadable)
    problems = [each.sentence for each in read.problems] + [read.locate(each).sentence for each in plan.problems]
    return plan, problems


def apply_file(connection: sa.Connection, text: str, *, prune: bool = False) -> list[str]:
    plan, problems = plan_of(connection, text, prune=prune)
    if not problems:
        apply(connection, plan, NOW)
    return problems


def secret(connection: sa.Connection) -> str:
    return str(connection.execute(sa.select(model.subscription.c.secret)).scalar_one())


def test_a_subscription_is_applied_and_written_as_it_was_read(connection: sa.Connection) -> None:
    assert apply_file(connection, TYPES + HOOK) == []
    stored = read_stored(connection).in_use
    shop = stored.subscriptions["shop"]
    assert (shop.max, shop.timeout, shop.format, shop.verify, shop.ranges) == (7, 250, "cloudevents", False, 2)
    assert stored.readers == {}
    assert stored.services == {}
    assert bus_file.read(bus_file.write(stored).encode()).bus == stored
    assert make_plan(read_stored(connection), stored, prune=True).changes == ()


def test_it_stands_on_a_reader_of_its_own(connection: sa.Connection) -> None:
    assert apply_file(connection, TYPES + HOOK) == []
    (reader,) = read_readers(connection)
    assert (reader.name, reader.batch_items, reader.batch_wait) == ("subscription/shop", 7, 0.25)
    assert len(read_ranges(connection, [reader.id])) == 2


def test_the_secret_is_kept_and_seen_nowhere(connection: sa.Connection) -> None:
    assert apply_file(connection, f'{TYPES}{HOOK}secret = "{SECRET}"\n') == []
    assert secret(connection) == SECRET
    stored = read_stored(connection)
    assert SECRET not in bus_file.write(stored.in_use)
    assert SECRET not in repr(stored)
    audit = [tuple(row) for row in connection.execute(sa.select(model.audit))]
    assert SECRET not in json.dumps(audit, default=str)


def test_a_file_without_the_secret_leaves_it_and_another_one_changes_it(connection: sa.Connection) -> None:
    assert apply_file(connection, f'{TYPES}{HOOK}secret = "{SECRET}"\n') == []
    assert plan_of(connection, TYPES + HOOK)[0].changes == ()
    assert apply_file(connection, TYPES + HOOK.replace("250", "300")) == []
    assert secret(connection) == SECRET
    other = SECRET.replace("MfKQ", "AAAA")
    plan, _ = plan_of(connection, f'{TYPES}{HOOK.replace("250", "300")}secret = "{other}"\n')
    assert [str(change) for change in plan.changes] == ['change subscription "shop": secret']
    apply(connection, plan, NOW)
    assert secret(connection) == other
    assert other not in json.dumps([tuple(row) for row in connection.execute(sa.select(model.audit))], default=str)
    assert apply_file(connection, f'{TYPES}{HOOK.replace("250", "300")}secret = ""\n') == []
    assert secret(connection) == ""


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("url", '"ftp://shop.example/"', "http or https"),
        ("url", '"https://user:word@shop.example/"', "without login and password"),
        ("url", '"https://"', "http or https"),
        ("url", '"https://shop.example:99999/"', "http or https"),
        ("event_types", "[]", "at least one event type"),
        ("event_types", '["nothing"]', 'there is no event_type "nothing"'),
        ("format", '"xml"', "format must be"),
        ("timeout", "-1", "timeout must be"),
        ("max", "0", "max must be"),
        ("secret", '"word"', "whsec_"),
        ("secret", '"whsec_c2hvcnQ="', "24 to 64 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused(connection: sa.Connection, key: str, value: str, sentence: str) -> None:
    lines = [line for line in HOOK.splitlines() if not line.startswith(f"{key} =")]
    found = apply_file(connection, TYPES + "\n".join([*lines, f"{key} = {value}"]))
    assert len(found) == 1
    assert sentence in found[0]
    assert read_stored(connection).in_use.subscriptions == {}


def test_renamed_and_removed_it_keeps_its_place(connection: sa.Connection) -> None:
    assert apply_file(connection, TYPES + HOOK) == []
    (before,) = read_readers(connection)
    renamed = HOOK.replace('"shop"', '"store"') + 'renamed_from = "shop"\n'
    assert apply_file(connection, TYPES + renamed) == []
    (after,) = read_readers(connection)
    assert (after.id, after.name) == (before.id, "subscription/store")
    assert apply_file(connection, TYPES, prune=True) == []
    assert read_readers(connection) == []
    assert apply_file(connection, TYPES + HOOK.replace('"shop"', '"store"')) == []
    assert [each.id for each in read_readers(connection)] == [before.id]


def test_its_reader_has_a_name_that_nobody_else_may_take(connection: sa.Connection) -> None:
    reader = '[[reader]]\nname = "subscription/shop"\nevent_types = ["orders"]\n'
    assert apply_file(connection, TYPES + reader) == []
    assert "a reader or a service is called" in apply_file(connection, TYPES + HOOK)[0]


def test_ranges_are_for_good(connection: sa.Connection) -> None:
    assert apply_file(connection, TYPES + HOOK) == []
    assert "began with 2 ranges" in apply_file(connection, TYPES + HOOK.replace("ranges = 2", "ranges = 3"))[0]
