"""``xbus doctor``: each part of an installation is looked at, and each finding has its cure."""

import asyncio
import json
import re
import resource
import shutil
import socket
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.integration.admin.conftest import NOON, Xbus
from tests.support.bus import add_bus
from tests.support.daemon import Options, write_config
from tests.support.ports import free_port
from tests.support.waiting import DEADLINE_SECONDS
from xbus import model
from xbus.admin.commands.doctor import PARTS
from xbus.admin.why.inquiry import RunningBroker
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.objects.claiming import claim
from xbus.broker.journal.objects.stores import MARK

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def bus(database_url: str) -> str:
    add_bus(database_url, {"numbers": {"sink": []}})
    return database_url


@pytest.fixture
def config(bus: str, tmp_path: Path) -> Path:
    path = write_config(tmp_path / "config.ini", bus, fixed_ports())
    path.chmod(0o640)
    file = sa.make_url(bus).database or ""
    if Path(file).exists():
        Path(file).chmod(0o600)
    return path


def fixed_ports() -> Options:
    return {"zmq": {f"{side}socket": f"tcp://127.0.0.1:{free_port()}" for side in ("front", "back")}}


def found(xbus: Xbus, config: Path) -> dict[str, dict[str, str]]:
    """The findings by their codes."""
    result = xbus("doctor", "-c", config, "-o", "json")
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    problems = any(finding["severity"] == "problem" for finding in findings)
    assert result.exit_code == int(problems)
    assert all(finding["cause"] and finding["next_step"] and finding["part"] in PARTS for finding in findings)
    return {finding["code"]: finding for finding in findings}


def test_a_sound_installation_has_no_problem(xbus: Xbus, bus: str, config: Path) -> None:
    # The tests' PostgreSQL has no checksums, as ordinary ones have none before version 18.
    notes = {"no_checksums"} if bus.startswith("postgresql") else set()
    findings = found(xbus, config)
    assert findings.keys() == {"broker_not_running", *notes}
    assert {findings[code]["severity"] for code in notes} <= {"note"}
    told = xbus("doctor", "-c", config)
    assert told.exit_code == 0
    state = {part: "1 note" if notes and part == "database" else "well" for part in PARTS[:4]}
    lines = [line for line in told.stdout.splitlines() if line.startswith(tuple(PARTS[:4]))]
    assert lines == [f"{part:<14} {state[part]}" for part in PARTS[:4]]


def test_a_wrong_configuration_ends_the_examination(xbus: Xbus, config: Path) -> None:
    config.write_text("[front]\nmax_itmes = 7\n")
    assert set(found(xbus, config)) == {"bad_configuration"}
    assert "not looked at" in xbus("doctor", "-c", config).stdout


def test_a_database_without_tables_or_far_away_is_told(xbus: Xbus, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", f"sqlite:///{tmp_path / 'nothing.db'}")
    assert found(xbus, config)["bad_schema"]["next_step"].startswith("run setup_xbusbroker")
    write_config(config, f"postgresql://xbus:secret-7@127.0.0.1:{free_port()}/xbus")
    config.chmod(0o640)
    findings = found(xbus, config)
    assert "journal_unavailable" in findings
    assert "secret-7" not in str(findings)


def test_secrets_that_everybody_may_read_are_told(xbus: Xbus, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", f"postgresql://xbus:secret@127.0.0.1:{free_port()}/xbus")
    config.chmod(0o644)
    assert found(xbus, config)["configuration_open_to_others"]["about"] == str(config)
    config.chmod(0o640)
    assert "configuration_open_to_others" not in found(xbus, config)


def test_the_machine_is_looked_at(xbus: Xbus, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url)
    Path(sa.make_url(sqlite_url).database or "").chmod(0o644)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 2**40 - 2**20, 2**20))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1024))
    findings = found(xbus, config)
    assert {"journal_open_to_others", "disk_short", "few_descriptors"} <= set(findings)
    assert findings["few_descriptors"]["severity"] == "note"


def test_what_an_administrator_left_unfinished_is_told(xbus: Xbus, bus: str, config: Path) -> None:
    with writing(bus) as connection:
        connection.execute(sa.update(model.emitter).values(password_hash=None))
        connection.execute(sa.update(model.role).values(removed_at=NOON))
        graph_id = connection.execute(sa.select(model.graph.c.id)).scalar_one()
        type_id = connection.execute(sa.select(model.graph.c.event_type_id)).scalar_one()
        empty = {"event_type_id": type_id, "number": 2, "created_at": NOON}
    findings = found(xbus, config)
    assert findings["no_password"]["next_step"].startswith("xbus password emitter emitter_")
    assert findings["service_without_role"]["about"] == "sink"
    with writing(bus) as connection:
        connection.execute(sa.insert(model.graph), empty)
    findings = found(xbus, config)
    assert "service_without_role" not in findings, f"graph {graph_id} is of the past"
    assert findings["type_without_node"]["about"] == "numbers"


def test_object_stores_that_can_not_be_used_are_told(xbus: Xbus, bus: str, config: Path, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "objects", tmp_path / "elsewhere"
    config.write_text(f"{config.read_text()}[journal]\nobjects = {place}\n")
    assert found(xbus, config).keys() - {"no_checksums"} == {"broker_not_running"}, "the broker may begin it"
    claim(create_engine(bus), str(place), NOON)
    assert found(xbus, config).keys() - {"no_checksums"} == {"broker_not_running"}
    place.rename(elsewhere)
    assert found(xbus, config)["objects_not_there"]["about"] == str(place)
    config.write_text(config.read_text().replace(str(place), str(elsewhere)))
    assert found(xbus, config).keys() - {"no_checksums"} == {"broker_not_running"}, "the broker knows it by its mark"
    (elsewhere / MARK).write_text("{}")
    assert found(xbus, config)["objects_foreign"]["about"] == str(elsewhere)
    assert found(xbus, config)["objects_not_there"]["about"] == str(place)


def test_another_program_at_the_port_is_told(xbus: Xbus, config: Path) -> None:
    with listening() as port:
        config.write_text(re.sub("backsocket = .*", f"backsocket = tcp://127.0.0.1:{port}", config.read_text()))
        assert found(xbus, config)["port_of_another_program"]["about"] == f"tcp://127.0.0.1:{port}"


async def test_a_broker_is_not_waited_for_where_nothing_listens(bus: str, config: Path) -> None:
    broker = RunningBroker(config, answer_seconds=10 * DEADLINE_SECONDS)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await broker.health_of_both() == (None, None)


def test_health_tells_at_once_of_a_broker_that_is_not_there(xbus: Xbus, config: Path) -> None:
    # A call would wait for a connection until its time-out, and tell of that.
    result = xbus("health", "--json")
    causes = [problem["cause"] for line in result.stdout.splitlines() for problem in json.loads(line)["problems"]]
    assert result.exit_code == 3
    assert ["Connect call failed" in cause for cause in causes] == [True, True]


@contextmanager
def listening() -> Iterator[int]:
    """A program that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_database_that_only_reads_and_one_that_does_not_wait_are_told(xbus: Xbus, bus: str, config: Path) -> None:
    if bus.startswith("sqlite"):
        pytest.skip("these are settings of PostgreSQL")
    with writing(bus) as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET synchronous_commit = local')
    assert "synchronous_commit = local" in found(xbus, config)["bad_configuration"]["cause"]
    with writing(bus) as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" RESET synchronous_commit')
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    assert "only reads" in found(xbus, config)["journal_unavailable"]["cause"]
