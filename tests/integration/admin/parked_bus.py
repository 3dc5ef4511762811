"""A journal with envelopes that are parked, for the commands that repair."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, insert, select, update

from tests.integration.admin.conftest import NOON, Xbus
from tests.support.filled import IMAGES
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
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.model import cursor, delivery, envelope, event, failure, head, parked_item, segment
from xbus.rpc.codec import pack, pack_items

NAMELESS = pack({"number": 4})
CLIENTS = [pack({"name": "ada", "number": 1}), NAMELESS, b'{"name": "lin"}', b"\xff\x00\xfe", b"EDI+1", pack(7)]


@dataclass(frozen=True)
class ParkedBus:
    """Ids of envelopes, oldest first; all are of two consumers, ``store_1`` and ``counter_1``.

    ``both`` holds :data:`CLIENTS` and a second event, of notes, and is parked for both roles. Of ``alone`` the items
    1 and 3 are parked alone for ``counter_1``. ``done`` has gone through.
    """

    both: UUID
    alone: UUID
    done: UUID
    url: str

    def event_id(self, envelope_id: UUID, number: int = 1) -> UUID:
        return event_id(envelope_id, number)


def event_id(envelope_id: UUID, number: int) -> UUID:
    return UUID(int=envelope_id.int + (number << 40))


def make_parked_bus(url: str) -> ParkedBus:
    """Put it into an empty database."""
    both, alone, done = (UUID(int=(0x0190 << 112) + (7 << 76) + (2 << 62) + (number << 84)) for number in (1, 2, 3))
    IMAGES.fill(url, "parked", lambda: _write_parked_bus(url, both, alone, done))
    return ParkedBus(both, alone, done, url)


def _write_parked_bus(url: str, both: UUID, alone: UUID, done: UUID) -> None:
    with writing(url) as connection:
        _configure(connection)
        roles = {entry.login: entry.id for entry in read_catalog(connection).roles.values()}
        _envelope(connection, both, 1, [("clients", CLIENTS), ("notes", [b"n"])])
        _envelope(connection, alone, 2, [("clients", CLIENTS)])
        _envelope(connection, done, 3, [("clients", [b"x"])])
        connection.execute(update(head).values(position=3))
        connection.execute(update(cursor).values(position=3))
        for minutes, login in enumerate(("store_1", "counter_1")):
            connection.execute(
                insert(delivery).values(
                    role_id=roles[login],
                    envelope_id=both,
                    position=1,
                    state="parked",
                    attempts=5,
                    code="refused" if login == "counter_1" else "timed_out",
                    cause="send_item: no name",
                    changed_at=NOON + timedelta(minutes=minutes),
                )
            )
        connection.execute(
            insert(failure).values(
                at=NOON,
                envelope_id=both,
                event_id=event_id(both, 1),
                role_id=roles["counter_1"],
                node="count",
                verb="send_item",
                code="refused",
                message="no name",
                indices=[1, 99],
                fingerprint=fingerprint(roles["counter_1"], "refused", "no name"),
            )
        )
        for index in (1, 3):
            connection.execute(
                insert(parked_item).values(
                    role_id=roles["counter_1"],
                    event_id=event_id(alone, 1),
                    item_index=index,
                    envelope_id=alone,
                    state="parked",
                    code="refused",
                    cause=f"item {index} is bad",
                    changed_at=NOON + timedelta(minutes=5),
                )
            )


def told(xbus: Xbus, *arguments: str | Path) -> list[str]:
    """What a command that goes well says."""
    result = xbus("parked", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def refused(xbus: Xbus, *arguments: str | Path) -> str:
    """What a command says that refuses."""
    result = xbus("parked", *arguments)
    assert result.exit_code == 1, result.output
    return result.stderr.strip()


def _configure(connection: Connection) -> None:
    nodes = {"store": NodeSpec("store", "store"), "count": NodeSpec("count", "counter")}
    bus = BusSpec(
        event_types={name: EventTypeSpec(name, False, nodes) for name in ("clients", "notes")},
        services={name: ServiceSpec(name, "consumer") for name in ("store", "counter")},
        roles={"store_1": RoleSpec("store_1", "store"), "counter_1": RoleSpec("counter_1", "counter")},
        profiles={"shop": ProfileSpec("shop", frozenset({"clients", "notes"}))},
        emitters={"shop_1": EmitterSpec("shop_1", "shop")},
    )
    apply(connection, make_plan(read_stored(connection), bus), NOON)


def _envelope(
    connection: Connection, envelope_id: UUID, position: int, events: Sequence[tuple[str, Sequence[bytes]]]
) -> None:
    catalog = read_catalog(connection)
    (emitter_id,) = catalog.emitters
    items = sum(len(items) for _, items in events)
    connection.execute(
        insert(envelope).values(
            id=envelope_id,
            emitter_id=emitter_id,
            state="received",
            opened_at=NOON,
            closed_at=NOON,
            position=position,
            events=len(events),
            items=items,
            bytes=sum(len(pack_items(list(items))) for _, items in events),
            hash=b"\x01" * 32,
            ordering_key="a key",
        )
    )
    for number, (type_name, data) in enumerate(events, 1):
        own_id = event_id(envelope_id, number)
        connection.execute(
            insert(event).values(
                id=own_id,
                envelope_id=envelope_id,
                number=number,
                event_type_id=catalog.event_types[type_name].id,
                graph_id=catalog.event_types[type_name].graph_id,
                estimate=0,
                items=len(data),
            )
        )
        # In two segments, where there is enough for two.
        for first in sorted({0, min(2, len(data) - 1)}):
            run = list(data[first:] if first or len(data) < 3 else data[:2])
            packed = pack_items(run)
            connection.execute(
                insert(segment).values(
                    event_id=own_id,
                    first_index=first,
                    items=len(run),
                    data=packed,
                    hash=hashlib.sha256(packed).digest(),
                )
            )


def rows_of(url: str, *columns: object, **named: object) -> list[tuple[object, ...]]:
    """Rows of some columns, in order."""
    with writing(url) as connection:
        return [tuple(row) for row in connection.execute(select(*columns).order_by(*columns))]  # type: ignore[call-overload]
