"""The old database is found by its address, and nothing is written to it."""

import pytest
import sqlalchemy as sa
from psycopg2.extensions import parse_dsn

from tests.support.legacy import OldDatabase
from xbus.broker.journal.legacy_import import read_legacy
from xbus.broker.journal.legacy_import.reading import reading_legacy
from xbus.broker.journal.legacy_import.rows import OldBus
from xbus.errors import ConfigurationError, JournalUnavailable, XbusError

NOBODY_HOME = "127.0.0.1:1"


def test_nothing_can_be_written(old: OldDatabase) -> None:
    with reading_legacy(old.address) as connection:
        for setting in ("transaction_read_only", "default_transaction_read_only"):
            assert connection.exec_driver_sql(f"SHOW {setting}").scalar_one() == "on"
    with pytest.raises(ConfigurationError, match="read-only transaction"), reading_legacy(old.address) as connection:
        connection.execute(sa.text("DELETE FROM service"))


def test_nothing_can_be_written_by_a_later_transaction_either(old: OldDatabase) -> None:
    with pytest.raises(ConfigurationError, match="read-only transaction"), reading_legacy(old.address) as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("CREATE TABLE new_one ()")


def test_all_forms_of_the_address_lead_there(old: OldDatabase) -> None:
    _, _, rest = old.address.partition("://")
    keywords = " ".join(f"{key}={value}" for key, value in parse_dsn(old.address).items())
    for address in (f"postgresql+psycopg2://{rest}", f"postgres://{rest}?application_name=moving", keywords):
        assert read_legacy(address) == read_legacy(old.address)


def test_a_percent_sign_that_was_doubled_for_the_old_configuration_file_is_one(old: OldDatabase) -> None:
    with reading_legacy(f"{old.address}?application_name=a%%20b") as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar_one() == "a b"


def test_an_empty_one_is_read(old: OldDatabase) -> None:
    assert read_legacy(old.address) == OldBus(without_counterpart={"description": 0})


@pytest.mark.parametrize(
    ("address", "error", "told"),
    [
        ("sqlite:///old.db", ConfigurationError, "not one of PostgreSQL"),
        ("old.db", ConfigurationError, "can't be read"),
        ("postgresql://xbus:S3CRET@host:S3CRET/name", ConfigurationError, "can't be read"),
        ("postgresql://xbus:S3@CRET@host/S3CRET", ConfigurationError, "write an @ of the password as %40"),
        ("postgresql://host/name password=S3CRET", ConfigurationError, "can't be read"),
        ("host=127.0.0.1 password=a S3CRET", ConfigurationError, "can't be read"),
        ("postgresql://h/name?S3CRETS=1", ConfigurationError, "invalid connection option"),
        (f"postgresql://xbus:S3CRET@{NOBODY_HOME}/name", JournalUnavailable, "can't be reached"),
        ("host=127.0.0.1 port=1 password=S3CRET", JournalUnavailable, "can't be reached"),
    ],
)
def test_what_is_wrong_with_an_address_is_told_without_its_password(
    address: str, error: type[XbusError], told: str
) -> None:
    with pytest.raises(error, match=told) as caught:
        read_legacy(address)
    shown = str(caught.value).replace("S3CRETS", "")
    assert "S3CRET" not in shown
    assert "CRET" not in shown
    assert caught.value.next_step
    # What a traceback would show.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_wrong_password_is_told_without_it(old: OldDatabase) -> None:
    password = parse_dsn(old.address)["password"]
    with pytest.raises(JournalUnavailable, match="password authentication failed") as caught:
        read_legacy(old.address.replace(password, "S3CRET"))
    assert "S3CRET" not in str(caught.value)


def test_another_database_is_told_apart(old: OldDatabase, postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"it has no service.is_consumer, .* and \d+ more") as caught:
        read_legacy(postgres_url)
    assert caught.value.code == "not_legacy"
    old.execute("ALTER TABLE event_type DROP COLUMN immediate_reply")
    with pytest.raises(ConfigurationError, match=r"\(it has no event_type.immediate_reply\)"):
        read_legacy(old.address)


def test_tables_that_may_not_be_read_are_told(old: OldDatabase) -> None:
    name = f"reader_{parse_dsn(old.address)['dbname']}"
    old.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    parameters = {**parse_dsn(old.address), "user": name, "password": "p"}
    try:
        with pytest.raises(ConfigurationError, match="permission denied for table"):
            read_legacy(" ".join(f"{key}={value}" for key, value in parameters.items()))
    finally:
        old.execute(f"DROP ROLE {name}")
