"""A journal that the version before has made, killed after its last row, is upgraded and delivers what it owes."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD
from tests.support.earlier.restoring import envelopes, restore, restore_sqlite
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import run_xbus, xbus
from tests.support.processes import run, script
from tests.support.sdk import emit
from tests.support.showing import become, progress
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.emitter import Emitter
from xbus.errors import SchemaError


@pytest.fixture
def earlier_url(empty_database_url: str, tmp_path: Path) -> str:
    """A journal of the version before."""
    restore(empty_database_url, tmp_path)
    return empty_database_url


async def test_all_that_the_version_before_owed_is_delivered(
    earlier_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    had = envelopes(earlier_url)
    with pytest.raises(SchemaError, match="older than this program"):
        schema.check(earlier_url)
    schema.upgrade(earlier_url)
    daemon = start_daemon(earlier_url)
    async with (
        OldConsumer(daemon.back, "archive_1") as archive,
        OldConsumer(daemon.back, "ledger_1") as ledger,
        OldConsumer(daemon.back, "queue_1") as queue,
        OldWorker(daemon.back, "w_1"),
        OldEmitter(daemon.front) as emitter,
    ):
        await archive.wait_for([*had["owed"], *had["parked"], *had["retry"]])
        await ledger.wait_for([*had["waiting"], *had["retry"]])
        await xbus(daemon, "parked", "resume", had["ordered"][0], "--reason", "upgraded")
        await xbus(daemon, "parked", "resume", had["parked"][0], "--reason", "upgraded")
        await queue.wait_for(had["ordered"])
        await ledger.wait_for(had["parked"])
        envelope_id, event_id = had["open"]
        await emitter.send(envelope_id, event_id, b"the last")
        await emitter.end(envelope_id, event_id)
        await archive.wait_for([envelope_id])
        assert await emit(daemon, send_keyed) == had["keyed"][0]
        await send_outbox(daemon.front, tmp_path)
        await become(earlier_url, envelope_id, archive_1="done", ledger_1="done")
    assert queue.committed == had["ordered"]
    assert not set(had["done"]) & {*archive.committed, *ledger.committed}
    assert sorted(archive.committed[:3]) == sorted(had["owed"])
    for envelope_id in (*had["owed"], *had["parked"], *had["retry"], *had["waiting"], *had["ordered"]):
        assert {role.state for role in progress(earlier_url, envelope_id).values()} == {"done"}, envelope_id
    assert (await run_xbus(daemon, "health")).returncode in (0, 1)
    with reading(earlier_url) as connection:
        sent = sa.select(sa.func.count()).select_from(model.envelope).where(model.envelope.c.state == "received")
        # One more than the version before had accepted: that of its outbox.
        assert connection.execute(sent).scalar_one() == sum(len(each) for each in had.values()) - 1 + 1


def send_keyed(emitter: Emitter) -> str:
    """Send again what the version before has sealed; its id."""
    with emitter.envelope(key="order 7") as envelope, envelope.event("queued") as event:
        event.send(b"keyed")
    return str(envelope.receipt.envelope_id)


async def send_outbox(front: str, folder: Path) -> None:
    """Send what waits in an outbox of the version before."""
    outbox, password = folder / "notes.outbox", folder / "password"
    restore_sqlite(outbox, "outbox.sql")
    password.write_text(PASSWORD)
    command = ("outbox", "flush", outbox, "--url", front, "--login", "emitter_1", "--password-file", password)
    flushed = await asyncio.to_thread(run, script("xbus"), *command)
    assert flushed.returncode == 0, flushed.stderr
    assert flushed.stdout == "1 envelope sent.\n"


def test_what_was_upgraded_can_be_edited_by_sql(earlier_url: str) -> None:
    schema.upgrade(earlier_url)
    version = sa.select(model.configuration.c.version)
    with writing(earlier_url) as connection:
        before = connection.execute(version).scalar_one()
        connection.execute(sa.delete(model.profile_event_type))
        assert connection.execute(version).scalar_one() > before
