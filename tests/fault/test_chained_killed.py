"""The broker is killed again and again while a node emits: each envelope is made once, and none is left open."""

import random
import time

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, password_hash
from tests.support.waiting import wait_until
from xbus import model
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    apply,
    make_plan,
    read_stored,
    set_password,
)
from xbus.broker.journal.database.connection import reading, writing
from xbus.clock import SystemClock
from xbus.emitter import Emitter
from xbus.ids import keyed_envelope_id

SMALL, LARGE = 300, 6
LARGE_ITEMS = 4_000
KILLS = 5
MOST_SECONDS = 0.6
"""A broker lives so long at the most once it serves: it dies before, amid and behind the commits of its envelopes."""

CHAIN = BusSpec(
    event_types={
        "numbers": EventTypeSpec("numbers", False, {"copy": NodeSpec("copy", "", (), ("copies",))}),
        "copies": EventTypeSpec("copies", False, {"once": NodeSpec("once", "", (), ("ends",))}),
        "ends": EventTypeSpec("ends", False, {}),
    },
    profiles={"everything": ProfileSpec("everything", frozenset({"numbers"}))},
    emitters={"emitter_1": EmitterSpec("emitter_1", "everything")},
)


def add_chain(url: str) -> None:
    """A bus whose envelopes the bus makes others of, and of these others."""
    at = SystemClock().now()
    with writing(url) as connection:
        apply(connection, make_plan(read_stored(connection), CHAIN), at)
        set_password(connection, "emitter", "emitter_1", password_hash(), at)


def send(front: str) -> None:
    with Emitter(front, "emitter_1", PASSWORD) as emitter:
        for number in range(SMALL + LARGE):
            items = LARGE_ITEMS if number % (SMALL // LARGE) == 7 else 1
            with emitter.envelope(key=str(number)) as envelope, envelope.event("numbers") as event:
                for index in range(items):
                    event.send(b"%d/%d %s" % (number, index, b"x" * 100))


def contents(url: str, login: str) -> dict[str, tuple[object, ...]]:
    """What an emitter has sealed, by what it calls its envelopes: state, items, bytes, and hash of the items."""
    envelope, emitter = model.envelope.c, model.emitter.c
    wanted = sa.select(envelope.id, envelope.idempotency_key, envelope["items"], envelope.bytes)
    with reading(url) as connection:
        rows = connection.execute(
            wanted.join(model.emitter, emitter.id == envelope.emitter_id).where(
                emitter.login == login, envelope.state == "received"
            )
        ).all()
    found: dict[str, tuple[object, ...]] = {str(row.id): (row.idempotency_key, row.items, row.bytes) for row in rows}
    assert len({key for key, _, _ in found.values()}) == len(found), "made twice"
    return found


def count(url: str, login: str) -> int:
    return len(contents(url, login))


def test_each_envelope_is_made_once_however_often_the_broker_is_killed(
    database_url: str, start_daemon: StartDaemon
) -> None:
    choices = random.Random(19)
    add_chain(database_url)
    daemon = start_daemon(database_url)
    send(daemon.front)
    for _ in range(KILLS):
        daemon.crash()
        daemon.start()
        time.sleep(choices.uniform(0, MOST_SECONDS))
    wait_until(lambda: count(database_url, "copies/once") == SMALL + LARGE, "all is made")

    sent = contents(database_url, "emitter_1")
    made = contents(database_url, "numbers/copy")
    ends = contents(database_url, "copies/once")
    assert {key: rest for key, *rest in made.values()} == {each: rest for each, (_, *rest) in sent.items()}
    assert {key: rest for key, *rest in ends.values()} == {each: rest for each, (_, *rest) in made.items()}
    with reading(database_url) as connection:
        states = connection.execute(sa.select(model.envelope.c.state, sa.func.count()).group_by("state")).all()
        emitter_id = connection.execute(
            sa.select(model.emitter.c.id).where(model.emitter.c.login == "numbers/copy")
        ).scalar_one()
    assert "open" not in dict(states)
    # A delivery that was not broken off made the first of its ids.
    assert {str(keyed_envelope_id(emitter_id, each)) for each in sent} & set(made)
