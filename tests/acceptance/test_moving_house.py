"""From an xbus.broker 0.2.0 to this broker: its configuration is imported, and its clients go on as they were."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support import legacy, postgres
from tests.support.bus import PASSWORD
from tests.support.documentation import CHECKOUT, blocks
from tests.support.legacy import OldDatabase, old_hash
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, close, connect
from tests.support.processes import run, script
from xbus.broker.journal.database.connection import reading
from xbus.model import emitter, role

UNICODE = "päßwörd ✓"

CLIENTS = b"""\
<descriptor>
  <header>
    <name>clients</name><eventtype>test_event</eventtype>
    <format name="csv"><delimiter>;</delimiter><startline>1</startline></format>
  </header>
  <fields><field name="name" mandatory="true"><source>1</source><type>string</type></field></fields>
</descriptor>
"""


@pytest.fixture
def old(postgres_server: postgres.Server) -> Iterator[OldDatabase]:
    """What 0.2.0 sets up, an emitter whose password is no ASCII, and a descriptor."""
    with legacy.old_database(postgres_server) as database:
        database.add_demo()
        database.execute(
            "INSERT INTO emitter SELECT gen_random_uuid(), 'other_emitter', %s, id FROM emitter_profile",
            [old_hash(UNICODE)],
        )
        database.add("input_descriptor", name="clients", descriptor=CLIENTS)
        yield database


def hashes(url: str) -> dict[str, str]:
    """The stored password hashes by login."""
    with reading(url) as connection:
        return {
            login: password_hash
            for table in (emitter, role)
            for login, password_hash in connection.execute(sa.select(table.c.login, table.c.password_hash))
        }


async def test_old_clients_log_in_with_their_old_passwords(
    old: OldDatabase, start_daemon: StartDaemon, sqlite_url: str, tmp_path: Path
) -> None:
    daemon = start_daemon(sqlite_url)
    imported = run(script("xbus"), "import-legacy", "-c", daemon.config, old.address)
    assert (imported.returncode, imported.stderr) == (0, "")
    before = hashes(sqlite_url)
    assert before.keys() == {"test_emitter", "other_emitter", "consumer_role", "worker_role"}
    assert all(re.fullmatch("[0-9a-f]{80}", password_hash) for password_hash in before.values())

    client = await connect(daemon.front)
    for login, password in (("test_emitter", "passwort"), ("test_emitter", before["test_emitter"]), ("nobody", "x")):
        assert await client.call.login(login, password) == ""
    assert hashes(sqlite_url) == before

    async with (
        OldWorker(daemon.back, "worker_role") as worker,
        OldConsumer(daemon.back, "consumer_role") as consumer,
        OldEmitter(daemon.front, "test_emitter") as sender,
    ):
        envelope_id = await sender.emit(b"a", b"b")
        await consumer.wait_for([envelope_id])
        assert sorted(consumer.items()) == [b"a", b"a worker_role", b"b", b"b worker_role"]
        assert worker.items() == [b"a", b"b"]
        assert await client.call.login("other_emitter", UNICODE)

    after = hashes(sqlite_url)
    assert all(password_hash.startswith("$argon2id$") for password_hash in after.values())
    async with OldEmitter(daemon.front, "test_emitter"), OldWorker(daemon.back, "worker_role"):
        assert await client.call.login("test_emitter", "passwort") == ""
        assert await client.call.login("other_emitter", UNICODE)
    await close(client)
    assert hashes(sqlite_url) == after

    again = run(script("xbus"), "import-legacy", "-c", daemon.config, old.address)
    assert again.returncode == 0
    assert 'note: these have logged in here already or got another password, and keep it: role "consumer_role"' in (
        again.stdout
    )
    assert hashes(sqlite_url) == after
    assert UNICODE not in daemon.log

    (tmp_path / "clients.csv").write_text("Ada\nGrace\n")
    sent = run(
        *("bash", "-c", f"{script('xbus')} emit clients.csv --descriptor <({script('xbus')} descriptor show clients)"),
        cwd=tmp_path,
        env={"XBUS_CONFIG": str(daemon.config), "XBUS_LOGIN": "test_emitter", "XBUS_PASSWORD": PASSWORD},
    )
    assert sent.stdout.startswith("2 items sent"), sent.stderr


def test_the_page_shows_what_an_import_tells(old: OldDatabase, sqlite_url: str, tmp_path: Path) -> None:
    old.execute("DELETE FROM emitter WHERE login = 'other_emitter'")
    old.execute("DELETE FROM input_descriptor")
    config = tmp_path / "config.ini"
    config.write_text(f"[database]\nsqlalchemy.dburi = {sqlite_url}\n")
    (shown,) = blocks(CHECKOUT / "docs" / "moving.md", "text")
    imported = run(script("xbus"), "import-legacy", "-c", config, "--dry-run", old.address)
    assert shown.text == imported.stdout
