"""A transaction straight at the driver is begun, committed and rolled back on both databases."""

import io
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import psycopg2
import pytest
import sqlalchemy as sa
from psycopg2 import extensions

from tests.support.postgres import noting_cursor
from xbus.broker.journal.database.engine import DriverTransaction, create_engine, driver_of

MOVE = "UPDATE head SET position = position + 1 RETURNING position"

Session: TypeAlias = tuple[sa.Connection, Any]
"""A connection of SQLAlchemy and that of its driver."""


def session_of(url: str) -> Iterator[Session]:
    engine = create_engine(url)
    with engine.connect() as connection:
        yield connection, driver_of(connection)
    engine.dispose()


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    yield from session_of(database_url)


@pytest.fixture
def of_postgres(postgres_url: str) -> Iterator[Session]:
    yield from session_of(postgres_url)


def moved(driver: Any) -> Any:
    cursor = driver.cursor()
    cursor.execute(MOVE)
    return cursor.fetchall()[0][0]


def position(connection: sa.Connection) -> Any:
    with connection.begin():
        return connection.scalar(sa.text("SELECT position FROM head"))


def test_what_is_committed_stays_and_what_is_rolled_back_does_not(session: Session) -> None:
    connection, driver = session
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == 1
    transaction.commit()
    transaction = DriverTransaction(connection, driver)
    assert [moved(driver), moved(driver)] == [2, 3]
    transaction.rollback()
    assert position(connection) == 1


def test_one_without_a_statement_changes_nothing(session: Session) -> None:
    connection, driver = session
    DriverTransaction(connection, driver).commit()
    DriverTransaction(connection, driver).rollback()
    assert position(connection) == 0


def test_one_begins_at_postgresql_in_the_message_of_its_first_statement(of_postgres: Session) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    assert driver.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE
    assert moved(driver) == 1
    assert driver.info.transaction_status == extensions.TRANSACTION_STATUS_INTRANS
    transaction.commit()
    assert driver.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE


@pytest.mark.parametrize("divisor", [1, 0])
def test_a_guard_shares_the_message_of_the_commit_and_decides(of_postgres: Session, divisor: int) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == 1
    driver.guard = "SELECT 1 / %s", [divisor]
    if divisor:
        transaction.commit()
    else:
        with pytest.raises(psycopg2.errors.DivisionByZero):
            transaction.commit()
        transaction.rollback()
    assert driver.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE
    assert position(connection) == divisor
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == divisor + 1
    transaction.commit()
    assert position(connection) == divisor + 1


TAKEN = "INSERT INTO taken VALUES (%s)"


class IdTaken(Exception):
    """What a caller makes of the error of its rows."""


def refuse(error: psycopg2.IntegrityError) -> None:
    raise IdTaken from error


@pytest.fixture
def taken(of_postgres: Session) -> Callable[[], list[int]]:
    """A table that holds a number once, with a 1; gives what it holds."""
    connection, _ = of_postgres
    with connection.begin():
        connection.execute(sa.text("CREATE TABLE taken (number integer PRIMARY KEY)"))
        connection.execute(sa.text("INSERT INTO taken VALUES (1)"))

    def numbers() -> list[int]:
        with connection.begin():
            return [*connection.scalars(sa.text("SELECT number FROM taken ORDER BY number"))]

    return numbers


def test_the_last_statements_share_the_message_of_the_commit(
    of_postgres: Session, taken: Callable[[], list[int]]
) -> None:
    connection, driver = of_postgres
    sent: list[str] = []
    driver.cursor_factory = noting_cursor(sent)
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    driver.end_with(f"{TAKEN}; {TAKEN}", [2, 3], refuse)
    driver.guard = "SELECT 1 / %s", [1]
    transaction.commit()
    assert sent == [MOVE, f"SELECT 1 / %s; {TAKEN}; {TAKEN}; COMMIT"]
    assert (taken(), position(connection)) == ([1, 2, 3], 1)


def test_one_whose_last_statements_break_a_rule_is_refused_as_a_whole(
    of_postgres: Session, taken: Callable[[], list[int]]
) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    driver.end_with(f"{TAKEN}; {TAKEN}", [2, 1], refuse)
    with pytest.raises(IdTaken):
        transaction.commit()
    transaction.rollback()
    assert (taken(), position(connection)) == ([1], 0)
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == 1
    transaction.commit()
    assert (taken(), position(connection)) == ([1], 1)


def test_one_whose_last_values_the_driver_cannot_write_is_rolled_back(of_postgres: Session) -> None:
    connection, driver = of_postgres
    with connection.begin():
        connection.execute(sa.text("CREATE TABLE texts (text text)"))
    driver.set_client_encoding("LATIN1")
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    driver.end_with("INSERT INTO texts VALUES (%s)", ["日本"], refuse)
    with pytest.raises(ValueError, match="codec can't encode"):
        transaction.commit()
    transaction.rollback()
    assert driver.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == 1
    transaction.commit()
    assert position(connection) == 1


def test_a_guard_speaks_before_the_last_statements(of_postgres: Session, taken: Callable[[], list[int]]) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    driver.end_with(TAKEN, [1], refuse)
    driver.guard = "SELECT 1 / %s", [0]
    with pytest.raises(psycopg2.errors.DivisionByZero):
        transaction.commit()
    transaction.rollback()
    assert (taken(), position(connection)) == ([1], 0)


def test_what_a_transaction_was_to_end_with_goes_with_it(of_postgres: Session, taken: Callable[[], list[int]]) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    driver.end_with(TAKEN, [2], refuse)
    transaction.rollback()
    transaction = DriverTransaction(connection, driver)
    moved(driver)
    transaction.commit()
    assert taken() == [1]


def test_one_that_copies_first_is_rolled_back(of_postgres: Session) -> None:
    connection, driver = of_postgres
    with connection.begin():
        connection.execute(sa.text("CREATE TABLE copied (number integer)"))
    transaction = DriverTransaction(connection, driver)
    driver.cursor().copy_expert("COPY copied FROM STDIN", io.StringIO("1\n2\n"))
    transaction.rollback()
    with connection.begin():
        assert connection.scalar(sa.text("SELECT count(*) FROM copied")) == 0


def test_one_whose_first_statement_fails_leaves_the_session_usable(of_postgres: Session) -> None:
    connection, driver = of_postgres
    transaction = DriverTransaction(connection, driver)
    with pytest.raises(psycopg2.ProgrammingError):
        driver.cursor().execute("UPDATE no_table SET position = 1")
    transaction.rollback()
    assert position(connection) == 0
    transaction = DriverTransaction(connection, driver)
    assert moved(driver) == 1
    transaction.commit()
    assert position(connection) == 1
