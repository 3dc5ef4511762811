"""``xbus journal move``: a bus that outgrew SQLite goes on with PostgreSQL, or back, where it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support import postgres
from tests.support.bus import add_demo
from tests.support.documentation import CHECKOUT
from tests.support.processes import run, script
from tests.support.waiting import wait_until


@pytest.fixture
def other_url(database_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of the kind that the journal is not in."""
    if database_url.startswith("postgresql"):
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.create_empty()
    yield url
    server.drop(url)


def example(name: str) -> list[str]:
    return [script("python"), str(CHECKOUT / "examples" / f"{name}.py")]


def test_a_bus_goes_on_in_the_other_database(
    database_url: str, other_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    add_demo(database_url)
    broker = start_daemon(database_url)
    assert run(*example("emitter"), broker.front).stdout == "sealed at position 1\n"
    move = [script("xbus"), "journal", "move", "-c", str(broker.config), "--to", other_url]

    refused = run(*move)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the journal is in use" in refused.stderr
    assert "stop the broker" in refused.stderr
    assert "[journal_in_use]" in refused.stderr

    broker.stop()
    moved = run(*move)
    assert moved.returncode == 0, moved.stderr
    assert "envelope: 1\n" in moved.stdout
    assert "each table equals the original" in moved.stdout

    again = run(*move)
    assert (again.returncode, "[not_empty]" in again.stderr) == (1, True)

    broker = start_daemon(other_url)
    consumer = start_process(*example("consumer"), broker.back)
    start_process(*example("worker"), broker.back)
    wait_until(lambda: "client: EDSGER" in consumer.text, "what waited arrives")
    assert run(*example("emitter"), broker.front).stdout == "sealed at position 2\n"
