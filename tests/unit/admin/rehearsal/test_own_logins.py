"""What the bus itself writes, in thought: by nodes that emit and by bots."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.support.journal import memory_engine, small_bus
from xbus.admin.rehearsal import may_send, own_logins, with_own
from xbus.broker.journal.configuration import EventTypeSpec, NodeSpec, apply, make_plan, read_stored
from xbus.broker.journal.configuration.entries import BotSpec, ServiceSpec
from xbus.clock import SystemClock

CHAINED = EventTypeSpec("orders", False, {"made": NodeSpec("made", "", emits=("notes",))})
BUS = replace(
    small_bus(),
    event_types={**small_bus().event_types, "orders": CHAINED},
    services={**small_bus().services, "runners": ServiceSpec("runners", "runner")},
    bots={"report": BotSpec("report", call="reports:nightly", emits=frozenset({"notes"}))},
)


def test_a_bot_and_a_node_may_send_what_they_emit() -> None:
    whole = with_own(BUS)
    assert may_send(whole, "bot/report", "notes")
    assert may_send(whole, "orders/made", "notes")
    assert not may_send(whole, "bot/report", "flights")


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = memory_engine()
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def test_logins_of_the_bus_follow_renames(connection: sa.Connection) -> None:
    plan = make_plan(read_stored(connection), BUS)
    assert [*plan.problems] == []
    apply(connection, plan, SystemClock().now())
    renamed = replace(
        BUS,
        event_types={
            **{name: each for name, each in BUS.event_types.items() if name != "orders"},
            "sales": replace(CHAINED, name="sales", renamed_from="orders"),
        },
        bots={"summary": replace(BUS.bots["report"], name="summary", renamed_from="report")},
    )
    plan = make_plan(read_stored(connection), renamed)
    assert [*plan.problems] == []
    assert own_logins(plan) == {"orders/made": "sales/made", "bot/report": "bot/summary"}
