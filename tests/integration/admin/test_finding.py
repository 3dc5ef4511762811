"""``xbus envelope items`` and ``xbus find`` against a real database."""

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import click
import pytest
from sqlalchemy import delete, insert, update

from tests.integration.admin.conftest import NOON, Xbus
from tests.integration.admin.parked_bus import CLIENTS, ParkedBus, make_parked_bus
from xbus.admin.cli import main
from xbus.admin.search import Search, read_items_page, search_items
from xbus.broker.journal.database.connection import reading, writing
from xbus.json_views import DEEPEST, TOO_DEEP
from xbus.model import archived_envelope, envelope, event, event_type, segment
from xbus.rpc.codec import pack_items

NEVER = "99999999-0000-7000-8000-000000000000"


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    return make_parked_bus(database_url)


def objects(xbus: Xbus, *arguments: str) -> list[dict[str, Any]]:
    result = xbus(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- the items of an envelope ------------------------------------------------------------------------------------------


def test_the_items_of_any_envelope_are_shown(xbus: Xbus, bus: ParkedBus) -> None:
    assert xbus("envelope", "items", str(bus.done)).stdout.splitlines() == [
        "event 1, clients",
        "  item 0, text, 1 byte",
        "    x",
    ]
    lines = xbus("envelope", "items", str(bus.both)).stdout.splitlines()
    assert lines[:3] == ["event 1, clients", "  item 0, msgpack, 18 bytes", '    {"name": "ada", "number": 1}']
    assert lines[-3:] == ["event 2, notes", "  item 0, text, 1 byte", "    n"]


def test_items_are_shown_page_by_page(xbus: Xbus, bus: ParkedBus) -> None:
    def page(*options: str) -> tuple[list[tuple[int, int]], str]:
        found = objects(xbus, "envelope", "items", str(bus.both), *options)
        said = xbus("envelope", "items", str(bus.both), *options).stdout.splitlines()[-1]
        return [(item["event_number"], item["index"]) for item in found], said

    assert page("--limit", "4") == ([(1, 0), (1, 1), (1, 2), (1, 3)], "There are more: --event 1 --from 4")
    assert page("--limit", "2", "--event", "1", "--from", "4") == (
        [(1, 4), (1, 5)],
        "There are more: --event 2 --from 0",
    )
    assert page("--event", "2") == ([(2, 0)], "    n")
    assert page("--event", str(bus.event_id(bus.both, 2))) == ([(2, 0)], "    n")
    assert xbus("envelope", "items", str(bus.both), "--event", "2", "--from", "9").stdout == "No items.\n"


def test_a_page_of_items_is_bounded_in_bytes(bus: ParkedBus) -> None:
    def page(max_bytes: int) -> tuple[list[int], int | None, int]:
        with reading(bus.url) as connection:
            found = read_items_page(connection, bus.both, 1, None, 0, 100, max_bytes)
        return [item.index for item in found.items], found.next_event, found.next_index

    assert page(1) == ([0], 1, 1)
    assert page(len(CLIENTS[0]) + len(CLIENTS[1])) == ([0, 1], 1, 2)
    assert page(1000)[1] is None


def test_an_item_is_an_object(xbus: Xbus, bus: ParkedBus) -> None:
    (item,) = objects(xbus, "envelope", "items", str(bus.both), "--from", "1", "--limit", "1")
    assert item == {
        "envelope_id": str(bus.both),
        "position": 1,
        "event_id": str(bus.event_id(bus.both)),
        "event_number": 1,
        "type": "clients",
        "index": 1,
        "format": "msgpack",
        "bytes": len(CLIENTS[1]),
        "value": {"number": 4},
    }


def test_the_items_of_an_open_envelope_are_shown_as_far_as_they_are_there(
    xbus: Xbus, bus: ParkedBus, database_url: str
) -> None:
    with writing(database_url) as connection:
        opened = {"state": "open", "position": None, "closed_at": None, "items": None, "hash": None}
        connection.execute(update(envelope).where(envelope.c.id == bus.done).values(**opened))
        connection.execute(update(event).where(event.c.envelope_id == bus.done).values(items=None))
    (item,) = objects(xbus, "envelope", "items", str(bus.done))
    assert (item["position"], item["value"]) == (None, "x")


def archive(url: str, envelope_id: UUID) -> None:
    """Have only an archive have the items."""
    with writing(url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == envelope_id).values(pruned_at=NOON))
        connection.execute(insert(archived_envelope).values(envelope_id=envelope_id, archived_at=NOON))
        connection.execute(delete(segment).where(segment.c.event_id == UUID(int=envelope_id.int + (1 << 40))))


