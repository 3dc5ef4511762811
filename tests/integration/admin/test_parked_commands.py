"""``xbus parked``: what it says and refuses.

Databases differ in the statements only, and those are tested on each of them in ``tests/contract/test_parked.py``.
"""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from tests.integration.admin.conftest import Xbus
from tests.integration.admin.parked_bus import CLIENTS, NAMELESS, ParkedBus, make_parked_bus, refused, told
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.overlays import EventOverlay, read_overlays
from xbus.broker.journal.log.reading import read_at, read_head, read_segments
from xbus.model import correction, cursor, delivery, envelope, history, parked_item, role
from xbus.rpc.codec import pack, unpack_items

NAMED = '{"number": 4, "name": "lou"}'


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    return make_parked_bus(database_url)


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who repairs."""
    monkeypatch.setenv("LOGNAME", "ada")


def listed(xbus: Xbus, *arguments: str) -> list[tuple[Any, ...]]:
    found = [json.loads(line) for line in told(xbus, "list", "--json", *arguments)]
    return [(entry["role"], entry["position"], entry["parked_items"]) for entry in found]


def shown(xbus: Xbus, *arguments: str) -> dict[str, Any]:
    (line,) = told(xbus, "show", "--json", *arguments)
    found: dict[str, Any] = json.loads(line)
    return found


def everything(bus: ParkedBus) -> list[Any]:
    """All that a repair may change."""
    with reading(bus.url) as connection:
        tables = (delivery, parked_item, correction, history)
        return [
            read_head(connection),
            *(
                [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
                for table in tables
            ),
        ]


def deliveries(bus: ParkedBus) -> dict[str, tuple[Any, ...]]:
    row = delivery.c
    with reading(bus.url) as connection:
        wanted = select(role.c.login, row.state, row.attempts, row.code, row.cause, row.due_at).join(role)
        return {login: tuple(told) for login, *told in connection.execute(wanted)}


def items(bus: ParkedBus) -> list[tuple[Any, ...]]:
    row = parked_item.c
    with reading(bus.url) as connection:
        wanted = select(row.item_index, row.state, row.resumed_as).order_by(row.item_index)
        return [tuple(found) for found in connection.execute(wanted)]


def moves(bus: ParkedBus) -> list[tuple[str, str, str]]:
    row = history.c
    with reading(bus.url) as connection:
        wanted = select(row.subject, row.move, row.reason).where(row.subject.in_(("delivery", "item"))).order_by(row.id)
        return [tuple(found) for found in connection.execute(wanted)]


def role_id(bus: ParkedBus, login: str) -> int:
    with reading(bus.url) as connection:
        found: int = connection.execute(select(role.c.id).where(role.c.login == login)).scalar_one()
        return found


# -- what is parked ----------------------------------------------------------------------------------------------------


def test_roles_tell_what_is_parked_for_them(xbus: Xbus, bus: ParkedBus) -> None:
    def roles() -> dict[str, tuple[int, int]]:
        found = [json.loads(line) for line in xbus("recipient", "list", "--json").stdout.splitlines()]
        return {role["role"]: (role["parked_envelopes"], role["parked_items"]) for role in found}

    assert roles() == {"store_1": (1, 0), "counter_1": (1, 2)}
    assert "1, 2 items" in xbus("recipient", "list").stdout
    told(xbus, "resume", str(bus.alone))
    assert roles() == {"store_1": (1, 0), "counter_1": (1, 0)}


def test_what_is_parked_is_listed_newest_first(xbus: Xbus, bus: ParkedBus) -> None:
    lines = [re.split(r"  +", line) for line in told(xbus, "list", "-o", "wide")]
    day, both = "2030-05-17", "clients, notes"
    assert lines == [
        ["SINCE", "ROLE", "WHAT", "ATTEMPTS", "CODE", "CAUSE", "ENVELOPE"],
        [f"{day} 12:05:00Z", "counter_1", "2 items of clients", "-", "refused", "item 1 is bad", str(bus.alone)],
        [f"{day} 12:01:00Z", "counter_1", both, "5", "refused", "send_item: no name", str(bus.both)],
        [f"{day} 12:00:00Z", "store_1", both, "5", "timed_out", "send_item: no name", str(bus.both)],
    ]


def test_a_list_may_be_of_some_only(xbus: Xbus, bus: ParkedBus) -> None:
    alone, counter, store = ("counter_1", 2, 2), ("counter_1", 1, None), ("store_1", 1, None)
    expected: dict[str, list[tuple[Any, ...]]] = {
        "": [alone, counter, store],
        "--limit 1": [alone],
        "--role store_1": [store],
        "--service counter": [alone, counter],
        "--type notes": [counter, store],
        "--type nothing": [],
        "--code timed_out": [store],
        "--code refused --type clients --limit 2": [alone, counter],
    }
    assert {options: listed(xbus, *options.split()) for options in expected} == expected


def test_an_empty_list_says_so(xbus: Xbus, bus: ParkedBus) -> None:
    assert told(xbus, "list", "--code", "unheard_of") == ["Nothing is parked."]
    assert refused(xbus, "list", "--role", "nobody").startswith('xbus: there is no role "nobody"')


def test_the_items_that_failures_name_are_shown_first(xbus: Xbus, bus: ParkedBus) -> None:
    lines = told(xbus, "show", "-o", "wide", str(bus.both))
    assert lines[lines.index("ITEMS") + 1 :] == [
        "  event 1, item 1, msgpack, 9 bytes, named as bad",
        '    {"number": 4}',
    ]
    assert [line.split()[2:6] for line in lines if line.endswith("send_item: no name")] == [
        ["counter_1", "counter", "envelope", "5"],
        ["store_1", "store", "envelope", "5"],
    ]
    assert any("count  send_item  refused  no name  1, 99" in line for line in lines)
    assert [item["index"] for item in shown(xbus, str(bus.alone))["item_list"]] == [1, 3]


def test_items_are_read_whatever_they_are(xbus: Xbus, bus: ParkedBus) -> None:
    found = shown(xbus, str(bus.both), "--event", "1", "--items", "0:9")["item_list"]
    assert [(item["format"], item["value"]) for item in found] == [
        ("msgpack", {"name": "ada", "number": 1}),
        ("msgpack", {"number": 4}),
        ("JSON", {"name": "lin"}),
        ("bytes", "ff00fe"),
        ("text", "EDI+1"),
        ("msgpack", 7),
    ]
    assert "    ff 00 fe" in told(xbus, "show", str(bus.both), "--event", "1", "--item", "3")
    assert [item["event_number"] for item in shown(xbus, str(bus.both), "--event", "2")["item_list"]] == [2]
    assert shown(xbus, str(bus.both), "--role", "store_1")["parked"][0]["role"] == "store_1"


def test_the_bytes_of_an_item_go_into_a_file(xbus: Xbus, bus: ParkedBus, tmp_path: Path) -> None:
    raw = tmp_path / "item"
    where = (str(bus.both), "--role", "store_1", "--event", "1", "--item", "3", "--raw")
    assert told(xbus, "show", *where, raw) == [f"3 bytes are in {raw}."]
    assert raw.read_bytes() == CLIENTS[3]
    assert "can't be written" in refused(xbus, "show", *where, tmp_path / "no folder" / "item")


# -- resume ------------------------------------------------------------------------------------------------------------


def test_an_envelope_is_resumed_for_one_role_or_for_all(xbus: Xbus, bus: ParkedBus) -> None:
    assert told(xbus, "resume", str(bus.both), "--role", "store_1", "--reason", "it is mended") == [
        f"Resumed envelope {bus.both} for store_1."
    ]
    assert deliveries(bus) == {
        "store_1": ("retry", 0, "resumed", "resumed by ada: it is mended", None),
        "counter_1": ("parked", 5, "refused", "send_item: no name", None),
    }
    assert told(xbus, "resume", str(bus.both)) == [f"Resumed envelope {bus.both} for counter_1."]
    assert deliveries(bus)["counter_1"][:4] == ("retry", 0, "resumed", "resumed by ada")
    assert moves(bus) == [("delivery", "resumed", "ada: it is mended"), ("delivery", "resumed", "ada")]


def test_items_that_are_parked_alone_come_again_as_an_envelope_for_that_role_only(xbus: Xbus, bus: ParkedBus) -> None:
    told(xbus, "correct", str(bus.alone), "--item", "1", "--value", NAMED, "--reason", "a name")
    (line,) = told(xbus, "resume", str(bus.alone))
    new_id = UUID(line.removesuffix(".").split()[-1])
    assert line == f"Resumed 2 items of envelope {bus.alone} for counter_1, as envelope {new_id}."
    counter = role_id(bus, "counter_1")
    with reading(bus.url) as connection:
        assert read_head(connection) == 4
        (new,) = read_at(connection, [4])
        assert (new.envelope_id, new.only_roles) == (new_id, frozenset({counter}))
        (event,) = new.events
        assert (event.type_name, event.items, event.segments_id) == ("clients", 2, event.event_id)
        (segment,) = read_segments(connection, event.event_id, 0, 1_000_000)
        row = connection.execute(select(envelope).where(envelope.c.id == new_id)).one()
        # It is left out of the event for good, whatever became of it.
        overlays = read_overlays(connection, counter, bus.alone)
    assert unpack_items(segment.data, segment.items) == [pack(json.loads(NAMED)), CLIENTS[3]]
    assert (row.origin_id, row.ordering_key, row.state, row.bytes) == (
        bus.alone,
        "a key",
        "received",
        len(segment.data),
    )
    assert overlays[bus.event_id(bus.alone)].left_out == {1, 3}
    assert items(bus) == [(1, "resumed", new_id), (3, "resumed", new_id)]
    assert moves(bus)[1:] == [("item", "resumed", f"ada (comes again as envelope {new_id})")] * 2
    assert listed(xbus, "--type", "clients", "--role", "counter_1") == [("counter_1", 1, None)]
    lines = [line.split() for line in xbus("envelope", "show", str(new_id)).stdout.splitlines()]
    assert ["only", "for", "counter_1"] in lines
    assert ["repeats", str(bus.alone)] in lines


def test_one_of_the_items_may_be_resumed_or_dropped(xbus: Xbus, bus: ParkedBus) -> None:
    assert "Resumed 1 item of" in told(xbus, "resume", str(bus.alone), "--item", "3")[0]
    assert [state for _, state, _ in items(bus)] == ["parked", "resumed"]
    told(xbus, "drop", str(bus.alone), "--item", "1", "--reason", "a test", "--yes")
    assert [state for _, state, _ in items(bus)] == ["dropped", "resumed"]
    assert refused(xbus, "resume", str(bus.alone)).startswith(f"xbus: envelope {bus.alone} is not parked: it is done")


def test_of_several_envelopes_all_are_resumed_or_none(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    assert "is not parked: it is done for counter_1, done for store_1" in refused(
        xbus, "resume", str(bus.both), str(bus.alone), str(bus.done)
    )
    assert everything(bus) == before
    assert len(told(xbus, "resume", str(bus.both), str(bus.alone), str(bus.both))) == 3


def test_all_that_is_parked_for_a_failure_is_resumed(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    assert xbus("parked", "resume", "--all", stdin="n\n").exit_code == 1
    assert everything(bus) == before
    assert told(xbus, "resume", "--all", "--code", "unheard_of") == ["Nothing parked matches the options."]
    assert told(xbus, "resume", "--all", "--code", "refused", "--type", "clients", "--yes") == [
        "Resumed: envelopes: 1, items that were parked alone: 2."
    ]
    assert listed(xbus) == [("store_1", 1, None)]
    assert told(xbus, "resume", "--all", "--yes")[0].startswith("Resumed: envelopes: 1, items")


def test_items_that_can_not_reach_their_role_any_more_stay_parked(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        connection.execute(update(cursor).where(cursor.c.role_id == role_id(bus, "counter_1")).values(until_position=4))
    before = everything(bus)
    assert "counter_1 is not owed anything any more" in refused(xbus, "resume", str(bus.alone))
    assert everything(bus) == before
    result = xbus("parked", "resume", "--all", "--yes")
    assert result.exit_code == 1
    assert "Resumed: envelopes: 2, items that were parked alone: 0." in result.stdout
    assert "counter_1 is not owed anything any more" in result.stderr
    assert [state for _, state, _ in items(bus)] == ["parked", "parked"]


# -- correct -----------------------------------------------------------------------------------------------------------


def test_a_correction_is_kept_beside_what_was_sent(xbus: Xbus, bus: ParkedBus) -> None:
    where = (str(bus.both), "--role", "counter_1", "--event", "1", "--item", "1")
    assert told(xbus, "correct", *where, "--value", NAMED, "--reason", "a name") == [
        "Corrected item 1 of event 1 for counter_1.",
        f"Next: xbus parked resume {bus.both}",
    ]
    told(xbus, "correct", *where, "--value", '{"name": "lu"}', "--reason", "another", "--resume")
    assert deliveries(bus)["counter_1"][0] == "retry"
    row = correction.c
    with reading(bus.url) as connection:
        kept = connection.execute(select(row.item_index, row.before, row.after, row.reason).order_by(row.id)).all()
        overlays = read_overlays(connection, role_id(bus, "counter_1"), bus.both)
        others = read_overlays(connection, role_id(bus, "store_1"), bus.both)
    assert [tuple(each) for each in kept] == [
        (1, NAMELESS, pack(json.loads(NAMED)), "ada: a name"),
        (1, NAMELESS, pack({"name": "lu"}), "ada: another"),
    ]
    assert overlays == {bus.event_id(bus.both): EventOverlay({1: pack({"name": "lu"})}, frozenset())}
    assert others == {}
    assert ("item", "corrected", "ada: a name") in moves(bus)
    lines = [line.split() for line in xbus("envelope", "show", str(bus.both)).stdout.splitlines()]
    assert [[*line[:4], *line[6:]] for line in lines if "corrected" in line] == [
        ["counter_1", "1", "1", "corrected", "ada:", "a", "name"],
        ["counter_1", "1", "1", "corrected", "ada:", "another"],
    ]


def test_a_correction_is_shown_with_what_was_sent(xbus: Xbus, bus: ParkedBus) -> None:
    where = (str(bus.alone), "--role", "counter_1", "--item", "1")
    told(xbus, "correct", *where, "--value", NAMED, "--reason", "a name")
    lines = told(xbus, "show", str(bus.alone), "--item", "1")
    start = lines.index("ITEMS") + 1
    assert lines[start : start + 2] == ["  event 1, item 1, msgpack, 9 bytes, named as bad", '    {"number": 4}']
    assert re.fullmatch(r"  corrected for counter_1 \S+ \S+Z by ada: a name", lines[start + 2])
    assert lines[start + 3 :] == [f"    {NAMED}"]
    (item,) = shown(xbus, str(bus.alone), "--item", "1")["item_list"]
    assert [entry["value"] for entry in item["corrections"]] == [json.loads(NAMED)]


@pytest.mark.parametrize(
    ("index", "options", "after"),
    [
        ("2", ["--value", '{"name":"lo"}'], b'{"name": "lo"}'),  # JSON stays JSON
        ("3", ["--value", '"text"'], pack("text")),
        ("4", ["--file", "{file}"], b"EDI+2"),
    ],
)
def test_an_item_is_written_as_it_was(
    xbus: Xbus, bus: ParkedBus, tmp_path: Path, index: str, options: list[str], after: bytes
) -> None:
    file = tmp_path / "item"
    file.write_bytes(b"EDI+2")
    options = [option.format(file=file) if option == "{file}" else option for option in options]
    where = (str(bus.both), "--event", "1", "--role", "store_1", "--item", index)
    told(xbus, "correct", *where, *options, "--reason", "x")
    with reading(bus.url) as connection:
        assert connection.execute(select(correction.c.after)).scalar_one() == after


def test_an_item_is_changed_in_an_editor(xbus: Xbus, bus: ParkedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/4/5/")
    where = (str(bus.both), "--event", "1", "--role", "store_1", "--reason", "x", "--edit", "--item")
    told(xbus, "correct", *where, "1")
    with reading(bus.url) as connection:
        assert connection.execute(select(correction.c.after)).scalar_one() == pack({"number": 5})
    monkeypatch.setenv("VISUAL", "true")
    assert refused(xbus, "correct", *where, "0") == "xbus: nothing was changed in the editor [unchanged]"
    assert "has values that JSON lacks" in refused(xbus, "correct", *where, "3")


BAD_CORRECTIONS = [
    (["--item", "1", "--value", "{no"], "that is no JSON"),
    (["--item", "1", "--value", "NaN"], "that is no JSON"),
    (["--item", "1", "--value", str(2**70)], "can't be packed"),
    (["--item", "6", "--value", "1"], "event 1 has no item 6"),
    (["--item", "1", "--value", '{"number": 4}'], "item 1 of event 1 has this value already"),
    (["--item", "1", "--value", "1", "--event", "3"], "has no event 3"),
    (["--item", "1", "--value", "1", "--event", "x"], "has no event x"),
    (["--item", "1", "--value", "1", "--role", "nobody"], 'there is no role "nobody"'),
]


def test_a_bad_correction_changes_nothing(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    common = ["--role", "store_1", "--event", "1", "--reason", "x"]
    for options, cause in BAD_CORRECTIONS:
        assert cause in refused(xbus, "correct", str(bus.both), *common, *options)
    assert everything(bus) == before


def test_what_may_be_meant_in_two_ways_is_refused(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    value = ("--item", "0", "--value", "1", "--reason", "x")
    assert "an event must be named" in refused(xbus, "correct", str(bus.both), *value)
    assert "is parked for counter_1, store_1: name one with --role" in refused(
        xbus, "show", str(bus.both), "--event", "1", "--item", "0", "--raw", "file"
    )
    assert "item 0 of event 1 is not parked" in refused(xbus, "correct", str(bus.alone), "--role", "counter_1", *value)
    assert "is not parked alone" in refused(
        xbus, "resume", str(bus.both), "--role", "store_1", "--event", "1", "--item", "0"
    )
    assert everything(bus) == before


def test_an_item_above_the_limit_is_refused(xbus: Xbus, bus: ParkedBus, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (16 * 1024**2 + 1))
    assert "make it 16777216 at the most" in refused(
        xbus, "correct", str(bus.alone), "--item", "1", "--file", large, "--reason", "x"
    )


# -- drop --------------------------------------------------------------------------------------------------------------


def test_what_is_parked_is_dropped_when_it_is_confirmed(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    asked = xbus("parked", "drop", str(bus.both), "--reason", "a test", stdin="n\n")
    assert asked.exit_code == 1
    assert f"counter_1 goes without envelope {bus.both}\nstore_1 goes without" in asked.stdout
    assert everything(bus) == before
    unasked = xbus("parked", "drop", str(bus.both), "--reason", "a test")
    assert (unasked.exit_code, unasked.stderr.splitlines()[-1]) == (
        2,
        "Error: nobody answers the question; give --yes",
    )
    told(xbus, "drop", str(bus.both), "--role", "store_1", "--reason", "a test", "--yes")
    assert list(deliveries(bus)) == ["counter_1"]
    assert moves(bus) == [("delivery", "dropped", "ada: a test")]
    lines = [line.split() for line in xbus("envelope", "show", str(bus.both)).stdout.splitlines()]
    assert ["store_1", "dropped", "-", "-", "ada:", "a", "test"] in lines
    assert "it is dropped for store_1 (ada: a test)" in refused(xbus, "resume", str(bus.both), "--role", "store_1")
    told(xbus, "drop", str(bus.alone), "--reason", "a test", "--yes")
    assert items(bus) == [(1, "dropped", None), (3, "dropped", None)]
    assert event_states(xbus, bus.both) == ["stopped", "stopped"]


def event_states(xbus: Xbus, envelope_id: UUID) -> list[str]:
    found = json.loads(xbus("envelope", "show", "--json", str(envelope_id)).stdout)
    return [event["state"] for event in found["event_list"]]


# -- what is refused ---------------------------------------------------------------------------------------------------


NEEDED = {
    "show": (),
    "resume": (),
    "drop": ("--reason", "x", "--yes"),
    "correct": ("--item", "0", "--value", "1", "--reason", "x"),
}
"""The options that each command can't do without."""


