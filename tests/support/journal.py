"""Journals for tests: a database with a small bus in it, and the calls of an emitter put together."""

import asyncio
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.waiting import DEADLINE_SECONDS
from xbus import model
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.repeats import read_past
from xbus.broker.journal.writes import (
    Append,
    EndEvent,
    GroupType,
    ProgressUpdate,
    PutGroup,
    Repeat,
    RepeatedEvent,
    Seal,
    SealReceipt,
    StartEnvelope,
    StartEvent,
)
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.codec import pack_items
from xbus.testing.images import make_image, opened

NOW = datetime(2020, 2, 29, 12, 0, tzinfo=UTC)


def small_bus() -> BusSpec:
    """``flights`` go through the worker ``names`` to ``store``, ``notes`` straight there; ``store`` has two roles.

    ``fares`` go through ``names`` and then ``prices``; ``wishes`` as flights, and are answered by an immediate reply.
    ``north`` may send these types, ``south`` only notes.
    ``secrets`` is a type that nobody may send.
    """
    flights = {"names": NodeSpec("names", "names", ("store",)), "store": NodeSpec("store", "store")}
    notes = {"store": NodeSpec("store", "store")}
    fares = {
        "names": NodeSpec("names", "names", ("prices",)),
        "prices": NodeSpec("prices", "prices", ("store",)),
        "store": NodeSpec("store", "store"),
    }
    return BusSpec(
        event_types={
            "flights": EventTypeSpec("flights", False, flights),
            "fares": EventTypeSpec("fares", False, fares),
            "notes": EventTypeSpec("notes", False, notes),
            "wishes": EventTypeSpec("wishes", True, flights),
            "secrets": EventTypeSpec("secrets", False, {}),
        },
        services={
            "names": ServiceSpec("names", "worker"),
            "prices": ServiceSpec("prices", "worker"),
            "store": ServiceSpec("store", "consumer"),
        },
        roles={
            "names_1": RoleSpec("names_1", "names"),
            "prices_1": RoleSpec("prices_1", "prices"),
            "store_1": RoleSpec("store_1", "store"),
            "store_2": RoleSpec("store_2", "store"),
        },
        profiles={
            "all": ProfileSpec("all", frozenset({"flights", "fares", "notes", "wishes"})),
            "notes only": ProfileSpec("notes only", frozenset({"notes"})),
        },
        emitters={"north": EmitterSpec("north", "all"), "south": EmitterSpec("south", "notes only")},
    )


def add_small_bus(connection: sa.Connection) -> None:
    """Add it in the caller's transaction."""
    plan = make_plan(read_stored(connection), small_bus())
    assert not plan.problems, plan.problems
    apply(connection, plan, NOW)


def memory_engine() -> sa.Engine:
    """A database in memory with the small bus in it."""
    return opened(small_bus_image())


@cache
def small_bus_image() -> bytes:
    """The whole database, made once for all tests that want one of their own."""
    return make_image(add_small_bus)