def test_items_that_are_not_there_are_refused(xbus: Xbus, bus: ParkedBus, database_url: str) -> None:
    archive(database_url, bus.done)
    for arguments, code in (
        ([str(bus.done)], "envelope_archived"),
        ([NEVER], "envelope_unknown"),
        ([NEVER[:9]], "envelope_unknown"),
        ([str(bus.both)[:9]], "ambiguous_id"),
        ([str(bus.both), "--event", "3"], "event_unknown"),
    ):
        result = xbus("envelope", "items", *arguments)
        assert (result.exit_code, result.stderr.strip().endswith(f"[{code}]")) == (1, True), result.stderr


# -- items of a type ---------------------------------------------------------------------------------------------------


def places(xbus: Xbus, *arguments: str) -> list[tuple[int, int]]:
    return [(item["position"], item["index"]) for item in objects(xbus, "find", *arguments)]


def test_items_are_found_by_their_fields(xbus: Xbus, bus: ParkedBus) -> None:
    assert places(xbus, "clients", "number=4") == [(2, 1), (1, 1)]
    assert places(xbus, "clients", "name=ada", "number=1") == [(2, 0), (1, 0)]
    assert places(xbus, "clients", "name=lin") == [(2, 2), (1, 2)]
    assert places(xbus, "clients", "name=lin", "number=1") == []
    assert places(xbus, "notes") == [(1, 0)]
    assert places(xbus, "clients", "number=4", "--before", "2") == [(1, 1)]
    lines = [line.split() for line in xbus("find", "clients", "number=4", "-o", "wide").stdout.splitlines()]
    assert lines[0] == ["POSITION", "SEALED", "EVENT", "ITEM", "VALUE", "ENVELOPE"]
    assert lines[1] == ["2", "2030-05-17", "12:00:00Z", "1", "1", '{"number":', "4}", str(bus.alone)]


def test_only_newer_items_are_found(xbus: Xbus, bus: ParkedBus, database_url: str) -> None:
    with writing(database_url) as connection:
        connection.execute(
            update(envelope).where(envelope.c.id == bus.both).values(closed_at=NOON - timedelta(days=9000))
        )
    assert places(xbus, "clients", "number=4", "--since", "2d") == [(2, 1)]
    assert xbus("find", "clients", "number=5", "--since", "2d").stdout == "Nothing found.\n"


def test_a_search_says_where_it_stopped(xbus: Xbus, bus: ParkedBus) -> None:
    bounded = xbus("find", "clients", "number=4", "--read", "8")
    assert len(bounded.stdout.splitlines()) == 2
    assert bounded.stderr == (
        "xbus: stopped after 8 items, older ones were not searched: go on with --before 2, or give a larger --read\n"
    )
    assert "stopped after 2 items" in xbus("find", "clients", "number=4", "--read", "2", "--json").stderr
    more = xbus("find", "clients", "number=4", "--limit", "1")
    assert more.stderr == "xbus: there are more: give a larger --limit\n"
    more = xbus("find", "clients", "--limit", "3")
    assert more.stderr == "xbus: there are more: go on with --before 3, or give a larger --limit\n"
    assert xbus("find", "clients", "number=4", "--read", "13").stderr == ""


