"""All commands write JSON by the names that ``docs/json.md`` lists: one name for one thing."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
from sqlalchemy import Connection, insert, select, update

from examples.clearing_store import ClearingStore
from spark_worker.archive.archiver import Report
from spark_worker.trueup.comparing import Verdict
from tests.integration.admin.conftest import NOON, Xbus
from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus
from tests.support.ports import free_port
from xbus import model
from xbus.admin import address
from xbus.admin.cli import main
from xbus.broker.journal.configuration import BusSpec, ReaderSpec, SubscriptionSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.operations import losses
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.emitter.outbox import Outbox
from xbus.headers import pack_headers
from xbus.rpc.curve import new_pair

HEADERS = pack_headers({"mine": 7})

PAGE = Path(__file__).parents[3] / "docs" / "json.md"

PLANNED = """
[[event_type]]
name = "clients"
[[event_type]]
name = "memos"
renamed_from = "notes"
[[event_type]]
name = "orders"
[[event_type.node]]
name = "store"
service = "store"
"""
"""A bus file that empties the graph of a type, renames another one, and adds a third."""

NEED_SPARK = {"archive": Report, "checksum": Verdict}
"""Commands that run on Spark, by the results that they write as they are."""

FLOW = """
[[event_type]]
name = "clients"
[[event_type.node]]
name = "named"
emits = "named"
[[event_type.node]]
name = "print"
service = "printer"
[[event_type]]
name = "named"
[[service]]
name = "printer"
kind = "consumer"
[[role]]
login = "printer_1"
service = "printer"
[[emitter_profile]]
name = "shop"
event_types = ["clients"]
[[emitter]]
login = "shop_1"
profile = "shop"
"""
"""A bus file with a consumer and a type that is made of another one."""

Check = Callable[[Any], bool]


def is_moment(value: Any) -> bool:
    return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_list_of(kind: type | tuple[type, ...]) -> Check:
    return lambda value: isinstance(value, list) and all(isinstance(each, kind) for each in value)


CHECKS: Mapping[str, Check] = {
    "text": lambda value: isinstance(value, str),
    "number": is_number,
    "moment": is_moment,
    "yes or no": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "list of objects": is_list_of(dict),
    "list of text": is_list_of(str),
    "list of numbers": is_list_of(int),
    "anything": lambda value: True,
}


def documented() -> dict[str, str]:
    """The kind of each name on the page."""
    section = PAGE.read_text(encoding="utf-8").partition("## Names\n")[2]
    return dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", section, re.MULTILINE))


def named(value: Any) -> Iterator[tuple[str, Any]]:
    """Each name in an object and in those inside it, with its value; what an item says is its emitter's affair."""
    if isinstance(value, list):
        for each in value:
            yield from named(each)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            if name not in ("value", "values", "headers"):
                yield from named(inner)


