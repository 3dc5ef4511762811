"""One broker at a time writes to a journal, and none goes on behind a journal that went back."""

import asyncio
import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, write_config
from tests.support.journal import looking
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.processes import run, script
from xbus import model

GRAPH: dict[str, dict[str, list[str]]] = {"test_event": {"c": []}}

STAYS_DOWN, STARTS_ANEW = 4, 3

END_SECONDS = 60.0


def works(front: str, back: str) -> None:
    async def emit() -> None:
        async with OldEmitter(front) as emitter, OldConsumer(back, "c_1") as consumer:
            await consumer.wait_for([await emitter.emit(b"x")])

    asyncio.run(emit())


def problems(config: Path) -> str:
    return run(script("xbus"), "health", "-c", config).stdout


# -- SQLite: the first one stays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [False, True])
def test_a_second_broker_on_the_same_file_is_refused(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path, linked: bool
) -> None:
    add_bus(sqlite_url, GRAPH)
    first = start_daemon(sqlite_url)
    url = sqlite_url
    if linked:
        os.link(tmp_path / "xbus.db", tmp_path / "link.db")
        url = f"sqlite:///{tmp_path / 'link.db'}"
    second = run(script("start_xbusbroker"), "-c", write_config(tmp_path / "second.ini", url))
    assert second.returncode == 1
    assert f"process {first.pid} on" in second.stderr
    assert "[journal_in_use]" in second.stderr
    works(first.front, first.back)
    first.kill()
    # What died holds nothing.
    start_daemon(sqlite_url)


# -- PostgreSQL: the newest one stays ----------------------------------------------------------------------------------


def parts(url: str, start_daemon: StartDaemon, tmp_path: Path) -> list[Daemon]:
    options = {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    return [start_daemon(url, options, only=part) for part in ("back", "front")]


def ends(daemon: Daemon, code: int) -> None:
    """It ends by itself, although nobody calls it."""
    assert daemon.process.wait(END_SECONDS) == code, daemon.log


def test_a_newer_broker_ends_an_idle_one_for_good(postgres_url: str, start_daemon: StartDaemon) -> None:
    add_bus(postgres_url, GRAPH)
    older = start_daemon(postgres_url)
    newer = start_daemon(postgres_url)
    ends(older, STAYS_DOWN)
    assert f"process {newer.pid} on" in older.log
    assert "journal_taken_over" in older.log
    works(newer.front, newer.back)


def test_a_whole_broker_and_its_parts_end_each_other(
    postgres_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(postgres_url, GRAPH)
    whole = start_daemon(postgres_url)
    back, front = parts(postgres_url, start_daemon, tmp_path)
    ends(whole, STAYS_DOWN)
    works(front.front, back.back)
    whole.start()
    ends(back, STAYS_DOWN)
    ends(front, STAYS_DOWN)
    works(whole.front, whole.back)


# -- a journal that went back ------------------------------------------------------------------------------------------


def test_a_broker_ends_as_soon_as_its_journal_went_back_and_tells_what_is_lost(
    postgres_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(postgres_url, GRAPH)
    daemon = start_daemon(postgres_url)
    works(daemon.front, daemon.back)
    assert "journal_went_back" not in problems(daemon.config)
    with looking(postgres_url) as connection:
        connection.execute(sa.update(model.writer).values(group_number=model.writer.c.group_number - 2))
    ends(daemon, STARTS_ANEW)
    assert "journal_went_back" in daemon.log
    with looking(postgres_url) as connection:
        commits = connection.execute(sa.select(model.loss.c.commits)).scalar_one()
    assert commits >= 2
    daemon.start()
    works(daemon.front, daemon.back)
    told = run(script("xbus"), "health", "-c", daemon.config)
    assert told.returncode == 1
    assert f"{commits:,} commits are lost" in told.stdout
    assert str(commits) in run(script("xbus"), "journal", "losses", "-c", daemon.config).stdout
    acknowledged = run(
        script("xbus"), "journal", "acknowledge", "-c", daemon.config, "--reason", "emitters repeated it"
    )
    assert acknowledged.returncode == 0, acknowledged.stderr
    audit = run(script("xbus"), "audit", "list", "--json", "-c", daemon.config).stdout
    assert "losses of the journal" in audit
    daemon.restart()
    assert "journal_went_back" not in problems(daemon.config)


def test_a_loss_that_no_journal_takes_is_told_by_the_next_broker(sqlite_url: str, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(sqlite_url)
    losses = daemon.config.with_name("xbus-losses.json")
    with looking(sqlite_url) as connection:
        connection.execute(sa.update(model.writer).values(group_number=model.writer.c.group_number - 1))
        connection.exec_driver_sql("ALTER TABLE loss RENAME TO gone")
    ends(daemon, STARTS_ANEW)
    assert losses.exists()
    with looking(sqlite_url) as connection:
        connection.exec_driver_sql("ALTER TABLE gone RENAME TO loss")
    daemon.start()
    # The front may be called from now on, and takes open envelopes for whole without that row.
    assert not losses.exists()
    assert "commits are lost" in problems(daemon.config)
