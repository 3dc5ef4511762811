"""The ``xbus`` command, run in this process against a database of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, insert, update

from tests.support.daemon import write_config
from tests.support.filled import IMAGES
from xbus.admin.cli import main
from xbus.broker.journal.configuration import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.log.catalog import read_catalog, read_version
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.model import cursor, delivery, envelope, event, failure, head

Xbus = Callable[..., Result]

NOON = datetime(2030, 5, 17, 12, tzinfo=UTC)

GOOD = """\
[[event_type]]
name = "flights"

[[event_type.node]]
name = "enrich"
service = "airline_names"
to = ["store"]

[[event_type.node]]
name = "store"
service = "flight_store"

[[service]]
name = "airline_names"
kind = "worker"

[[service]]
name = "flight_store"
kind = "consumer"

[[role]]
login = "airline_names_1"
service = "airline_names"

[[role]]
login = "flight_store_1"
service = "flight_store"

[[emitter_profile]]
name = "airport"
event_types = ["flights"]

[[emitter]]
login = "airport_1"
profile = "airport"
"""


def version(url: str) -> int:
    with reading(url) as connection:
        return read_version(connection)


@pytest.fixture
def config_path(database_url: str, tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.ini", database_url)


@pytest.fixture
def xbus(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> Xbus:
    """Runs ``xbus`` with some arguments; ``XBUS_CONFIG`` names the configuration."""
    for variable in ("XBUS_LOGIN", "XBUS_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XBUS_CONFIG", str(config_path))

    def run(*arguments: str | Path, stdin: str = "") -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, prog_name="xbus")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    path = tmp_path / "bus.toml"
    path.write_text(GOOD)
    return path


@dataclass(frozen=True)
class Log:
    """Ids of envelopes, oldest first.

    Two are received: the first is done at ``store_1`` and parked at ``counter_1``, the second is owed to both still,
    and nobody ever provided the service ``audit``. Then one is cancelled, and one is open.
    """

    first: UUID
    second: UUID
    cancelled: UUID
    open: UUID


@pytest.fixture
def log(database_url: str) -> Log:
    ids = [UUID(int=(0x0190 << 112) + (7 << 76) + (2 << 62) + number) for number in range(1, 5)]
    log = Log(*ids)
    IMAGES.fill(database_url, "log", lambda: _write_log(database_url, log))
    return log


def _write_log(url: str, log: Log) -> None:
    ids = [log.first, log.second, log.cancelled, log.open]
    with writing(url) as connection:
        _configure(connection)
        catalog = read_catalog(connection)
        for position, envelope_id in enumerate(ids[:2], 1):
            _envelope(
                connection, envelope_id, "received", position=position, events=1, items=1500, bytes=9, hash=b"\x01" * 32
            )
        _envelope(connection, log.cancelled, "cancelled")
        _envelope(connection, log.open, "open")
        for number, envelope_id in enumerate(ids):
            connection.execute(
                insert(event).values(
                    id=UUID(int=ids[0].int + 100 + number),
                    envelope_id=envelope_id,
                    number=1,
                    event_type_id=catalog.event_types["flights"].id,
                    graph_id=catalog.event_types["flights"].graph_id,
                    estimate=2000,
                    items=1500,
                )
            )
        connection.execute(update(head).values(position=2))
        roles = {entry.login: entry.id for entry in catalog.roles.values()}
        connection.execute(update(cursor).values(position=1))
        connection.execute(
            insert(delivery).values(
                role_id=roles["counter_1"],
                envelope_id=log.first,
                position=1,
                state="parked",
                attempts=3,
                code="refused",
                cause="no such carrier",
                changed_at=NOON,
            )
        )
        connection.execute(
            insert(failure).values(
                at=NOON,
                envelope_id=log.first,
                event_id=UUID(int=ids[0].int + 100),
                role_id=roles["counter_1"],
                node="count",
                verb="send_item",
                code="refused",
                message="no such carrier",
                indices=[7],
                fingerprint=fingerprint(roles["counter_1"], "refused", "no such carrier"),
            )
        )


def _configure(connection: Connection) -> None:
    nodes = (NodeSpec("store", "store"), NodeSpec("count", "counter"), NodeSpec("audit", "audit"))
    bus = BusSpec(
        event_types={"flights": EventTypeSpec("flights", False, {node.name: node for node in nodes})},
        services={name: ServiceSpec(name, "consumer") for name in ("store", "counter", "audit")},
        roles={"store_1": RoleSpec("store_1", "store"), "counter_1": RoleSpec("counter_1", "counter")},
        profiles={"airport": ProfileSpec("airport", frozenset({"flights"}))},
        emitters={"airport_1": EmitterSpec("airport_1", "airport")},
    )
    apply(connection, make_plan(read_stored(connection), bus), NOON)


def _envelope(connection: Connection, envelope_id: UUID, state: str, **sealed: object) -> None:
    (emitter_id,) = read_catalog(connection).emitters
    closed_at = None if state == "open" else NOON
    connection.execute(
        insert(envelope).values(
            id=envelope_id, emitter_id=emitter_id, state=state, opened_at=NOON, closed_at=closed_at, **sealed
        )
    )