def commands(group: click.Group = main, *path: str) -> Iterator[tuple[str, ...]]:
    """The commands that write JSON."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        elif command is not None and any("--json" in parameter.opts for parameter in command.params):
            yield *path, name


def add_reader_rows(connection: Connection, role_id: int) -> None:
    """Add a reader with a range that is out, and an act that undoes another."""
    start = {"first": "0" * 16, "last": "f" * 16, "position": 1, "event": 0, "item": 0}
    reader = ReaderSpec("audit", frozenset({"clients"}), ranges=1)
    apply(connection, make_plan(read_stored(connection), BusSpec(readers={"audit": reader})), NOON)
    out = {"owner": uuid.UUID(int=7), "role_id": role_id, "handed_out": True, "settled_at": NOON, "expires_at": NOON}
    connection.execute(update(model.reader_range).values(out))
    connection.execute(update(model.reader_stretch).values({**start, "to_position": 3, "to_event": 0, "to_item": 0}))
    places = {f"{side}_{part}": 1 for side in ("from", "to") for part in ("position", "event", "item")}
    act = {"act": uuid.UUID(int=1), "undoes": uuid.UUID(int=2), "at": NOON, "who": "ada", "kind": "undo"}
    hashes = {"first": start["first"], "last": start["last"], "reason": "why"}
    reader_id = connection.execute(select(model.reader.c.service_id)).scalar_one()
    connection.execute(insert(model.reader_move).values(**act, **hashes, **places, service_id=reader_id))


def add_subscription_rows(connection: Connection) -> None:
    """Add a subscription whose calls fail, and which has ended."""
    hook = SubscriptionSpec("hook", frozenset({"clients"}), "https://shop.example/hook", start="oldest")
    apply(connection, make_plan(read_stored(connection), BusSpec(subscriptions={"hook": hook})), NOON)
    failed = {"failures": 3, "failing_since": NOON, "failed_at": NOON, "retry_at": NOON, "ended_at": NOON}
    connection.execute(update(model.subscription_state).values(**failed, code="x", error="y"))
    hook_id = connection.execute(select(model.subscription.c.service_id)).scalar_one()
    served = model.reader_range.c.service_id == hook_id
    of_hook = connection.execute(select(model.reader_range.c.id).where(served)).scalar_one()
    span = {"first": "0" * 16, "last": "f" * 16}
    parked = {"service_id": hook_id, "batch_of": of_hook, "handed_out": True, "parked_at": NOON, "attempts": 3}
    added = insert(model.reader_range).values(**span, **parked, code="x", cause="y").returning(model.reader_range.c.id)
    places = {"position": 1, "event": 0, "item": 0, "to_position": 3, "to_event": 0, "to_item": 0}
    range_id = connection.execute(added).scalar_one()
    connection.execute(insert(model.reader_stretch).values(**span, **places, range_id=range_id))


def parked_batch(url: str) -> str:
    """The id of the batch that is parked."""
    with reading(url) as connection:
        (found,) = list_parked_batches(connection)
    return found.id


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    """A journal with one of everything that a command may show."""
    bus = make_parked_bus(database_url)
    with writing(database_url) as connection:
        roles = dict(connection.execute(select(model.role.c.login, model.role.c.id)).all())
        add_reader_rows(connection, roles["store_1"])
        add_subscription_rows(connection)
        losses.add(connection, losses.Loss(NOON, "broker", 2, 70, 49))
        event_id = bus.event_id(bus.both)
        sent = {"state": "failed", "until": NOON, "code": "timed_out", "cause": "no answer"}
        node_id = connection.execute(select(model.node.c.id).limit(1)).scalar_one()
        work = {"envelope_id": str(bus.done), "event_id": str(event_id), "position": 3, "verb": "send_item"}
        told = {"since": NOON.isoformat(), "done": 1, "of": 4}
        attempt = {"event_id": event_id, "node_id": node_id, "role_id": roles["store_1"], "lease_until": NOON}
        attempt |= {"id": event_id, "state": "failed", "started_at": NOON, "ended_at": NOON, "code": "x", "cause": "y"}
        item = {"event_id": event_id, "item_index": 1, "before": b"a", "after": b"b", "at": NOON, "reason": "ada: why"}
        resumed = {"role_id": roles["store_1"], "event_id": event_id, "item_index": 2, "envelope_id": bus.both}
        resumed |= {"state": "resumed", "code": "x", "cause": "y", "changed_at": NOON, "resumed_as": bus.done}
        pause = {"kind": "role", "subject_id": roles["counter_1"], "reason": "why", "paused_by": "ada"}
        pause |= {"since": NOON, "until": NOON}
        looked = {"version": "0.3.0", "process": "process 1 on here", "looked_at": NOON}
        emitter_id = connection.execute(select(model.emitter.c.id).limit(1)).scalar_one()
        bot = {"id": 1, "name": "report", "emitter_id": emitter_id, "call": "a:b", "command": [], "cron": "0 3 * * *"}
        bot |= {"timezone": "UTC", "missed": "once", "instances": 1, "max_seconds": 1, "attempts": 3, "settings": {}}
        bot |= {"description": "why"}
        run = {"bot_id": 1, "slot": NOON, "state": "failed", "due_at": NOON, "attempts": 3, "role_id": roles["store_1"]}
        person = {"id": 1, "login": "ada", "rights": "operator", "created_at": NOON, "last_seen_at": NOON}
        person |= {"removed_at": NOON}
        session = {"person_id": 1, "token_hash": b"s", "created_at": NOON}
        for table, row in (
            (model.reply, {"event_id": event_id, "envelope_id": bus.both, **sent}),
            (model.bulk_attempt, attempt | {"items": 5, "bytes": 9}),
            (model.archived_envelope, {"envelope_id": bus.both, "archived_at": NOON, "restored_at": NOON}),
            (model.correction, item),
            (model.parked_item, resumed),
            (model.presence, {"role_id": roles["store_1"], "state": "present", "since": NOON, "seen_at": NOON}),
            (model.pause, pause),
            (
                model.session,
                {"token_hash": b"s", "role_id": roles["store_1"], "expires_at": NOON},
            ),
            (
                model.api_token,
                {
                    "name": "shop",
                    "token_hash": b"a",
                    "emitter_id": connection.execute(select(model.emitter.c.id).limit(1)).scalar_one(),
                    "role_id": roles["store_1"],
                    "created_at": NOON,
                    "used_at": NOON,
                },
            ),
            (model.bot, bot),
            (model.bot_state, {"bot_id": 1, "slots_until": NOON, "failures": 10, "slowed_until": NOON}),
            (model.bot_run, run | {"started_at": NOON, "ended_at": NOON, "code": "x", "error": "y", "log": "z"}),
            (model.pause, pause | {"kind": "bot", "subject_id": 1}),
            (model.person, person),
            (model.person_session, session | {"origin": "10.0.0.1", "used_at": NOON, "expires_at": NOON}),
            (
                model.person_token,
                session | {"name": "nightly", "rights": "viewer", "used_at": NOON, "expires_at": NOON},
            ),
            (model.broker, {"name": "here:1984", "front": "tcp://here:1984", "back": "tcp://here:4891"} | looked),
            (
                model.lease,
                {"what": "broker", "broker": "here:1984", "epoch": 1, "until": NOON, "successor": "there:1984"},
            ),
            (model.input_descriptor, {"name": "csv", "mimetype": "text/csv", "content": b"x"}),
            (
                model.registration,
                {"role_id": roles["store_1"], "token_hash": b"", "uri": "tcp://a:1", "registered_at": NOON},
            ),
        ):
            connection.execute(insert(table).values(row | ({"noted_at": NOON} if table is model.presence else {})))
        program = {"uri": "tcp://a:1", "state": "present", "since": NOON.isoformat(), "seen_at": NOON.isoformat()}
        connection.execute(
            update(model.presence).values(work=[work | told], instances=[program | {"work": [work | told]}])
        )
        connection.execute(update(model.registration).values(place="elsewhere"))
        keyed_role = update(model.role).where(model.role.c.id == roles["store_1"])
        connection.execute(keyed_role.values(public_keys=new_pair().public))
        connection.execute(update(model.cursor).where(model.cursor.c.role_id == roles["store_1"]).values(position=2))
        connection.execute(update(model.failure).values(owner="ada"))
        keyed = update(model.envelope).where(model.envelope.c.id == bus.both)
        connection.execute(keyed.values(idempotency_key="order 1", origin_id=bus.done, headers=HEADERS))
        tagged = update(model.event).where(model.event.c.id == event_id)
        connection.execute(tagged.values(headers=HEADERS, partition_key="client 7"))
        connection.execute(insert(model.envelope_role).values(envelope_id=bus.both, role_id=roles["store_1"]))
        connection.execute(insert(model.envelope_role).values(envelope_id=bus.both, role_id=roles["counter_1"]))
    return bus


def invocations(bus: ParkedBus, outbox: Path) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """The arguments with which each command shows as much as it can."""
    return {
        # It hangs the rows into the chain, so that they have numbers.
        ("audit", "verify"): (),
        ("audit", "list"): (),
        ("bot", "list"): (),
        ("bot", "log"): ("report",),
        ("bot", "runs"): (),
        ("bot", "show"): ("report",),
        ("broker", "list"): (),
        ("clearing", "list"): ("--url", "tcp://nowhere:1", "--login", "me"),
        ("config", "show"): (),
        ("descriptor", "list"): (),
        ("doctor",): (),
        ("envelope", "items"): (str(bus.both),),
        ("envelope", "list"): (),
        ("envelope", "show"): (str(bus.both),),
        ("failure", "list"): ("--groups",),
        ("failure", "show"): ("1",),
        ("find",): ("clients",),
        ("flow", "run"): flow_arguments(outbox.parent),
        # The hashes of this journal are none.
        ("fsck",): (),
        ("health",): ("--url", f"tcp://127.0.0.1:{free_port()}"),
        ("journal", "losses"): (),
        ("journal", "show"): (),
        ("outbox", "status"): (str(outbox),),
        ("parked", "batch", "list"): (),
        ("parked", "batch", "show"): (parked_batch(bus.url),),
        ("parked", "list"): (),
        ("parked", "show"): (str(bus.both),),
        ("plan",): (str(outbox.with_name("bus.toml")), "--last", "9"),
        ("reader", "list"): (),
        ("reader", "show"): ("audit",),
        ("read",): ("clients",),
        ("recipient", "list"): (),
        ("keys", "list"): (),
        ("session", "list"): (),
        ("subscription", "list"): (),
        ("subscription", "show"): ("hook",),
        ("token", "list"): (),
        ("trace",): (str(bus.both),),
        ("type", "list"): (),
        ("person", "list"): (),
        ("person", "token", "list"): (),
        ("why",): (str(bus.both), "--event", "1", "--item", "2"),
    }


def flow_arguments(folder: Path) -> tuple[str, ...]:
    """The arguments with which a bus runs over a file."""
    bus, items = folder / "flow.toml", folder / "clients.jsonl"
    bus.write_text(FLOW)
    items.write_text('{"number": 1}\n')
    return str(bus), "--in", str(items), "--out", str(folder / "out")


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    """An outbox with a waiting and a refused envelope."""
    path = tmp_path / "orders.outbox"
    box = Outbox(path)
    for name in ("a", "b"):
        box.start_envelope(name, f"order {name}", None)
        box.end_envelope(name, NOON)
    box.set_aside("a", "unknown_type", "no such type")
    box.note_trouble("timed_out", "no answer", NOON)
    box.close()
    return path


@pytest.fixture
def _offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer with a clearing database that has a cleared and a new item."""
    url = f"sqlite:///{tmp_path / 'clearing.db'}"
    store = ClearingStore(url)
    store.keep("9b2f3c1e-0000-4000-8000-000000000001", {"number": 1})
    store.commit("9b2f3c1e-0000-4000-8000-000000000002")
    store.close()

    class Introduced:
        def __init__(self, *_: str, **options: float) -> None:
            pass

        def __enter__(self) -> "Introduced":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def consumers(self) -> Any:
            return [({"name": "Shop"}, {"clearing": [True, url], "immediate_reply": [True, ["data_clearing"]]})]

    monkeypatch.setenv("XBUS_PASSWORD", "secret")
    monkeypatch.setattr(address, "Emitter", Introduced)


