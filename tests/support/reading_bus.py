"""A journal with a reader, a bot that runs by cron and one that reads."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import sqlalchemy as sa

from xbus import model
from xbus.admin import bus_file
from xbus.broker.journal.configuration import apply, make_plan, read_stored
from xbus.broker.journal.database.connection import Connection, writing
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.parked import list_parked_batches
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.steps import ActNote, LeaseOf, ReaderAct, put_out, settle, take
from xbus.rpc.codec import pack, pack_items

BUS = """\
[[event_type]]
name = "orders"

[[event_type]]
name = "reports"

[[reader]]
name = "billing"
event_types = ["orders"]
ranges = 2

[[role]]
login = "billing_1"
service = "billing"

[[subscription]]
name = "shop"
event_types = ["orders"]
url = "https://shop.example/hook"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

[[service]]
name = "runners"
kind = "runner"

[[role]]
login = "runner_1"
service = "runners"

[[emitter_profile]]
name = "shops"
event_types = ["orders"]

[[emitter]]
login = "north"
profile = "shops"

[[bot]]
name = "nightly/report"
call = "reports:nightly"
cron = "0 3 * * *"
emits = ["reports"]
settings = { "shop" = "<b>north</b>" }

[[bot]]
name = "summary"
call = "reports:summary"
reads = ["orders"]
emits = ["reports"]
"""

PROGRAM = UUID(int=4711)


@dataclass(frozen=True)
class ReadingBus:
    """The journal, and what is in it."""

    url: str
    ranges: list[int]

    def slow(self, name: str) -> None:
        """Have too many attempts of a bot have failed."""
        until = datetime.now(UTC) + timedelta(seconds=90)
        wanted = sa.select(model.bot.c.id).where(model.bot.c.name == name).scalar_subquery()
        with writing(self.url) as connection:
            connection.execute(
                sa.update(model.bot_state)
                .where(model.bot_state.c.bot_id == wanted)
                .values(failures=10, failed_at=datetime.now(UTC), slowed_until=until)
            )

    def run(self, name: str, **values: object) -> int:
        """Add a run of a bot; its id."""
        now = datetime.now(UTC)
        with writing(self.url) as connection:
            bot_id = connection.execute(sa.select(model.bot.c.id).where(model.bot.c.name == name)).scalar_one()
            row = {"bot_id": bot_id, "state": "done", "due_at": now, "attempts": 1, "started_at": now, "ended_at": now}
            added = sa.insert(model.bot_run).values({**row, **values}).returning(model.bot_run.c.id)
            return int(connection.execute(added).scalar_one())

    def park(self, cause: str = "HTTP 422", position: int = 1) -> str:
        """Park a batch of the subscription, with the event at a position; its id."""
        hashes = {"first": "0" * 16, "last": "f" * 16}
        places = {"position": position, "event": 0, "item": 0, "to_position": position + 1, "to_event": 0, "to_item": 0}
        with writing(self.url) as connection:
            shop = connection.execute(sa.select(model.subscription.c.service_id)).scalar_one()
            (of_ring, *_) = read_ranges(connection, [shop])
            failed = {"parked_at": datetime.now(UTC), "attempts": 3, "code": "refused", "cause": cause}
            row = {"service_id": shop, "batch_of": of_ring.id, "handed_out": True, **hashes, **failed}
            added = sa.insert(model.reader_range).values(**row).returning(model.reader_range.c.id)
            range_id = connection.execute(added).scalar_one()
            connection.execute(sa.insert(model.reader_stretch).values(**hashes, **places, range_id=range_id))
            return next(each.id for each in list_parked_batches(connection) if each.range.id == range_id)

    def places(self) -> list[str]:
        """Where the ranges of the reader in use are."""
        with writing(self.url) as connection:
            entry = next(each for each in read_readers(connection) if each.name == "billing")
            return [str(each.place) for each in read_ranges(connection, [entry.id])]


def make_reading_bus(url: str, envelopes: int = 5) -> ReadingBus:
    """Make it: the first range was settled up to the third envelope, and a batch of it is out."""
    with writing(url) as connection:
        read = bus_file.read(BUS.encode())
        plan = make_plan(read_stored(connection), read.bus)
        assert [*read.problems, *plan.problems] == []
        apply(connection, plan, datetime.now(UTC))
    now = datetime.now(UTC)
    with writing(url) as connection:
        for position in range(1, envelopes + 1):
            _receive(connection, position, now)
        connection.execute(sa.update(model.head).values(position=envelopes))
        entry = next(each for each in read_readers(connection) if each.name == "billing")
        found = read_ranges(connection, [entry.id])
        role_id = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == "billing_1")).scalar_one()
        taken = take(connection, LeaseOf(found[0].id, 0, PROGRAM), role_id, now + timedelta(seconds=10))
        lease = LeaseOf(taken.id, taken.counter, PROGRAM)
        put_out(connection, lease, Place(3), now + timedelta(seconds=10))
        settle(connection, lease, Place(3), ActNote(uuid4(), now, "billing_1", ReaderAct.CHECKPOINT))
        put_out(connection, lease, Place(5), now + timedelta(seconds=10))
    return ReadingBus(url, [each.id for each in found])


def _receive(connection: Connection, position: int, now: datetime) -> None:
    """Add a sealed envelope with one order."""
    catalog = read_catalog(connection)
    orders = catalog.event_types["orders"]
    emitter_id = next(entry.id for entry in catalog.emitters.values() if entry.login == "north")
    envelope_id, event_id, data = UUID(int=position), UUID(int=1000 + position), pack_items([pack({"n": position})])
    row = {"id": envelope_id, "emitter_id": emitter_id, "state": "received", "opened_at": now, "closed_at": now}
    counts = {"position": position, "events": 1, "items": 1, "bytes": len(data), "hash": b"\x01" * 32}
    connection.execute(sa.insert(model.envelope).values(**row, **counts))
    ids = {"event_type_id": orders.id, "graph_id": orders.graph_id}
    connection.execute(
        sa.insert(model.event).values(id=event_id, envelope_id=envelope_id, number=1, **ids, estimate=0, items=1)
    )
    hashed = hashlib.sha256(data).digest()
    connection.execute(
        sa.insert(model.segment).values(event_id=event_id, first_index=0, items=1, data=data, hash=hashed)
    )