def test_what_is_not_there_or_not_parked_is_refused(xbus: Xbus, bus: ParkedBus) -> None:
    before = everything(bus)
    unknown = "00000000-0000-0000-0000-000000000000"
    for name, options in NEEDED.items():
        said = f"xbus: there is no envelope {unknown}: see xbus parked list [envelope_unknown]"
        assert refused(xbus, name, unknown, *options) == said
        options = (*options, "--role", "counter_1") if name == "correct" else options
        assert f"envelope {bus.done} is not parked" in refused(xbus, name, str(bus.done), *options)
        assert f"is not parked for role store_1: it is done for store_1: see xbus envelope show {bus.alone}" in refused(
            xbus, name, str(bus.alone), *options, "--role", "store_1"
        )
    assert everything(bus) == before


WRONG = [
    ["resume"],
    ["resume", "{id}", "--all"],
    ["resume", "{id}", "--code", "refused"],
    ["resume", "{id}", "{id}", "--item", "1"],
    ["resume", "{id}", "--event", "1"],
    ["drop", "{id}", "--event", "1", "--reason", "x", "--yes"],
    ["show", "x"],
    ["show", "{id}", "--raw", "file"],
    ["show", "{id}", "--item", "1", "--items", "0:1"],
    ["show", "{id}", "--items", "3:1"],
    ["show", "{id}", "--items", "1"],
    ["correct", "{id}", "--item", "-1", "--value", "1", "--reason", "x"],
    ["correct", "{id}", "--item", "1", "--reason", "x"],
    ["correct", "{id}", "--item", "1", "--value", "1", "--edit", "--reason", "x"],
    ["correct", "{id}", "--item", "1", "--value", "1", "--as-sent", "--reason", "x"],
    ["correct", "{id}", "--item", "1", "--value", "1"],
    ["drop", "{id}", "--yes"],
    ["drop", "{id}", "--yes", "--reason", " "],
]


def test_a_wrong_command_line_is_refused(xbus: Xbus, bus: ParkedBus) -> None:
    for arguments in WRONG:
        assert xbus("parked", *(argument.format(id=bus.alone) for argument in arguments)).exit_code == 2, arguments
