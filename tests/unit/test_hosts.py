"""Addresses of databases with several servers."""

import pytest
from sqlalchemy import event

from xbus.broker.journal.database.engine import create_engine
from xbus.config.hosts import with_hosts_apart
from xbus.config.values import database, without_password, without_secrets


@pytest.mark.parametrize(
    ("written", "host", "port", "kind"),
    [
        ("postgresql://me:pw@h1:5432,h2:5433/bus", "h1,h2", "5432,5433", "read-write"),
        ("postgres://h1,h2:5433", "h1,h2", ",5433", "read-write"),
        ("postgresql://[::1]:5432,[fe80::2]/bus", "::1,fe80::2", "5432,", "read-write"),
        ("postgresql+psycopg2://h1,h2/bus?target_session_attrs=primary", "h1,h2", ",", "primary"),
        ("postgresql://me@/bus?host=h1:1&host=h2:2", "h1,h2", "1,2", "read-write"),
        ("postgresql://me@h1:5432/bus", "h1", 5432, None),
    ],
)
def test_libpq_gets_all_servers_and_looks_for_the_one_that_writes(
    written: str, host: str, port: object, kind: str | None
) -> None:
    engine = create_engine(database(written))
    _, arguments = engine.dialect.create_connect_args(engine.url)
    asked: dict[str, object] = {}

    @event.listens_for(engine, "do_connect")
    def note(dialect: object, record: object, args: object, parameters: dict[str, object]) -> None:
        asked.update(parameters)
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        engine.connect()
    assert (asked["host"], asked.get("port"), asked.get("target_session_attrs")) == (host, port, kind)
    assert arguments["host"] == host


@pytest.mark.parametrize("written", ["postgresql://h1:x,h2/bus", "postgresql://h1:0,h2/bus", "postgresql://a,::1/bus"])
def test_a_wrong_server_among_several_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"where a (host|port) belongs"):
        database(written)


def test_an_address_of_one_server_stays() -> None:
    for address in ("sqlite:///a,b.db", "postgresql://me:a,b@host/bus", "postgresql://host/a,b"):
        assert with_hosts_apart(address) == address


def test_passwords_stay_hidden() -> None:
    written = database("postgresql://me:secret@h1:5432,h2:5433/bus")
    assert without_secrets(written) == "postgresql+psycopg2://me:***@h1:5432,h2:5433/bus"
    assert without_password(written) == "postgresql+psycopg2://me@h1:5432,h2:5433/bus"
