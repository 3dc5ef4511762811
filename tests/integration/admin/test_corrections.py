"""``xbus parked correct`` without a role: for all who lack the item and all who come."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, insert, select, update

from tests.integration.admin.conftest import NOON, Xbus
from tests.integration.admin.parked_bus import CLIENTS, NAMELESS, ParkedBus, make_parked_bus, refused, told
from xbus import model
from xbus.admin.commands.parked import CorrectItem
from xbus.admin.repair import moves
from xbus.admin.repair.moves import Standing
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.overlays import EventOverlay, read_overlays
from xbus.broker.journal.log.reading import read_at, read_head, read_segments
from xbus.rpc.codec import pack, unpack_items

NAMED = '{"number": 4, "name": "lou"}'
CURED = pack(json.loads(NAMED))


@pytest.fixture
def bus(database_url: str) -> ParkedBus:
    return make_parked_bus(database_url)


@pytest.fixture(autouse=True)
def ada(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who repairs."""
    monkeypatch.setenv("LOGNAME", "ada")


def everything(bus: ParkedBus) -> list[Any]:
    """All that a correction may change."""
    tables = (model.delivery, model.parked_item, model.correction, model.history, model.envelope)
    with reading(bus.url) as connection:
        return [
            [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))] for table in tables
        ]


def states(bus: ParkedBus) -> dict[str, str]:
    """Of the deliveries, by the login of the role."""
    row = model.delivery.c
    with reading(bus.url) as connection:
        found = connection.execute(select(model.role.c.login, row.state).join(model.role)).all()
    return {each.login: each.state for each in found}


def overlays(bus: ParkedBus, envelope_id: UUID, login: str | None = None) -> dict[UUID, EventOverlay]:
    with reading(bus.url) as connection:
        wanted = select(model.role.c.id).where(model.role.c.login == login)
        role_id = None if login is None else connection.execute(wanted).scalar_one()
        return read_overlays(connection, role_id, envelope_id)


def repeat(connection: Connection, envelope_id: UUID, *, pruned: bool = False) -> UUID:
    """Insert an envelope that repeats another, as an emitter's replay does."""
    again = UUID(int=envelope_id.int + 100)
    first = connection.execute(select(model.envelope).where(model.envelope.c.id == envelope_id)).mappings().one()
    row = {**first, "id": again, "position": read_head(connection) + 1, "origin_id": envelope_id}
    connection.execute(insert(model.envelope).values(row))
    for event in connection.execute(select(model.event).where(model.event.c.envelope_id == envelope_id)).mappings():
        of_repeat = {"id": UUID(int=event["id"].int + 100), "envelope_id": again, "origin_id": event["id"]}
        connection.execute(insert(model.event).values({**event, **of_repeat}))
    connection.execute(update(model.head).values(position=row["position"]))
    return again


def correct(xbus: Xbus, envelope_id: UUID, *options: str | Path) -> list[str]:
    return told(xbus, "correct", str(envelope_id), "--reason", "a name", *options)


def test_one_correction_is_for_all_for_whom_it_is_parked_and_for_who_comes(xbus: Xbus, bus: ParkedBus) -> None:
    assert correct(xbus, bus.both, "--event", "1", "--item", "1", "--value", NAMED) == [
        "Corrected item 1 of event 1 for all roles that lack it, and for those that come later.",
        "Roles that lack it: counter_1 (parked), store_1 (parked).",
        f"Next: xbus parked resume {bus.both}",
    ]
    assert states(bus) == {"counter_1": "parked", "store_1": "parked"}
    expected = {bus.event_id(bus.both): EventOverlay({1: CURED}, frozenset())}
    assert [overlays(bus, bus.both, login) for login in ("store_1", "counter_1", None)] == [expected] * 3
    row = model.history.c
    with reading(bus.url) as connection:
        kept = connection.execute(select(row.subject, row.subject_id, row.move, row.reason)).all()
    assert tuple(kept[-1]) == ("item", f"all {bus.event_id(bus.both)} 1", "corrected", "ada: a name")


@pytest.mark.parametrize(("indices", "tracking"), [([1], "corrected"), ([1, 2], "unprocessed")])
def test_a_correction_closes_the_failures_that_name_nothing_else(
    xbus: Xbus, bus: ParkedBus, indices: list[int], tracking: str
) -> None:
    with writing(bus.url) as connection:
        connection.execute(update(model.failure).values(indices=indices))
    correct(xbus, bus.both, "--event", "1", "--item", "1", "--value", NAMED)
    with reading(bus.url) as connection:
        assert connection.execute(select(model.failure.c.tracking)).scalars().all() == [tracking]