@pytest.mark.parametrize("item", [b"\x91" * 599 + b"\x90", b"[" * 600 + b"]" * 600], ids=["msgpack", "json"])
def test_an_item_that_is_nested_deep_is_shown(xbus: Xbus, bus: ParkedBus, item: bytes) -> None:
    packed = pack_items([item])
    with writing(bus.url) as connection:
        of_done = update(segment).where(segment.c.event_id == bus.event_id(bus.done))
        connection.execute(of_done.values(data=packed, hash=hashlib.sha256(packed).digest()))
    for command in (("find", "clients"), ("read", "clients", "--from", "3")):
        told = xbus(*command)
        assert (told.exit_code, "[ [ [ [ [" in told.stdout) == (0, True), told.output
        (deep,) = [found["value"] for found in objects(xbus, *command) if found["position"] == 3]
        assert TOO_DEEP in str(deep)
        assert str(deep).count("[") == DEEPEST
    assert len(places(xbus, "clients", "number=4")) == 2, "a condition is compared with it, too"


def test_archived_items_are_told_and_repeats_left_out(xbus: Xbus, bus: ParkedBus, database_url: str) -> None:
    archive(database_url, bus.both)
    with writing(database_url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == bus.done).values(origin_id=bus.alone))
    found = xbus("find", "clients")
    assert len(found.stdout.splitlines()) == 1 + len(CLIENTS)
    assert found.stderr == "xbus: 1 event of the type not searched: an archive has the items, see xbus restore\n"


@pytest.mark.parametrize(
    ("arguments", "code"), [(["lost", "a=1"], "unknown_type"), (["clients", "a"], "bad_condition")]
)
def test_a_wrong_search_is_refused(xbus: Xbus, bus: ParkedBus, arguments: list[str], code: str) -> None:
    result = xbus("find", *arguments)
    assert (result.exit_code, result.stderr.strip().endswith(f"[{code}]")) == (1, True)


# -- lists -------------------------------------------------------------------------------------------------------------


def test_envelopes_are_listed_by_what_is_known_of_them(xbus: Xbus, bus: ParkedBus) -> None:
    def listed(*options: str) -> list[int]:
        return [found["position"] for found in objects(xbus, "envelope", "list", *options)]

    assert listed("--type", "notes") == [1]
    assert listed("--type", "clients", "--limit", "2") == [3, 2]
    assert listed("--undelivered") == [1]
    assert listed("--undelivered", "--role", "store_1", "--type", "notes") == [1]
    assert listed("--emitter", "shop_1", "--since", "30min") == [3, 2, 1]
    assert listed("--since", "2031-01-01") == []
    assert listed("--key", "none") == []


def test_the_key_of_the_emitter_is_shown(xbus: Xbus, bus: ParkedBus, database_url: str) -> None:
    with writing(database_url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == bus.done).values(idempotency_key="order 4711"))
    lines = [line.split() for line in xbus("envelope", "show", str(bus.done)).stdout.splitlines()]
    assert ["key", "order", "4711"] in lines
    assert ["ordering", "key", "a", "key"] in lines
    (found,) = objects(xbus, "envelope", "show", str(bus.done))
    assert (found["key"], found["ordering_key"]) == ("order 4711", "a key")
    assert "order 4711" in xbus("envelope", "list", "-o", "wide").stdout


# -- short ids ---------------------------------------------------------------------------------------------------------