@contextmanager
def looking(url: str) -> Iterator[sa.Connection]:
    """A connection of one's own, beside those of the journal; it keeps the others from writing while it is open."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


class Scribe:
    """Writes envelopes into a journal, as the front does.

    Args:
        journal: entered.
        catalog: of the database.
    """

    def __init__(self, journal: Journal, catalog: Catalog) -> None:
        self.journal = journal
        self.catalog = catalog

    @classmethod
    async def of(cls, journal: Journal) -> "Scribe":
        return cls(journal, await journal.read(read_catalog))

    def emitter_id(self, login: str = "north") -> int:
        return next(entry.id for entry in self.catalog.emitters.values() if entry.login == login)

    def role_id(self, login: str = "store_1") -> int:
        return next(entry.id for entry in self.catalog.roles.values() if entry.login == login)

    def start_envelope(
        self, ordering_key: str | None = None, idempotency_key: str | None = None, headers: bytes | None = None
    ) -> tuple[uuid.UUID, "asyncio.Future[None]"]:
        envelope_id = uuid.uuid4()
        start = StartEnvelope(envelope_id, self.emitter_id(), NOW, EnvelopeHead(ordering_key, idempotency_key, headers))
        return envelope_id, self.journal.write(start)

    def start_event(
        self, envelope_id: uuid.UUID, number: int = 1, type_name: str = "notes", tags: EventTags = NO_TAGS
    ) -> tuple[uuid.UUID, "asyncio.Future[None]"]:
        event_id = uuid.uuid4()
        event_type = self.catalog.event_types[type_name]
        start = StartEvent(event_id, envelope_id, number, event_type.id, event_type.graph_id, 0, tags)
        return event_id, self.journal.write(start)

    def append(
        self, envelope_id: uuid.UUID, event_id: uuid.UUID, first_index: int, items: Sequence[bytes]
    ) -> "asyncio.Future[None]":
        return self.journal.write(Append(envelope_id, event_id, first_index, len(items), pack_items(items)))

    def end_event(self, envelope_id: uuid.UUID, event_id: uuid.UUID, items: int) -> "asyncio.Future[None]":
        return self.journal.write(EndEvent(envelope_id, event_id, items))

    def seal(
        self, envelope_id: uuid.UUID, events: int, items: int, headers: bytes | None = None
    ) -> "asyncio.Future[SealReceipt]":
        return self.journal.write(Seal(envelope_id, events, items, NOW, headers=headers))

    def seal_of_one_append(self, envelope_id: uuid.UUID, event_id: uuid.UUID, item: bytes) -> Seal:
        """The seal of an envelope that the front has in memory, as its one item came by one append."""
        kind, data = self.catalog.event_types["notes"], pack_items([item])
        of_type = GroupType(kind.id, kind.name, kind.hashed_name, kind.graph_id, False)
        columns = ((envelope_id.bytes,), (event_id.bytes,), (of_type,), (1,), (data,), (PLAIN_HEAD,), (NO_TAGS,))
        content = PutGroup((self.emitter_id(),), NOW, *columns, len(data))
        return Seal(envelope_id, 1, 1, NOW, content=content, is_one_append=True)

    async def put(
        self,
        *events: Sequence[bytes],
        type_name: str = "notes",
        ordering_key: str | None = None,
        headers: bytes | None = None,
        tags: Sequence[EventTags] = (),
    ) -> SealReceipt:
        """A whole envelope, each event with these items, and with its tags where some are given."""
        answers: list[asyncio.Future[Any]] = []
        envelope_id, started = self.start_envelope(ordering_key, headers=headers)
        answers.append(started)
        for number, items in enumerate(events, start=1):
            of_event = tags[number - 1] if tags else NO_TAGS
            event_id, started = self.start_event(envelope_id, number, type_name, of_event)
            answers.append(started)
            if items:
                answers.append(self.append(envelope_id, event_id, 0, items))
            answers.append(self.end_event(envelope_id, event_id, len(items)))
        sealing = self.seal(envelope_id, len(events), sum(map(len, events)), headers)
        # Together, so that no error of one of them is left for the collector to tell of in the midst of another test.
        await asyncio.gather(sealing, *answers)
        return sealing.result()

    async def again(self, origin_id: uuid.UUID, parked_for: Sequence[int] | None = None) -> Repeat:
        """What repeats an envelope; its events go the way that they went."""
        past = await self.journal.read(read_past, origin_id)
        assert past is not None
        events = [
            RepeatedEvent(
                *(uuid.uuid4(), event.segments_id, event.number, event.event_type_id),
                *(event.graph_id, event.estimate, event.items or 0, event.tags),
            )
            for event in past.events
        ]
        return Repeat(uuid.uuid4(), origin_id, events, parked_for, NOW)


async def settle_all(journal: Journal, until: int, now: datetime = NOW) -> None:
    """Have all roles have got all envelopes up to a position."""
    cursors = await journal.read(read_cursors)
    for cursor in cursors.values():
        cursor.settle_range(1, until)
    await journal.write(ProgressUpdate(now, list(cursors.values())))


async def edit_sqlite(journal: Journal, statement: str, *values: object) -> None:
    """Make an edit by hand that SQLite alone takes; on another database the test is skipped."""
    if await journal.read(lambda connection: connection.dialect.name) != "sqlite":
        pytest.skip("PostgreSQL takes no such row")

    def edit(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        assert connection.exec_driver_sql(statement, values).rowcount
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")

    await journal.run(edit)


def change_segments(connection: sa.Connection, event_ids: Iterable[uuid.UUID] | None = None, **values: object) -> int:
    """Change columns of segments, be they in rows of their own or in those of their events.

    Args:
        event_ids: of their events; None for all.
        values: by the names of the columns of ``log_segment``.

    Returns:
        How many were changed.
    """
    segment, event = model.segment.c, model.event.c
    in_event = {{"hash": "data_hash"}.get(name, name): value for name, value in values.items()}
    own, small = sa.update(model.segment).values(**values), sa.update(model.event).values(**in_event)
    small = small.where(event.data.is_not(None))
    if event_ids is not None:
        ids = list(event_ids)
        own, small = own.where(segment.event_id.in_(ids)), small.where(event.id.in_(ids))
    return connection.execute(own).rowcount + connection.execute(small).rowcount


def remove_segments(connection: sa.Connection, event_ids: Iterable[uuid.UUID] | None = None) -> None:
    """Remove segments, and leave their events.

    Args:
        event_ids: of their events; None for all.
    """
    ids = None if event_ids is None else list(event_ids)
    own = sa.delete(model.segment)
    connection.execute(own if ids is None else own.where(model.segment.c.event_id.in_(ids)))
    small = sa.update(model.event).values(data=None, data_hash=None, plain_bytes=None)
    connection.execute(small if ids is None else small.where(model.event.c.id.in_(ids)))


def keep_busy(journal: Journal) -> threading.Event:
    """Keep the writer's thread busy, so that what is written meanwhile becomes one group."""
    begun, release = threading.Event(), threading.Event()

    def wait(_: sa.Connection) -> None:
        begun.set()
        release.wait(DEADLINE_SECONDS)

    journal._writer.run(wait)
    assert begun.wait(DEADLINE_SECONDS)
    return release