def test_all_for_whom_it_is_parked_are_resumed_with_it(xbus: Xbus, bus: ParkedBus) -> None:
    lines = correct(xbus, bus.both, "--event", "1", "--item", "1", "--value", NAMED, "--resume")
    assert lines[2:] == [f"Resumed envelope {bus.both} for {login}." for login in ("counter_1", "store_1")]
    assert states(bus) == {"counter_1": "retry", "store_1": "retry"}


def test_an_item_that_is_parked_alone_is_sent_again_corrected(xbus: Xbus, bus: ParkedBus) -> None:
    lines = correct(xbus, bus.alone, "--item", "1", "--value", NAMED, "--resume")
    assert lines[1:3] == [
        "Roles that lack it: counter_1 (parked alone).",
        "Roles that have it keep it as they got it: store_1.",
    ]
    with reading(bus.url) as connection:
        (envelope,) = read_at(connection, [read_head(connection)])
        (segment,) = read_segments(connection, envelope.events[0].event_id, 0, 1_000_000)
    assert unpack_items(segment.data, segment.items) == [CURED]


def test_it_says_who_lacks_it_of_a_replay_that_is_on_its_way(xbus: Xbus, bus: ParkedBus) -> None:
    """The item is in both envelopes, so a correction reaches whoever still waits for either."""
    with writing(bus.url) as connection:
        again = repeat(connection, bus.done)
    lines = correct(xbus, bus.done, "--item", "0", "--value", "1")
    assert lines[1] == f"Roles that lack it as envelope {again}: counter_1 (owed), store_1 (owed)."


def test_where_nobody_lacks_it_it_is_for_who_comes(xbus: Xbus, bus: ParkedBus) -> None:
    assert correct(xbus, bus.done, "--item", "0", "--value", "1") == [
        "Corrected item 0 of event 1 for all roles that lack it, and for those that come later.",
        "No role lacks it now.",
        "Roles that have it keep it as they got it: counter_1, store_1.",
    ]


def test_the_newer_one_counts_and_the_older_ones_are_kept(xbus: Xbus, bus: ParkedBus) -> None:
    where = ("--event", "1", "--item", "1")
    correct(xbus, bus.both, *where, "--value", '{"name": "one"}', "--role", "store_1")
    correct(xbus, bus.both, *where, "--value", '{"name": "all"}')
    assert overlays(bus, bus.both, "store_1")[bus.event_id(bus.both)].corrected == {1: pack({"name": "all"})}
    correct(xbus, bus.both, *where, "--value", '{"name": "own"}', "--role", "counter_1")
    # It is not so for all already: one role would get it otherwise.
    correct(xbus, bus.both, *where, "--value", '{"name": "all"}')
    assert "has this value already" in refused(
        xbus, "correct", str(bus.both), *where, "--value", '{"name": "all"}', "--reason", "x"
    )
    correct(xbus, bus.both, *where, "--value", '{"name": "mine"}', "--role", "store_1")
    lines = told(xbus, "show", str(bus.both), "--event", "1", "--item", "1")
    shown = [line.split(" 20")[0] for line in lines if line.startswith("  corrected")]
    assert shown == ["  corrected for all who lack it", "  corrected for store_1"]
    assert re.fullmatch(r"  corrected for all who lack it \S+ \S+Z by ada: a name", lines[-4])
    rows = [line.split() for line in xbus("envelope", "show", str(bus.both)).stdout.splitlines()]
    kept = [(line[0], *line[3:4]) for line in rows if "corrected" in line]
    assert kept == [(login, "corrected") for login in ("store_1", "all", "counter_1", "all", "store_1")]


def test_a_correction_is_taken_back(xbus: Xbus, bus: ParkedBus) -> None:
    where = ("--event", "1", "--item", "1")
    assert "has this value already" in refused(xbus, "correct", str(bus.both), *where, "--as-sent", "--reason", "x")
    correct(xbus, bus.both, *where, "--value", NAMED)
    correct(xbus, bus.both, *where, "--as-sent")
    assert overlays(bus, bus.both)[bus.event_id(bus.both)].corrected == {1: NAMELESS}
    assert " as_sent " in xbus("envelope", "show", str(bus.both)).stdout


