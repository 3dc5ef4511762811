"""The lease of the brokers of one journal on PostgreSQL."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from tests.support.waiting import wait_until
from tests.torture.proxy import Proxy
from xbus import model
from xbus.broker.journal.database.connection import connected
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.leadership import (
    BrokerPlace,
    Looked,
    find_successor,
    give_back,
    hand_over,
    read_brokers,
    renew,
    take,
)
from xbus.broker.journal.operations import losses
from xbus.broker.journal.operations.losses import Loss
from xbus.broker.leading import Lease
from xbus.clock import SystemClock
from xbus.config import Config
from xbus.config.sections import BrokerSettings, DatabaseSettings
from xbus.errors import JournalUnavailable, Refused, SchemaError

A, B, C = (
    BrokerPlace(name, f"tcp://{name}:1984", f"tcp://{name}:4891", "0.3.0", f"process 1 on {name}") for name in "abc"
)
LONG, SHORT = 1000.0, 0.05


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    made = create_engine(postgres_url)
    yield made
    made.dispose()


Told = tuple[int | None, BrokerPlace | None]
"""By which epoch a broker leads, and which one leads in its place."""


def told(looked: Looked) -> Told:
    return looked.epoch, looked.leader if looked.epoch is None else None


def look(engine: sa.Engine, broker: BrokerPlace, seconds: float = LONG, *, at_once: bool = False) -> Told:
    with engine.begin() as connection:
        return told(take(connection, broker, seconds, at_once))


def renewed(engine: sa.Engine, broker: BrokerPlace, epoch: int) -> Told:
    with engine.begin() as connection:
        return told(renew(connection, broker, epoch, LONG))


def leads(engine: sa.Engine) -> bool:
    """Whether any broker leads."""
    with engine.begin() as connection:
        return any(known.leads for known in read_brokers(connection))


def test_one_leads_and_others_are_told_who(engine: sa.Engine) -> None:
    assert look(engine, A) == (1, None)
    assert look(engine, B) == (None, A)
    assert renewed(engine, A, 1) == (1, None)
    with engine.begin() as connection:
        leader, other = read_brokers(connection)
    assert (leader.place, leader.epoch, other.place, other.epoch, other.lasts) == (A, 1, B, None, None)
    assert leader.lasts is not None
    assert 0 <= leader.looked < LONG / 2 < leader.lasts <= LONG


def test_a_lease_that_is_over_is_taken_and_its_holder_learns_that(engine: sa.Engine) -> None:
    look(engine, A, SHORT)
    wait_until(lambda: not leads(engine), "the lease is over")
    assert look(engine, B) == (2, None)
    assert renewed(engine, A, 1) == (None, B)


def test_a_lease_that_was_given_back_is_free(engine: sa.Engine) -> None:
    look(engine, A)
    with engine.begin() as connection:
        give_back(connection, B, 1)
    assert look(engine, B) == (None, A)
    with engine.begin() as connection:
        give_back(connection, A, 1)
    assert look(engine, B) == (2, None)


def test_who_takes_it_at_once_ends_the_leader(engine: sa.Engine) -> None:
    look(engine, A)
    assert look(engine, B, at_once=True) == (2, None)
    assert renewed(engine, A, 1) == (None, B)


@pytest.mark.parametrize("row", ["older", "missing"])
def test_a_leader_leads_on_where_the_database_went_back(engine: sa.Engine, row: str) -> None:
    """Whether it may write is up to the table of writers, which tells of what was lost."""
    look(engine, B)
    look(engine, A, at_once=True)
    with engine.begin() as connection:
        connection.execute(
            sa.delete(model.lease) if row == "missing" else sa.update(model.lease).values(broker="b", epoch=1)
        )
    epoch, leader = renewed(engine, A, 2)
    assert (epoch is not None, leader) == (True, None)
    assert look(engine, B) == (None, A)


def test_nobody_waits_for_a_process_that_is_frozen_amid_a_renewal(engine: sa.Engine, postgres_url: str) -> None:
    look(engine, A)
    with connected(postgres_url) as frozen, frozen.begin():
        frozen.execute(sa.select(model.lease).with_for_update())
        # One that only looks needs no lock.
        assert look(engine, B) == (None, A)
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"), engine.begin() as connection:
            renew(connection, A, 1, LONG)


def test_brokers_that_are_gone_for_a_day_are_forgotten(engine: sa.Engine) -> None:
    look(engine, A)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE broker SET looked_at = looked_at - interval '25 hours'"))
        assert [known.is_gone for known in read_brokers(connection)] == [True]
    look(engine, B, at_once=True)
    with engine.begin() as connection:
        assert [known.place for known in read_brokers(connection)] == [B]


def test_an_operator_chooses_who_leads_next(engine: sa.Engine) -> None:
    with engine.begin() as connection, pytest.raises(Refused, match="no broker leads") as caught:
        find_successor(connection, None)
    assert caught.value.code == "nobody_leads"
    look(engine, A)
    for name in None, "a", "c":
        with engine.begin() as connection, pytest.raises(Refused) as caught:
            find_successor(connection, name)
        assert caught.value.code == "nobody_stands_by"
    look(engine, B)
    look(engine, C)
    with engine.begin() as connection:
        assert find_successor(connection, "c") == C
        hand_over(connection, C)
        assert renew(connection, A, 1, LONG).brokers[0].successor == "c"
        give_back(connection, A, 1)
    assert look(engine, A) == look(engine, B) == (None, None)
    assert look(engine, C) == (2, None)
    with engine.begin() as connection:
        give_back(connection, C, 2)
    assert look(engine, A) == (3, None)


def test_one_that_was_to_lead_next_and_is_gone_is_waited_for_no_longer(engine: sa.Engine) -> None:
    look(engine, A)
    look(engine, B)
    with engine.begin() as connection:
        hand_over(connection, find_successor(connection, None))
        give_back(connection, A, 1)
        connection.execute(sa.text("UPDATE broker SET looked_at = looked_at - interval '4 seconds'"))
    assert look(engine, A) == (2, None)


def test_one_that_can_not_use_the_tables_does_not_lead(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    assert look(engine, A) == (1, None), "a later version that only adds"
    with engine.begin() as connection:
        connection.execute(sa.update(model.configuration).values(oldest_schema="9999"))
    assert look(engine, B) == (None, A), "it may stand by"
    with engine.begin() as connection:
        give_back(connection, A, 1)
    with pytest.raises(SchemaError, match="this program is older than the database"):
        look(engine, B)
    assert not leads(engine)


def test_a_row_that_was_edited_by_hand_costs_its_holder_the_lease(engine: sa.Engine) -> None:
    look(engine, A)
    look(engine, B)
    with engine.begin() as connection:
        connection.execute(
            sa.update(model.lease).values(broker="nobody", epoch=7, until=datetime(2026, 1, 1, tzinfo=UTC))
        )
    assert renewed(engine, A, 1) == (None, None)
    assert look(engine, B) == (8, None)
    with engine.begin() as connection:
        connection.execute(sa.delete(model.lease))
        connection.execute(sa.delete(model.broker))
    assert renewed(engine, B, 8) == (1, None), "as where the database went back"


ADDRESSES = {"front": "tcp://here:1984", "back": "tcp://here:4891"}


def lease_of(url: str, seconds: float = LONG) -> Lease:
    return Lease(Config(database=DatabaseSettings(url), broker=BrokerSettings(lease=seconds)))


@pytest.mark.parametrize("is_told", [False, True])
async def test_one_that_leads_next_notes_what_the_journal_lost_meanwhile(
    engine: sa.Engine, postgres_url: str, is_told: bool
) -> None:
    """As in a fail-over, behind which the leader may end without having seen the journal."""
    with engine.begin() as connection:
        connection.execute(sa.update(model.head).values(position=10))
        connection.execute(sa.insert(model.writer).values(name="broker", epoch=1, group_number=7, stored_bytes=0))
    look(engine, A)
    lease = lease_of(postgres_url)
    try:
        assert await lease.take(ADDRESSES, at_once=False) == A
        with engine.begin() as connection:
            connection.execute(sa.update(model.head).values(position=4))
            connection.execute(sa.update(model.writer).values(group_number=5))
            if is_told:
                losses.add(connection, Loss(SystemClock().now(), "broker", 3, 11, 4))
            give_back(connection, A, 1)
        assert await lease.take(ADDRESSES, at_once=False) is None
        assert lease.leads
    finally:
        lease.close()
    with engine.begin() as connection:
        found = [(each.commits, each.known, each.found) for each in losses.read(connection)]
    assert found == [(3, 11, 4) if is_told else (2, 10, 4)]


async def test_a_database_that_answers_no_more_is_left(engine: sa.Engine, postgres_url: str) -> None:
    """As one whose process is frozen: its machine keeps the connection."""
    place = make_url(postgres_url)
    proxy = Proxy(place.port or 5432)
    await proxy.start()
    through = place.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    lease = lease_of(through, 0.5)
    look(engine, A)
    try:
        assert await lease.take(ADDRESSES, at_once=False) == A
        proxy.hold()
        with pytest.raises(JournalUnavailable):
            await lease.take(ADDRESSES, at_once=False)
        proxy.mend()
        assert await lease.take(ADDRESSES, at_once=False) == A
    finally:
        lease.close()
        await proxy.close()
