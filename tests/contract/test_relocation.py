"""A journal moves into an empty database of either kind, with every row, and goes on there."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support import postgres
from tests.support.all_tables import fill_all_tables
from tests.support.journal import NOW, Scribe, add_small_bus, looking
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.database.table_rows import TableRow, read_contents, write_rows
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.operations import relocation
from xbus.errors import ConfigurationError, JournalError, SchemaError


@pytest.fixture(params=["sqlite", "postgresql"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables; the test runs once for each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.create_empty()
    yield url
    server.drop(url)


def move(source: str, target: str) -> dict[str, int]:
    told: dict[str, int] = {}
    steps: list[int] = []
    relocation.move(source, target, NOW, told.__setitem__, steps.append)
    assert sum(steps) == relocation.ROUNDS * sum(told.values())
    return told


def contents(url: str) -> dict[str, object]:
    with reading(url) as connection:
        return {table.name: read_contents(connection, table) for table in model.metadata.sorted_tables}


def test_every_row_of_every_table_moves(database_url: str, target_url: str) -> None:
    with looking(database_url) as connection:
        fill_all_tables(connection)
    before = contents(database_url)

    told = move(database_url, target_url)

    after = contents(target_url)
    assert contents(database_url) == before
    assert all(told.values()), "a table of this test is empty"
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"audit", "history"}
    with reading(target_url) as connection:
        moves = connection.execute(sa.select(model.history.c.move)).scalars().all()
    assert "moved" in moves


async def test_the_journal_goes_on_where_it_was(shared_url: str, target_url: str) -> None:
    async with Journal(create_engine(shared_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        for number in range(3):
            await scribe.put([b"item %d" % number] * 50, [b"x" * 200_000])

    move(shared_url, target_url)

    schema.check(target_url)
    async with Journal(create_engine(target_url), "broker") as journal:
        scribe = await Scribe.of(journal)
        assert await journal.read(read_head) == 3
        assert (await scribe.put([b"item"])).position == 4
    with writing(target_url) as connection:
        # Its own counters go on as well.
        history = {"at": NOW, "subject": "test", "subject_id": "test", "move": "test", "reason": ""}
        connection.execute(sa.insert(model.history), history)


def test_ids_that_were_given_out_are_not_given_out_again(database_url: str, target_url: str) -> None:
    correction = model.correction.c
    with looking(database_url) as connection:
        fill_all_tables(connection)
        last = add_correction(connection)
        connection.execute(sa.delete(model.correction).where(correction.id == last))

    move(database_url, target_url)

    with writing(target_url) as connection:
        assert add_correction(connection) == last + 1


def add_correction(connection: sa.Connection) -> int:
    """Of the only event; gives the id that the database has given it."""
    event_id = connection.execute(sa.select(model.event.c.id).limit(1)).scalar_one()
    values = {"event_id": event_id, "item_index": 0, "before": b"a", "after": b"b", "at": NOW, "reason": ""}
    connection.execute(sa.insert(model.correction), values)
    highest: int = connection.execute(sa.select(sa.func.max(model.correction.c.id))).scalar_one()
    return highest


def test_recipients_are_registered_at_the_new_place(shared_url: str, target_url: str) -> None:
    registration, role = model.registration.c, model.role.c
    with looking(shared_url) as connection:
        here = read_place(connection)
        ids = connection.execute(sa.select(role.id).order_by(role.id).limit(2)).scalars().all()
        for role_id, place in zip(ids, (here, "elsewhere"), strict=True):
            row = {"role_id": role_id, "uri": "tcp://a:1", "token_hash": b"%032d" % role_id, "place": place}
            connection.execute(sa.insert(model.registration), row | {"registered_at": NOW})

    move(shared_url, target_url)

    with reading(target_url) as connection:
        places = connection.execute(sa.select(registration.place).order_by(registration.role_id)).scalars().all()
        assert places == [read_place(connection), "elsewhere"]


async def test_a_journal_that_is_in_use_stays(shared_url: str, target_url: str) -> None:
    async with Journal(create_engine(shared_url), "broker"):
        with pytest.raises(JournalError, match="stop the broker") as raised:
            move(shared_url, target_url)
    assert raised.value.code == "journal_in_use"
    move(shared_url, target_url)


def test_a_database_that_is_not_empty_is_left_as_it_is(shared_url: str, target_url: str) -> None:
    schema.upgrade(target_url)
    with looking(target_url) as connection:
        add_small_bus(connection)
    before = contents(target_url)
    with pytest.raises(JournalError, match="not empty") as raised:
        move(shared_url, target_url)
    assert raised.value.code == "not_empty"
    assert contents(target_url) == before


def test_a_database_that_was_only_set_up_is_empty(shared_url: str, target_url: str) -> None:
    schema.upgrade(target_url)
    move(shared_url, target_url)
    assert contents(target_url)["role"] == contents(shared_url)["role"]


def test_a_copy_that_differs_is_given_up(shared_url: str, target_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(connection: sa.Connection, table: sa.Table, rows: Iterable[TableRow]) -> None:
        """Lose the last row, as a faulty driver might."""
        write_rows(connection, table, [*rows][:-1])

    monkeypatch.setattr(relocation, "write_rows", lose)
    with pytest.raises(JournalError) as raised:
        move(shared_url, target_url)
    assert raised.value.code == "copy_differs"
    with pytest.raises(SchemaError):
        schema.check(target_url)


def test_a_journal_does_not_move_onto_itself(shared_url: str) -> None:
    with pytest.raises(JournalError, match="one database"):
        move(shared_url, shared_url)


@pytest.mark.parametrize("target", ["sqlite://", "mysql://host/xbus", "nonsense"])
def test_an_address_that_can_not_be_used_is_refused(shared_url: str, target: str) -> None:
    with pytest.raises(ConfigurationError):
        move(shared_url, target)
