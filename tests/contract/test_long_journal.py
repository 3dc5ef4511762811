"""Questions about a long journal: none of them reads more because much was sent, or because much has failed."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.long_journal import KEY, fill
from tests.support.statement_work import Work, work_for
from tests.support.why import ToldBroker
from xbus import model
from xbus.admin.why.inquiry import Inquiry
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.operations.failures import MOST_COUNTED, GroupFilters, list_groups, show_group
from xbus.states import TrackingState

CORRECTED = TrackingState.CORRECTED

ENVELOPES = 40_000
"""Far more than any bound of what is read."""

MOST_WORK = 2_500.0
"""More than any statement works that looks rows up to a bound, and far less than reading all events would be."""


@pytest.fixture
def long_engine(database_url: str) -> Iterator[sa.Engine]:
    fill(database_url, ENVELOPES, failure_groups=1)
    engine = create_engine(database_url)
    if engine.dialect.name == "postgresql":
        # For it the journal is small enough to be read as a whole rather than by some hundred look-ups.
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("SET enable_seqscan = off"))
    yield engine
    engine.dispose()


def hard(found: list[Work], most: float = MOST_WORK) -> list[Work]:
    """The statements that worked too much."""
    assert found
    return [work for work in found if work.amount > most]


def test_why_reads_no_more_of_a_long_log_than_of_a_short_one(long_engine: sa.Engine) -> None:
    with long_engine.connect() as connection:
        envelope, role = model.envelope.c, model.role.c
        ids = connection.execute(sa.select(envelope.id).where(envelope.position.in_([1, 20_000, ENVELOPES]))).scalars()
        names = [each.hex for each in ids]
        roles = dict(connection.execute(sa.select(role.login, role.id)).all())
        inquiry = Inquiry(lambda read: read(connection), ToldBroker(roles.__getitem__), StandingClock())
        with work_for(long_engine) as found:
            for name in names:
                assert inquiry.by_id(name)
                assert inquiry.by_id(name[:9])
            assert inquiry.by_id("0" * 32)
            assert inquiry.by_key("north", KEY)
            assert inquiry.by_key("north", "unknown")
            for login in roles:
                assert inquiry.role(login)
            for login in ("north", "south"):
                assert inquiry.emitter(login)
    assert hard(found) == []


def test_groups_of_failures_are_counted_up_to_a_bound(long_engine: sa.Engine) -> None:
    with long_engine.connect() as connection:
        with work_for(long_engine) as all_of_them:
            connection.execute(sa.select(sa.func.count(model.failure.c.message)))
        with work_for(long_engine) as found:
            (group,) = list_groups(connection, GroupFilters()).groups
            assert list_groups(connection, GroupFilters(role="store_1", code=group.newest.code)).groups == [group]
            for none in (GroupFilters(role="store_2"), GroupFilters(owner="ada"), GroupFilters(state=CORRECTED)):
                assert list_groups(connection, none).groups == []
            assert list_groups(connection, GroupFilters(), before=group.newest.id).groups == []
            assert show_group(connection, group.fingerprint).group == group
    assert (group.count, group.at_least) == (MOST_COUNTED, True)
    assert hard(found, all_of_them[0].amount) == []
