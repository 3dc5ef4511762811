"""A chained type in the world: a node behind the worker of flights emits them as copies, which go to the stores."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import sqlalchemy as sa

from tests.simulation.emitters import Plan
from tests.simulation.operators import Repaired
from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, NodeSpec, apply, make_plan, read_stored
from xbus.broker.journal.log.reading import read_segments
from xbus.ids import numbered_event_id
from xbus.rpc.codec import unpack_items

SOURCE = "flights"
COPIES = "copies"
STAMP = b"*"
ROLE = f"{SOURCE}/{COPIES}"
MOST_BYTES = 2**20


def chain(connection: sa.Connection) -> None:
    """Have what the worker makes of flights go on as copies, too."""
    nodes = {
        "names": NodeSpec("names", "names", ("store", COPIES)),
        "store": NodeSpec("store", "store"),
        COPIES: NodeSpec(COPIES, "", (), (COPIES,)),
    }
    types = {
        SOURCE: EventTypeSpec(SOURCE, False, nodes),
        COPIES: EventTypeSpec(COPIES, False, {"store": NodeSpec("store", "store")}),
    }
    plan = make_plan(read_stored(connection), BusSpec(event_types=types))
    assert not plan.problems, plan.problems
    apply(connection, plan, NOW)


def made_once(connection: sa.Connection, plans: Mapping[str, Plan], done: Repaired) -> dict[str, Plan]:
    """The envelopes that the node sealed, as they have to be, by that of which each was made.

    Args:
        plans: of those that emitters sent.
        done: what operators did: a copy has an item as it was sent, or as somebody has corrected it.

    Raises:
        AssertionError: one was made twice, of an envelope that was cancelled, or with other items.
    """
    row = model.envelope.c
    sealed = sa.select(row.id, row.idempotency_key).where(row.position.is_not(None), row.idempotency_key.in_(plans))
    found: dict[str, Plan] = {}
    for envelope_id, source_id in connection.execute(sealed).all():
        source = plans[source_id]
        assert source_id not in found, f"made twice of {source_id}"
        assert not source.is_cancelled, f"made of {source_id}, which was cancelled"
        sent = [(event_id, items) for event_id, name, items in source.events if name == SOURCE and items]
        events = tuple(
            (made_id, COPIES, _copied(connection, made_id, source_event, items, done))
            for number, (source_event, items) in enumerate(sent, 1)
            for made_id in [numbered_event_id(envelope_id, number)]
        )
        found[source_id] = Plan(envelope_id, events, source.ordering_key, in_one_call=False)
    return found


def _copied(
    connection: sa.Connection, made_id: UUID, source_event: UUID, items: Sequence[bytes], done: Repaired
) -> tuple[bytes, ...]:
    """Give the items of a made event, of which each is one that it may be."""
    made = tuple(
        item
        for segment in read_segments(connection, made_id, 0, MOST_BYTES)
        for item in unpack_items(segment.data, segment.items)
    )
    for index, (sent, copy) in enumerate(zip(items, made, strict=True)):
        corrected = done.corrected.get((str(source_event), index), ())
        versions = {sent, *(each.data for each in corrected if each.login in (None, ROLE))}
        assert copy in {version + STAMP for version in versions}, f"copied {copy!r} in the place of {versions}"
    return made


def lacking(
    connection: sa.Connection, plans: Mapping[str, Plan], received: Sequence[str], done: Repaired
) -> list[tuple[str, str]]:
    """The envelopes of which nothing was made yet; of events without items nothing is, nor of what was dropped."""
    found = made_once(connection, plans, done)
    sources = [n for n in received if any(name == SOURCE and items for _, name, items in plans[n].events)]
    return [(COPIES, name) for name in sources if name not in found and (ROLE, name) not in done.dropped]