def parameters(group: click.Group = main) -> Iterator[click.Parameter]:
    """The parameters of all commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from parameters(command) if isinstance(command, click.Group) else command.params


def test_the_first_digits_of_an_id_are_enough_for_every_command(xbus: Xbus, bus: ParkedBus) -> None:
    lines = xbus("envelope", "list").stdout.splitlines()
    done, alone, both = (line.split()[-1] for line in lines[1:])
    assert (str(bus.both).startswith(both), len(both)) == (True, 12)
    for arguments in (
        ("envelope", "show", done),
        ("envelope", "items", done.upper()),
        ("envelope", "list", "--before", done),
        ("failure", "list", "--envelope", both),
        ("parked", "show", both),
        ("parked", "correct", both, "--event", "1", "--item", "1", "--value", "{}", "--reason", "why"),
        ("parked", "resume", both),
        ("parked", "drop", alone, "--reason", "why", "--yes"),
    ):
        result = xbus(*arguments)
        assert result.exit_code == 0, result.output
    assert [parameter.name for parameter in parameters() if parameter.type is click.UUID] == []


def test_a_short_id_of_several_names_them(xbus: Xbus, bus: ParkedBus) -> None:
    result = xbus("parked", "resume", str(bus.both)[:10])
    assert result.exit_code == 1
    assert "several envelopes begin with 019000000" in result.stderr
    assert all(str(envelope_id) in result.stderr for envelope_id in (bus.both, bus.alone, bus.done))
    assert xbus("envelope", "show", "nothing").exit_code == 2


# -- secret fields -----------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(bus: ParkedBus) -> ParkedBus:
    """The same, whose clients have secret names."""
    with writing(bus.url) as connection:
        connection.execute(update(event_type).where(event_type.c.name == "clients").values(secret="card.number\nname"))
    return bus


def test_secret_fields_are_hidden_wherever_items_are_shown(xbus: Xbus, secret: ParkedBus) -> None:
    commands = (
        ("envelope", "items", str(secret.both)),
        ("find", "clients", "number=1"),
        ("parked", "show", str(secret.both), "--event", "1", "--items", "0:5"),
    )
    for command in commands:
        for form in ((), ("-o", "json")):
            hidden = xbus(*command, *form)
            assert hidden.exit_code == 0, hidden.output
            assert "ada" not in hidden.stdout
            assert '"name": "***", "number": 1' in hidden.stdout
            assert '"name": "ada", "number": 1' in xbus(*command, *form, "--show-secrets").stdout


def test_a_secret_is_found_by_those_only_who_may_see_it(xbus: Xbus, secret: ParkedBus) -> None:
    assert xbus("find", "clients", "name=ada").stdout == "Nothing found.\n"
    found = objects(xbus, "find", "clients", "name=ada", "--show-secrets")
    assert [item["value"] for item in found] == [{"name": "ada", "number": 1}] * 2


def test_corrections_are_hidden_too(xbus: Xbus, secret: ParkedBus) -> None:
    place = (str(secret.both), "--event", "1", "--item", "0")
    corrected = xbus("parked", "correct", *place, "--value", '{"name": "grace"}', "--reason", "typo")
    assert corrected.exit_code == 0, corrected.output
    assert "grace" not in corrected.stdout
    for form in ((), ("-o", "json")):
        shown = xbus("parked", "show", *place, *form).stdout
        assert "typo" in shown
        assert "grace" not in shown
        assert "grace" in xbus("parked", "show", *place, *form, "--show-secrets").stdout


def test_a_secret_stays_as_it_is_when_something_beside_it_is_corrected(
    xbus: Xbus, secret: ParkedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def edit(text: str, **_: str) -> str:
        seen.append(text)
        return text.replace('"number": 1', '"number": 2')

    monkeypatch.setattr(click, "edit", edit)
    place = (str(secret.both), "--event", "1", "--item", "0")
    assert xbus("parked", "correct", *place, "--edit", "--reason", "typo").exit_code == 0
    assert json.loads(seen[0]) == {"name": "***1", "number": 1}
    shown = xbus("parked", "show", *place, "--show-secrets").stdout
    assert '{"name": "ada", "number": 2}' in shown
    refused = xbus("parked", "correct", *place, "--value", '{"name": "***"}', "--reason", "typo")
    assert refused.exit_code == 1
    assert "[bad_mask]" in refused.stderr


def test_items_of_a_former_type_stay_hidden(xbus: Xbus, secret: ParkedBus) -> None:
    with writing(secret.url) as connection:
        connection.execute(update(event_type).values(removed_at=NOON))
    assert "ada" not in xbus("envelope", "items", str(secret.both)).stdout


def test_a_search_looks_into_few_events_and_goes_on_behind_them(bus: ParkedBus) -> None:
    found: list[UUID] = []
    below: int | None = None
    for _ in range(3):
        result = search_items(bus.url, Search("clients", [], below=below, most_events=1), lambda searched, of: None)
        found += dict.fromkeys(item.envelope_id for item, _ in result.found)
        assert result.read_events == 1
        below = result.next_below
    assert found == [bus.done, bus.alone, bus.both]
    assert not result.stopped
