"""The place of a journal: whoever opens it again finds it, and a copy is somewhere else."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.copies import copy_journal
from xbus.broker.journal.database import place, schema
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.place import read_place


def place_of(url: str) -> str:
    with reading(url) as connection:
        return read_place(connection)


def test_it_stays_as_long_as_the_journal_stays(database_url: str) -> None:
    assert place_of(database_url) == place_of(database_url)
    schema.upgrade(database_url)
    assert place_of(database_url) == place_of(database_url)


def test_a_copy_on_sqlite_is_somewhere_else(sqlite_url: str, tmp_path: Path) -> None:
    copy = copy_journal(sqlite_url, tmp_path, None)
    assert place_of(copy) != place_of(sqlite_url)


def test_a_file_that_took_the_place_of_the_original_is_another_one(sqlite_url: str, tmp_path: Path) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    before = place_of(sqlite_url)
    os.replace(shutil.copyfile(path, tmp_path / "restored.db"), path)
    assert place_of(sqlite_url) != before


def test_a_link_to_the_file_is_the_same_place(sqlite_url: str, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_url.removeprefix("sqlite:///"))
    assert place_of(f"sqlite:///{link}") == place_of(sqlite_url)


def test_a_restored_dump_is_somewhere_else(postgres_url: str, postgres_server: postgres.Server, tmp_path: Path) -> None:
    copy = copy_journal(postgres_url, tmp_path, postgres_server)
    assert place_of(copy) != place_of(postgres_url)
    postgres_server.drop(copy)


def test_a_base_backup_is_somewhere_else_and_a_restarted_server_is_not(tmp_path: Path) -> None:
    with postgres.cluster() as live, closing(postgres.Server(live.url)) as server, postgres.cluster() as copy:
        url = server.create()
        before = place_of(url)
        copy.stop()
        copy.become_copy_of(live)
        copy.start()
        assert place_of(url.replace(f":{live.port}/", f":{copy.port}/")) != before
        live.stop()
        live.start()
        assert place_of(url) == before


@pytest.mark.parametrize(
    ("parameters", "address"),
    [
        ({"host": "db.example.com", "port": "5433", "dbname": "bus"}, "db.example.com:5433/bus"),
        ({"host": "db.example.com", "dbname": "bus"}, "db.example.com:5432/bus"),
        ({"host": "db-1,db-2", "dbname": "bus"}, "db-1,db-2:5432/bus"),
        ({"host": "localhost", "port": "5432", "dbname": "bus"}, "localhost:5432/bus from machine this one"),
        ({"host": "127.0.0.1", "dbname": "bus"}, "127.0.0.1:5432/bus from machine this one"),
        ({"host": "/run/postgresql", "dbname": "bus"}, "/run/postgresql:5432/bus from machine this one"),
        ({"dbname": "bus"}, "local socket:5432/bus from machine this one"),
    ],
)
def test_a_local_server_is_another_one_on_another_machine(
    parameters: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_machine", lambda: "this one")
    assert place._address(parameters) == address


@pytest.mark.parametrize("content", ["", "uninitialized\n", None])
def test_a_machine_without_an_id_is_unknown(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "machine-id"
    if content is not None:
        path.write_text(content)
    assert place._machine([path]) == "unknown"


def test_the_id_of_a_machine_is_not_shown(tmp_path: Path) -> None:
    ids = []
    for number in range(2):
        path = tmp_path / f"machine-id-{number}"
        path.write_text(f"{number:032x}\n")
        ids.append(place._machine([path]))
        assert f"{number:032x}"[:12] not in ids[-1]
    assert ids[0] != ids[1]
