"""How the roles are, as operators see them; and roles that are taken off the bus, and put on it again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from tests.support.long_log import newest_graphs, put_log
from xbus import model
from xbus.broker.housekeeping.contents import ContentsKeeper
from xbus.broker.journal.configuration import detaching
from xbus.broker.journal.configuration.writing import end_cursor, start_cursor
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog, read_version
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.role_progress import MOST_COUNTED
from xbus.broker.journal.operations.roles import RoleStatus, list_roles, read_presence
from xbus.broker.journal.writes import (
    DeliveryMove,
    DeliveryRow,
    NotePresence,
    PresenceInstance,
    PresenceRow,
    PresenceWork,
    ProgressUpdate,
    Register,
    SealReceipt,
)
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import Refused
from xbus.states import DeliveryState, PresenceState

LATER = NOW + timedelta(minutes=5)


async def standing(journal: Journal, login: str = "store_1") -> RoleStatus:
    return next(role for role in await journal.read(list_roles) if role.role == login)


async def change(journal: Journal, what: Callable[..., Any], *args: Any) -> Any:
    """What a command of an operator does, in a transaction of its own."""
    return await journal._writer.run(lambda connection: what(connection, *args))


async def note(journal: Journal, role_id: int, state: PresenceState, work: Any = None) -> None:
    await journal.write(NotePresence([PresenceRow(role_id, state, NOW, NOW, work)], LATER))


def row(role_id: int, receipt: SealReceipt, state: DeliveryState) -> DeliveryRow:
    return DeliveryRow(role_id, receipt.envelope_id, receipt.position, state, 1, "refused", "no")


async def register(journal: Journal, role_id: int) -> None:
    await journal.write(Register(role_id, b"h" * 32, "tcp://here:1", "here", LATER, {"name": "store"}, {}))


async def test_nobody_was_ever_there(journal: Journal, scribe: Scribe) -> None:
    assert [role.role for role in await journal.read(list_roles)] == ["names_1", "prices_1", "store_1", "store_2"]
    worker, consumer = await standing(journal, "names_1"), await standing(journal)
    assert (worker.kind, worker.state, worker.lag, worker.owed_since) == ("worker", PresenceState.ABSENT, None, None)
    assert (consumer.state, consumer.seen_at, consumer.lag, consumer.parked) == (PresenceState.ABSENT, None, 0, 0)


async def test_what_was_noted_is_shown_with_positions(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a"])
    ahead, _ = scribe.start_envelope()
    works = [{"envelope_id": str(envelope_id), "verb": "send_item"} for envelope_id in (receipt.envelope_id, ahead)]
    await note(journal, scribe.role_id(), PresenceState.PRESENT, works)
    await note(journal, scribe.role_id(), PresenceState.SILENT, works)
    shown = await standing(journal)
    assert (shown.state, shown.since, shown.seen_at, shown.noted_at) == (PresenceState.SILENT, NOW, NOW, LATER)
    assert [work["position"] for work in shown.work] == [1, None]
    kept = (await journal.read(read_presence))[scribe.role_id()]
    assert (kept.state, kept.work) == (PresenceState.SILENT, shown.work)
    await note(journal, scribe.role_id(), PresenceState.ABSENT)
    assert (await standing(journal)).work == []


async def test_each_program_of_a_role_is_shown_with_its_work(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a"])
    work: PresenceWork = {"envelope_id": str(receipt.envelope_id), "verb": "send_item", "since": NOW.isoformat()}
    program: PresenceInstance = {
        "uri": "tcp://here:1",
        "state": "present",
        "since": NOW.isoformat(),
        "seen_at": NOW.isoformat(),
        "work": [work],
    }
    idle: PresenceInstance = {**program, "uri": "tcp://here:2", "state": "standby", "work": []}
    row = PresenceRow(scribe.role_id(), PresenceState.PRESENT, NOW, NOW, None, [program, idle])
    await journal.write(NotePresence([row], LATER))
    first, second = (await standing(journal)).instances
    assert [each["position"] for each in first["work"] or ()] == [1]
    assert (second["uri"], second["state"], second["work"]) == ("tcp://here:2", "standby", None)


async def test_lag_counts_all_that_comes_by_itself(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"]) for _ in range(4)]
    cursor = (await journal.read(read_cursors))[scribe.role_id()]
    for position in (1, 3):
        cursor.settle(position)
    await journal.write(ProgressUpdate(NOW, [cursor]))
    shown = await standing(journal)
    assert (shown.lag, shown.owed_since) == (2, NOW)
    parked = row(scribe.role_id(), receipts[1], DeliveryState.PARKED)
    for position in (2, 4):
        cursor.settle(position)
    await journal.write(ProgressUpdate(NOW, [cursor], [DeliveryMove(None, parked)]))
    shown = await standing(journal)
    assert (shown.lag, shown.owed_since, shown.parked) == (0, None, 1)
    await journal.write(
        ProgressUpdate(NOW, [cursor], [DeliveryMove(None, row(scribe.role_id(), receipts[3], DeliveryState.RETRY))])
    )
    shown = await standing(journal)
    assert (shown.lag, shown.owed_since, shown.parked) == (1, NOW, 1)


async def test_lag_counts_envelopes_and_not_positions(journal: Journal, scribe: Scribe) -> None:
    for type_name in ("notes", "secrets", "secrets", "notes"):
        await scribe.put([b"a"], type_name=type_name)
    assert (await standing(journal)).lag == 2


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_long_lag_is_counted_by_the_contents(journal: Journal, scribe: Scribe, is_listed: bool) -> None:
    def put(connection: sa.Connection) -> None:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]], [graphs["secrets"]]] * (MOST_COUNTED + 500))

    await journal.run(put)
    if is_listed:
        await ContentsKeeper(journal, StandingClock()).catch_up()
    lag = (await standing(journal)).lag
    # Up to a block at the end is not listed: it is taken for owed.
    assert lag == MOST_COUNTED + 500 + (952 // 2 if is_listed else MOST_COUNTED + 500)


async def test_what_is_owed_too_long(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    shown = await standing(journal)
    assert not shown.owes_too_long(30, NOW + timedelta(days=30))
    assert shown.owes_too_long(30, NOW + timedelta(days=31))
    assert not shown.owes_too_long(0, NOW + timedelta(days=3100))
    await note(journal, scribe.role_id(), PresenceState.PRESENT)
    assert not (await standing(journal)).owes_too_long(30, NOW + timedelta(days=31))


async def test_a_detached_role_is_owed_nothing(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"]) for _ in range(3)]
    role_id = scribe.role_id()
    cursor = (await journal.read(read_cursors))[role_id]
    cursor.settle(1)
    await journal.write(
        ProgressUpdate(NOW, [cursor], [DeliveryMove(None, row(role_id, receipts[0], DeliveryState.PARKED))])
    )
    version = await journal.read(read_version)
    outlook = await journal.read(detaching.outlook, "store_1")
    assert (outlook.envelopes, outlook.since, outlook.position, outlook.head) == (3, NOW, 1, 3)
    assert outlook.rows == {"parked": 1}

    await change(journal, detaching.detach, "store_1", "it was sold", LATER)
    cursor = (await journal.read(read_cursors))[role_id]
    assert [position for position in range(1, 9) if cursor.owes(position)] == [1]
    assert cursor.unsettled() == []
    assert await journal.read(read_version) == version + 1
    assert (await journal.read(read_catalog)).roles[role_id].detached
    shown = await standing(journal)
    assert (shown.state, shown.lag, shown.owed_since, shown.parked) == (PresenceState.DETACHED, 0, None, 0)
    history = await journal.read(
        lambda connection: connection.execute(
            sa.select(model.history.c.subject, model.history.c.move, model.history.c.reason).order_by(
                model.history.c.id
            )
        ).all()
    )
    assert ("delivery", "dropped", "detached: it was sold") in [tuple(move) for move in history]
    assert ("role", "detached", "it was sold") in [tuple(move) for move in history]
    with pytest.raises(Refused) as refused:
        await change(journal, detaching.detach, "store_1", "again", LATER)
    assert refused.value.code == "role_detached"


async def test_an_attached_role_begins_at_the_head(journal: Journal, scribe: Scribe) -> None:
    for _ in range(3):
        await scribe.put([b"a"])
    await change(journal, detaching.detach, "store_1", "it was sold", LATER)
    assert await change(journal, detaching.attach, "store_1", LATER) == 4
    cursor = (await journal.read(read_cursors))[scribe.role_id()]
    assert cursor == Cursor(scribe.role_id(), 4, None, 3, 0, 3)
    assert not (await journal.read(read_catalog)).roles[scribe.role_id()].detached
    with pytest.raises(Refused) as refused:
        await change(journal, detaching.attach, "store_1", LATER)
    assert refused.value.code == "role_attached"


async def test_naming_a_detached_role_again_does_not_attach_it(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    await change(journal, detaching.detach, "store_1", "it was sold", LATER)
    before = (await journal.read(read_cursors))[scribe.role_id()]
    await change(journal, start_cursor, scribe.role_id())
    await change(journal, end_cursor, scribe.role_id())
    assert (await journal.read(read_cursors))[scribe.role_id()] == before


@pytest.mark.parametrize("login", ["names_1", "nobody"])
async def test_only_a_consumer_role_can_be_detached(journal: Journal, login: str) -> None:
    for command in (detaching.outlook, detaching.attach):
        with pytest.raises(Refused) as refused:
            await change(journal, command, login, *([LATER] if command is detaching.attach else []))
        assert refused.value.code == "unknown_login"


async def test_a_role_that_is_served_can_not_be_detached(journal: Journal, scribe: Scribe) -> None:
    await register(journal, scribe.role_id())
    with pytest.raises(Refused) as refused:
        await change(journal, detaching.detach, "store_1", "why", LATER)
    assert refused.value.code == "role_served"
    # The broker has stopped, and noted that nobody is there: its registration stays for the next start.
    await note(journal, scribe.role_id(), PresenceState.ABSENT)
    await change(journal, detaching.detach, "store_1", "why", LATER)