@pytest.fixture
def written(xbus: Xbus, bus: ParkedBus, outbox: Path, _offered: None) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The objects that each command writes."""
    xbus("failure", "track", "1", "processing", "--comment", "asked")
    (outbox.with_name("bus.toml")).write_text(PLANNED)
    found = {}
    for command, arguments in invocations(bus, outbox).items():
        result = xbus(*command, *arguments, "-o", "json")
        found[command] = [json.loads(line) for line in result.stdout.splitlines()]
        assert found[command], (command, result.output)
    return found


def test_all_commands_write_the_names_of_the_page(written: dict[tuple[str, ...], list[dict[str, Any]]]) -> None:
    kinds = documented()
    wrong = {
        f"{' '.join(command)}: {name} = {value!r} ({kinds.get(name, 'not on the page')})"
        for command, found in written.items()
        for name, value in named(found)
        if name not in kinds or not (value is None or CHECKS[kinds[name]](value))
    }
    assert wrong == set()
    seen = {name for found in written.values() for name, value in named(found) if value is not None}
    of_spark = {field.name for result in NEED_SPARK.values() for field in fields(result)} | {"emitted"}
    assert of_spark <= set(kinds)
    assert set(kinds) - seen - of_spark == {"acknowledged_at", "alarm", "cleared_at"}
    shapes = {command: len({tuple(each) for each in found}) for command, found in written.items()}
    assert shapes == dict.fromkeys(written, 1)


def test_every_command_that_writes_json_is_tested_and_documented(bus: ParkedBus, outbox: Path) -> None:
    tested = {*invocations(bus, outbox), *((name,) for name in NEED_SPARK)}
    assert set(commands()) == tested
    section = PAGE.read_text(encoding="utf-8").partition("## Commands\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`xbus ([\w ]+)`", section)) == {" ".join(command) for command in tested}


def test_json_is_an_alias(xbus: Xbus, bus: ParkedBus) -> None:
    assert xbus("envelope", "list", "--json").stdout == xbus("envelope", "list", "-o", "json").stdout != ""
    assert xbus("type", "list", "-o", "yaml").exit_code == 2
