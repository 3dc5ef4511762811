"""Makes a journal by the version that is checked out, for the tests of later versions that upgrade it.

Run it with the tests' interpreter in a checkout of that version, to which this folder was copied:
``python -m tests.support.earlier.make FOLDER``. It writes a dump for each kind of database, that of an outbox, and the
ids of the envelopes by what has become of them. The broker is killed at the end, as after a crash.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg2
import sqlalchemy as sa

from tests.support import postgres
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.showing import become
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.emitter import Emitter
from xbus.errors import Failed

OPTIONS = {"back": {"worker_grace": 0.1, "attempts": 3, "first_delay": 30}}
"""A retry is not due before the broker is killed."""

REFUSED = (False, [([0], "the name is missing")])


async def make(url: str, folder: Path) -> dict[str, list[str]]:
    """Let envelopes come into every state; gives their ids by the state."""
    with writing(url) as connection:
        connection.execute(sa.update(model.role).where(model.role.c.login == "queue_1").values(ordered=True))
        connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1))
    daemon = Daemon(folder / "daemon", url, OPTIONS).start()
    made: dict[str, list[str]] = {}
    try:
        async with (
            OldEmitter(daemon.front) as emitter,
            OldConsumer(daemon.back, "ledger_1") as ledger,
            OldConsumer(daemon.back, "queue_1") as queue,
        ):
            async with OldConsumer(daemon.back, "archive_1") as archive:
                made["done"] = [await emitter.emit(b"done", type_name="notes") for _ in range(3)]
                await archive.wait_for(made["done"])
                await become(url, made["done"][-1], archive_1="done", ledger_1="done")
            made["owed"] = [await emitter.emit(b"owed", b"twice", type_name="notes") for _ in range(3)]
            await ledger.wait_for(made["owed"])
            await become(url, made["owed"][-1], archive_1="owed", ledger_1="done")
            made["waiting"] = [await emitter.emit(b"waiting", type_name="orders")]
            await become(url, made["waiting"][0], ledger_1="waiting")
            ledger.behave["end_event"] = lambda *_: REFUSED
            made["parked"] = [await emitter.emit(b"parked", type_name="notes")]
            await become(url, made["parked"][0], ledger_1="parked")
            ledger.behave["end_event"] = _fail
            made["retry"] = [await emitter.emit(b"retry", type_name="notes")]
            await become(url, made["retry"][0], ledger_1="retry")
            del ledger.behave["end_event"]
            queue.behave["end_event"] = lambda *_: REFUSED
            first = await _put(daemon, b"first", "client 7")
            await become(url, first, queue_1="parked")
            del queue.behave["end_event"]
            second = await _put(daemon, b"second", "client 7")
            await become(url, second, queue_1="held")
            made["ordered"] = [first, second]
            made["keyed"] = [await asyncio.to_thread(_send_keyed, daemon.front)]
            await queue.wait_for(made["keyed"])
            await become(url, made["keyed"][0], queue_1="done")
            envelope_id, event_id = await emitter.start("notes")
            await emitter.send(envelope_id, event_id, b"open", b"more")
            made["open"] = [envelope_id, event_id]
            daemon.kill()
    finally:
        daemon.kill()
    return made


def _fail(*_: object) -> object:
    raise RuntimeError("the disk is full")


async def _put(daemon: Daemon, item: bytes, ordering_key: str) -> str:
    def put() -> str:
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            return str(emitter.put("queued", [item], ordering_key=ordering_key).envelope_id)

    return await asyncio.to_thread(put)


def _send_keyed(front: str) -> str:
    with Emitter(front, "emitter_1", PASSWORD) as emitter:
        with emitter.envelope(key="order 7") as envelope, envelope.event("queued") as event:
            event.send(b"keyed")
        return str(envelope.receipt.envelope_id)


def make_outbox(path: Path) -> None:
    """Have an envelope wait in an outbox, as its bus is away."""
    try:
        with Emitter(
            "tcp://127.0.0.1:9", "emitter_1", PASSWORD, outbox=path, outbox_seconds=0.2, retry_seconds=0.1
        ) as emitter:
            emitter.put("notes", [b"from the outbox"])
    except Failed:
        return


def fill(url: str) -> None:
    """Configure the bus."""
    add_bus(
        url,
        {
            "notes": {"ledger": [], "archive": []},
            "orders": {"w": ["ledger"], "ledger": []},
            "queued": {"queue": []},
        },
    )


def dump_sqlite(path: Path) -> str:
    """Write out all of an SQLite file as SQL, as if it had been at its usual place."""
    connection = sqlite3.connect(path)
    try:
        pragmas = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        }
        dumped = "\n".join([*connection.iterdump(), *(f"PRAGMA {name} = {value};" for name, value in pragmas.items())])
        return dumped.replace(str(path.parent), "/var/lib/xbus") + "\n"
    finally:
        connection.close()


def dump_postgresql(url: str) -> str:
    """Write out all rows of a PostgreSQL database, each table as COPY does."""
    with reading(url) as connection:
        names = [table.name for table in model.metadata.sorted_tables]
        names = [name for name in names if sa.inspect(connection).has_table(name)]
    tables: dict[str, str] = {}
    driver = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        for name in names:
            with tempfile.TemporaryFile("w+") as file:
                driver.cursor().copy_expert(f'COPY "{name}" TO STDOUT', file)
                file.seek(0)
                tables[name] = file.read()
    finally:
        driver.close()
    return json.dumps(tables, indent=1, ensure_ascii=False) + "\n"


def main(folder: Path) -> None:
    """Write the dumps."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, dict[str, list[str]]] = {}
    run: Callable[[Awaitable[dict[str, list[str]]]], dict[str, list[str]]] = asyncio.run  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as name, postgres.server() as server:
        scratch = Path(name)
        path = scratch / "xbus.db"
        schema.upgrade(f"sqlite:///{path}")
        fill(f"sqlite:///{path}")
        made["sqlite"] = run(make(f"sqlite:///{path}", scratch / "sqlite"))
        (folder / "sqlite.sql").write_text(dump_sqlite(path))
        url = server.create()
        fill(url)
        made["postgresql"] = run(make(url, scratch / "postgresql"))
        (folder / "postgresql.json").write_text(dump_postgresql(url))
        make_outbox(scratch / "notes.outbox")
        (folder / "outbox.sql").write_text(dump_sqlite(scratch / "notes.outbox"))
    (folder / "envelopes.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
