"""``xbus journal``: the operator says what a restored journal is."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from tests.support.bus import add_bus
from tests.support.daemon import write_config
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.place import read_place
from xbus.clock import SystemClock

PLACES = {"c_1": "somewhere else", "c_2": None, "c_3": "here"}
"""Where the journal was when a role's recipient registered; "here" stands for where it is."""


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> Path:
    """Of a journal with three registrations, two of which were not made where it is."""
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 3})
    with writing(database_url) as connection:
        ids = {login: role_id for role_id, login in connection.execute(sa.select(model.role.c.id, model.role.c.login))}
        for login, place in PLACES.items():
            row = {
                "role_id": ids[login],
                "token_hash": login.encode(),
                "uri": f"tcp://{login}:1",
                "registered_at": SystemClock().now(),
                "place": read_place(connection) if place == "here" else place,
            }
            connection.execute(sa.insert(model.registration).values(row))
    return write_config(tmp_path / "config.ini", database_url)


def xbus(*arguments: str | Path, answer: str = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=answer)


def places(url: str) -> dict[str, str | None]:
    """Where the journal was at each registration, by role."""
    wanted = sa.select(model.role.c.login, model.registration.c.place).join(
        model.role, model.role.c.id == model.registration.c.role_id
    )
    with reading(url) as connection:
        here = read_place(connection)
        return {login: "here" if place == here else place for login, place in connection.execute(wanted)}


def here(url: str) -> str:
    with reading(url) as connection:
        return read_place(connection)


def moves(url: str) -> list[tuple[str, str]]:
    history = model.history.c
    wanted = sa.select(history.move, history.reason).where(history.subject == "journal")
    with reading(url) as connection:
        return [(move, reason) for move, reason in connection.execute(wanted)]


def test_it_shows_who_registered_elsewhere(config: Path) -> None:
    shown = xbus("journal", "show", "-c", config).output.splitlines()
    assert shown[0].startswith("The journal is at: ")
    assert [line.split()[:2] for line in shown[2:]] == [["c_1", "tcp://c_1:1"], ["c_2", "tcp://c_2:1"]]
    told = json.loads(xbus("journal", "show", "-c", config, "--json").output)
    assert told["foreign_registrations"] == [
        {"role": "c_1", "uri": "tcp://c_1:1", "journal_place": "somewhere else"},
        {"role": "c_2", "uri": "tcp://c_2:1", "journal_place": None},
    ]


@pytest.mark.parametrize("command", ["adopt", "forget"])
def test_nothing_is_done_without_a_yes(command: str, config: Path, database_url: str) -> None:
    refused = xbus("journal", command, "-c", config, "--reason", "restored", answer="n\n")
    assert refused.exit_code == 1
    assert places(database_url) == PLACES
    assert moves(database_url) == []


def test_what_is_adopted_is_of_here(config: Path, database_url: str) -> None:
    assert xbus("journal", "adopt", "-c", config, "--reason", "restored", answer="y\n").exit_code == 0
    assert places(database_url) == dict.fromkeys(PLACES, "here")
    assert moves(database_url) == [("adopted", f"c_1, c_2: restored; the journal is at {here(database_url)}")]
    again = xbus("journal", "adopt", "-c", config, "--reason", "restored", "--yes")
    assert again.output == "No recipient that listens has registered at another place: there is nothing to decide.\n"
    assert len(moves(database_url)) == 1


def test_what_is_forgotten_is_gone(config: Path, database_url: str) -> None:
    assert xbus("journal", "forget", "-c", config, "--reason", "a test", answer="y\n").exit_code == 0
    assert places(database_url) == {"c_3": "here"}
    assert moves(database_url) == [("forgotten", f"c_1, c_2: a test; the journal is at {here(database_url)}")]


def test_a_place_may_be_longer_than_a_column_of_the_history(postgres_url: str, tmp_path: Path) -> None:
    """A journal on one of several servers is reached at all of their names."""
    add_bus(postgres_url, {"test_event": {"c": []}})
    row = {"token_hash": b"c_1", "uri": "tcp://c_1:1", "registered_at": SystemClock().now(), "place": None}
    with writing(postgres_url) as connection:
        role_id = connection.execute(sa.select(model.role.c.id)).scalar_one()
        connection.execute(sa.insert(model.registration).values(role_id=role_id, **row))
    url = sa.make_url(postgres_url)
    servers = [f"{url.host}:{url.port}"] * 30
    several = url.set(host=None, port=None, query={"host": servers}).render_as_string(hide_password=False)
    done = xbus("journal", "adopt", "-c", write_config(tmp_path / "config.ini", several), "--reason", "moved", "--yes")
    assert done.exit_code == 0, done.output
    ((move, reason),) = moves(postgres_url)
    assert move == "adopted"
    assert reason.startswith("c_1: moved; the journal is at PostgreSQL system ")