def test_an_edit_begins_with_what_all_get(xbus: Xbus, bus: ParkedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/4/5/")
    where = ("--event", "1", "--item", "1")
    correct(xbus, bus.both, *where, "--value", '{"number": 44}')
    correct(xbus, bus.both, *where, "--edit")
    assert overlays(bus, bus.both)[bus.event_id(bus.both)].corrected == {1: pack({"number": 54})}


def test_a_repeat_and_what_it_repeats_share_a_correction(xbus: Xbus, bus: ParkedBus) -> None:
    with writing(bus.url) as connection:
        again = repeat(connection, bus.both)
    correct(xbus, again, "--event", "1", "--item", "1", "--value", NAMED)
    assert [found.corrected for found in overlays(bus, bus.both).values()] == [{1: CURED}]
    assert [found.corrected for found in overlays(bus, again).values()] == [{1: CURED}]
    assert " all " in xbus("envelope", "show", str(bus.both)).stdout


def test_what_is_for_one_role_only_says_so(xbus: Xbus, bus: ParkedBus) -> None:
    (line,) = told(xbus, "resume", str(bus.alone))
    own = UUID(line.removesuffix(".").split()[-1])
    assert correct(xbus, own, "--item", "0", "--value", NAMED)[1:] == [
        "The envelope is for counter_1 only.",
        "Roles that lack it: counter_1 (owed).",
    ]


def test_what_can_not_be_corrected_is_refused(xbus: Xbus, bus: ParkedBus) -> None:
    columns = {model.envelope.c.position: None, model.envelope.c.state: "open"}
    with writing(bus.url) as connection:
        connection.execute(update(model.envelope).where(model.envelope.c.id == bus.done).values(columns))
    before = everything(bus)
    options = ("--item", "0", "--value", "1", "--reason", "x")
    cases: dict[str, list[Any]] = {
        "is still open: wait until its emitter has ended it [envelope_open]": [bus.done],
        "there is no envelope": [UUID(int=1)],
        "has no event 3: its events are numbered 1 to 2: name one with --event [event_unknown]": [
            bus.both,
            "--event",
            "3",
        ],
        "an event must be named": [bus.both],
        "has no item 6: it has 6 items": [bus.both, "--event", "1", "--item", "6"],
        "that is no JSON": [bus.both, "--event", "1", "--value", "{no"],
        "can't be packed": [bus.both, "--event", "1", "--value", str(2**70)],
        "is not parked for role store_1": [bus.alone, "--role", "store_1"],
    }
    for cause, (envelope_id, *others) in cases.items():
        assert cause in refused(xbus, "correct", str(envelope_id), *options, *map(str, others))
    assert everything(bus) == before


def test_what_was_cancelled_archived_or_removed_is_refused(xbus: Xbus, bus: ParkedBus) -> None:
    envelope = model.envelope
    with writing(bus.url) as connection:
        connection.execute(update(envelope).where(envelope.c.id == bus.done).values(state="cancelled", position=None))
        connection.execute(update(envelope).where(envelope.c.id != bus.done).values(pruned_at=NOON))
        connection.execute(insert(model.archived_envelope).values(envelope_id=bus.both, archived_at=NOON))
    before = everything(bus)
    options = ("--event", "1", "--item", "0", "--value", "1", "--reason", "x")
    for envelope_id, cause in {
        bus.done: "is cancelled: nobody gets it [envelope_closed]",
        bus.both: f"are in an archive only: restore them first: xbus restore {bus.both} [envelope_archived]",
        bus.alone: "there is no envelope",
    }.items():
        assert cause in refused(xbus, "correct", str(envelope_id), *options)
    assert everything(bus) == before


def test_what_changed_since_it_was_looked_at_is_refused_and_nothing_is_half_done(
    xbus: Xbus, bus: ParkedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--event", "1", "--item", "1", "--value", NAMED, "--reason", "x", "--resume")
    before = everything(bus)
    with monkeypatch.context() as patch:
        # As of somebody who looked before somebody else had corrected it.
        stale = Standing(CLIENTS[1], {None: b"another"})
        find = CorrectItem.find
        patch.setattr(CorrectItem, "find", lambda *asked: (find(*asked)[0], stale))
        assert "somebody else has just corrected" in refused(xbus, "correct", str(bus.both), *options)
    with monkeypatch.context() as patch:
        # Removed while the editor was open.
        patch.setattr(moves, "hold_sealed", lambda *_: False)
        assert "no longer kept [items_gone]" in refused(xbus, "correct", str(bus.both), *options)
    assert everything(bus) == before
