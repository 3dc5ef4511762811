"""A chained type in the world: a node behind the worker of flights emits them as copies, which go to the stores."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from tests.simulation.emitters import Plan
from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.configuration import BusSpec, EventTypeSpec, NodeSpec, apply, make_plan, read_stored
from xbus.ids import numbered_event_id

SOURCE = "flights"
COPIES = "copies"
STAMP = b"*"


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


def made_once(connection: sa.Connection, plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The envelopes that the node sealed, as they have to be, by that of which each was made.

    Raises:
        AssertionError: one was made twice, or of an envelope that was cancelled.
    """
    row = model.envelope.c
    sealed = sa.select(row.id, row.idempotency_key).where(row.position.is_not(None), row.idempotency_key.in_(plans))
    found: dict[str, Plan] = {}
    for envelope_id, source_id in connection.execute(sealed):
        source = plans[source_id]
        assert source_id not in found, f"made twice of {source_id}"
        assert not source.is_cancelled, f"made of {source_id}, which was cancelled"
        sent = [items for _, name, items in source.events if name == SOURCE and items]
        events = tuple(
            (numbered_event_id(envelope_id, number), COPIES, tuple(item + STAMP for item in items))
            for number, items in enumerate(sent, 1)
        )
        found[source_id] = Plan(envelope_id, events, source.ordering_key, in_one_call=False)
    return found


def lacking(connection: sa.Connection, plans: Mapping[str, Plan], received: Sequence[str]) -> list[tuple[str, str]]:
    """The envelopes of which nothing was made yet; of events without items nothing is."""
    found = made_once(connection, plans)
    sources = [n for n in received if any(name == SOURCE and items for _, name, items in plans[n].events)]
    return [(COPIES, name) for name in sources if name not in found]
