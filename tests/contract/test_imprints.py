"""Imprints tell damage of the configuration from edits of it; on every database."""

from dataclasses import replace

import sqlalchemy as sa

from tests.support.damage import examined
from tests.support.journal import NOW, looking, small_bus
from xbus import model
from xbus.broker.housekeeping.imprints import renew_imprints
from xbus.broker.journal.configuration import EmitterSpec, apply, make_plan, read_stored
from xbus.broker.journal.fsck.faults import FaultCode
from xbus.broker.journal.imprints import TABLES, UNWATCHED
from xbus.broker.journal.journal import Journal

VERSION = sa.select(model.configuration.c.version)


def test_an_edit_of_any_column_voids_the_imprints(shared_url: str) -> None:
    unseen = []
    with looking(shared_url) as connection:
        for table in TABLES:
            # SQLite's triggers see rows, and some tables have none.
            if not connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one():
                continue
            for column in table.columns:
                before = connection.execute(VERSION).scalar_one()
                connection.execute(sa.update(table).values({column: column}))
                if connection.execute(VERSION).scalar_one() == before:
                    unseen.append((table.name, column.name))
    assert {name for _, name in unseen} == {*UNWATCHED}


async def test_damage_is_told_from_an_edit(shared_url: str, shared_journal: Journal) -> None:
    await renew_imprints(shared_journal)
    assert examined(shared_url) == []
    with looking(shared_url) as connection:
        wished = replace(small_bus(), emitters={"west": EmitterSpec("west", "all")})
        apply(connection, make_plan(read_stored(connection), wished), NOW)
    assert examined(shared_url) == [], "the configuration is another one, and has no imprints yet"
    await renew_imprints(shared_journal)
    with looking(shared_url) as connection:
        version = connection.execute(VERSION).scalar_one()
        changed = sa.update(model.emitter).where(model.emitter.c.login == "west").values(login="rest")
        connection.execute(changed)
        # As damage would do it, past the triggers.
        connection.execute(sa.update(model.configuration).values(version=version))
        west = connection.execute(sa.select(model.emitter.c.id).where(model.emitter.c.login == "rest")).scalar_one()
    found = [fault for fault in examined(shared_url) if fault.code is FaultCode.CONFIGURATION_CHANGED]
    assert [(fault.table, fault.row) for fault in found] == [("emitter", str(west))]
    with looking(shared_url) as connection:
        connection.execute(sa.delete(model.emitter).where(model.emitter.c.login == "rest"))
        connection.execute(sa.update(model.configuration).values(version=version))
    found = [fault for fault in examined(shared_url) if fault.code is FaultCode.CONFIGURATION_CHANGED]
    assert [(fault.table, fault.row) for fault in found] == [("emitter", "")]
