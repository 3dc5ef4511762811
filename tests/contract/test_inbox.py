"""The inbox of a recipient, in each kind of database that it may have."""

import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.support.clock import StandingClock
from xbus.recipient.inbox import Inbox

DAY = 86_400.0
ONE, OTHER = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def own(empty_database_url: str) -> Iterator[sa.Engine]:
    """The database of the recipient."""
    engine = sa.create_engine(empty_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def inbox(own: sa.Engine, clock: StandingClock) -> Inbox:
    inbox = Inbox("clients", keep_days=30, clock=clock)
    inbox.create(own)
    inbox.create(own)
    return inbox


def test_an_envelope_is_new_once(own: sa.Engine, inbox: Inbox) -> None:
    with own.begin() as connection:
        assert inbox.is_new(connection, ONE)
        assert inbox.note(connection, ONE)
    with Session(own) as session, session.begin():
        assert not inbox.note(session, ONE)
        assert not inbox.is_new(session, ONE)
        assert inbox.note(session, OTHER)


def test_what_is_rolled_back_was_not_noted(own: sa.Engine, inbox: Inbox) -> None:
    with own.connect() as connection:
        inbox.note(connection, ONE)
        connection.rollback()
    with own.begin() as connection:
        assert inbox.note(connection, ONE)


def test_each_consumer_has_its_own(own: sa.Engine, inbox: Inbox) -> None:
    with own.begin() as connection:
        assert inbox.note(connection, ONE)
        assert Inbox("others").note(connection, ONE)


def test_what_is_old_is_removed(own: sa.Engine, inbox: Inbox, clock: StandingClock) -> None:
    with own.begin() as connection:
        inbox.note(connection, ONE)
        clock.go_on(31 * DAY)
        inbox.note(connection, OTHER)
        assert inbox.is_new(connection, ONE)
        assert not inbox.is_new(connection, OTHER)
