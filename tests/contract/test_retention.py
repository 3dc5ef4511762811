"""What is removed of the journal, and what stays: the same on every database."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from tests.contract.test_groups import group_type
from tests.contract.test_put import whole
from tests.support.journal import NOW, Scribe, edit_sqlite
from xbus import model
from xbus.broker.journal.fsck.content import check_spent_keys
from xbus.broker.journal.fsck.faults import Fault, FaultCode
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, read_unlisted
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.log.overlays import read_overlays
from xbus.broker.journal.log.reading import read_at, read_log
from xbus.broker.journal.log.repeats import read_past
from xbus.broker.journal.operations.corrections import read_corrected_events
from xbus.broker.journal.retention.pruning import (
    PruningStep,
    forget_keys,
    prune_cancelled,
    prune_settled,
    read_stored_bytes,
)
from xbus.broker.journal.retention.rules import Rule, Rules, Scan
from xbus.broker.journal.writes import (
    Cancel,
    DeliveryMove,
    DeliveryRow,
    Failure,
    ProgressUpdate,
    PutEnvelope,
    PutGroup,
    SealReceipt,
    StartEnvelope,
)
from xbus.envelope import EnvelopeHead
from xbus.errors import EnvelopeIdTaken, JournalError
from xbus.headers import NO_TAGS
from xbus.ids import keyed_envelope_id
from xbus.states import DeliveryState, EnvelopeState

LATER = NOW + timedelta(days=31)
OLD = Scan(Rules(Rule(NOW + timedelta(seconds=1))))
"""What the tests write is sealed just before."""


async def prune(journal: Journal, *, keep_rows: bool = False, scan: Scan = OLD) -> int:
    """Whole rounds of removal, until one finds nothing; how many envelopes went."""
    removed = 0
    while True:
        after: int | None = 0
        of_round = 0
        while after is not None:

            def step(connection: sa.Connection, position: int = after) -> PruningStep:
                return prune_settled(connection, journal.name, position, scan, LATER, keep_rows=keep_rows)

            done = await journal.run(step)
            assert done.after is None or done.after >= after
            of_round += done.envelopes
            after = done.after
        if not of_round:
            return removed
        removed += of_round


def examined(journal: Journal) -> list[Fault]:
    """The faults of its spent keys."""
    with journal._engine.connect() as connection:
        return list(check_spent_keys(connection, lambda rows: None))


async def settle(journal: Journal, scribe: Scribe, upto: int, *roles: str) -> None:
    cursors = await journal.read(read_cursors)
    for role in roles or ("store_1", "store_2"):
        cursors[scribe.role_id(role)].settle_range(1, upto)
    await journal.write(ProgressUpdate(NOW, list(cursors.values())))


async def rows(journal: Journal) -> dict[str, int]:
    """How many rows the log's tables have."""
    tables = (model.envelope, model.event, model.log_segment, model.failure, model.envelope_role)
    counts = {}
    for table in tables:
        count = sa.select(sa.func.count()).select_from(table)
        counts[table.name] = await journal.read(scalar, count)
    return counts


def scalar(connection: sa.Connection, statement: sa.Select[Any]) -> int:
    value: int = connection.execute(statement).scalar_one()
    return value


async def execute(journal: Journal, statement: Any) -> None:
    await journal.run(lambda connection: connection.execute(statement))


async def positions(journal: Journal) -> list[int]:
    """What a reader of the log finds, page by page."""
    found: list[int] = []
    while page := await journal.read(read_log, found[-1] if found else 0, 2):
        found += [envelope.position for envelope in page]
    return found


def parked(scribe: Scribe, receipt: SealReceipt, state: DeliveryState = DeliveryState.PARKED) -> DeliveryRow:
    return DeliveryRow(scribe.role_id(), receipt.envelope_id, receipt.position, state, 1, "refused", "no")


async def test_what_is_settled_for_all_goes_with_all_that_belongs_to_it(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"x" * 10, b"y"], [b"z"]) for _ in range(3)]
    await journal.write(
        ProgressUpdate(NOW, failures=[Failure(receipts[0].envelope_id, None, None, "verb", "code", "why")])
    )
    await settle(journal, scribe, 2)
    assert await prune(journal) == 2
    assert await rows(journal) == {"envelope": 1, "event": 2, "log_segment": 2, "failure": 0, "envelope_role": 0}
    assert await positions(journal) == [3]
    assert await journal.read(read_stored_bytes) == receipts[2].data_bytes
    assert await journal.read(read_envelope, receipts[0].envelope_id) is None
    await settle(journal, scribe, 3)
    assert await prune(journal) == 1
    assert await journal.read(read_stored_bytes) == 0
    assert (await scribe.put([b"more"])).position == 4


async def test_what_is_not_old_enough_stays(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await settle(journal, scribe, 1)
    assert await prune(journal, scan=Scan(Rules(Rule(NOW)))) == 0
    assert await positions(journal) == [1]


async def test_what_a_role_is_owed_stays(journal: Journal, scribe: Scribe) -> None:
    for _ in range(3):
        await scribe.put([b"x"])
    await settle(journal, scribe, 3, "store_1")
    await settle(journal, scribe, 1, "store_2")
    assert await prune(journal) == 1
    assert await positions(journal) == [2, 3]


async def test_a_removed_role_keeps_what_it_is_owed_and_no_more(journal: Journal, scribe: Scribe) -> None:
    for _ in range(4):
        await scribe.put([b"x"])
    await settle(journal, scribe, 4, "store_1")
    await settle(journal, scribe, 1, "store_2")
    cursor = sa.update(model.cursor).where(model.cursor.c.role_id == scribe.role_id("store_2"))
    await execute(journal, cursor.values(until_position=3))
    assert await prune(journal) == 3
    assert await positions(journal) == [2]


async def test_a_detached_role_keeps_nothing(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"])
    await settle(journal, scribe, 1, "store_1")
    role = sa.update(model.role).where(model.role.c.id == scribe.role_id("store_2"))
    await execute(journal, role.values(detached_at=NOW))
    assert await prune(journal) == 1


async def test_what_a_person_decided_about_is_carried_out_first(journal: Journal, scribe: Scribe) -> None:
    for _ in range(2):
        await scribe.put([b"x"])
    await settle(journal, scribe, 2)
    decision = {"move": "dropped", "at": NOW, "reason": "gone", "role_id": scribe.role_id(), "position": 1}
    await execute(journal, sa.insert(model.decision).values(**decision))
    assert await prune(journal) == 1
    await execute(journal, sa.delete(model.decision))
    assert await prune(journal) == 1


async def test_what_goes_its_own_way_stays(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"x"]) for _ in range(3)]
    row = parked(scribe, receipts[1])
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row)]))
    await settle(journal, scribe, 3)
    assert await prune(journal) == 2
    assert await positions(journal) == [2]
    done = parked(scribe, receipts[1], DeliveryState.SETTLED)
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(DeliveryState.PARKED, done)]))
    assert await prune(journal) == 1


async def test_an_item_that_a_person_decides_on_keeps_its_envelope(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x", b"y"])
    await settle(journal, scribe, 1)
    (event,) = (await journal.read(read_at, [1]))[0].events
    item = {
        "role_id": scribe.role_id(),
        "event_id": event.event_id,
        "item_index": 1,
        "envelope_id": receipt.envelope_id,
    }
    rest = {"state": "parked", "code": "refused", "cause": "no", "changed_at": NOW}
    await execute(journal, sa.insert(model.parked_item).values(**item, **rest))
    assert await prune(journal) == 0
    await execute(journal, sa.update(model.parked_item).values(state="dropped"))
    correction = {"role_id": scribe.role_id(), "event_id": event.event_id, "item_index": 0, "before": b"", "after": b""}
    await execute(journal, sa.insert(model.correction).values(**correction, at=NOW, reason="typo"))
    assert await prune(journal) == 1


async def test_what_is_repeated_by_another_stays_as_long_as_that(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    await journal.write(await scribe.again(receipt.envelope_id))
    _, repeat = await journal.read(read_at, [1, 2])
    for_all = {"event_id": repeat.events[0].segments_id, "item_index": 0, "before": b"x", "after": b"y"}
    await execute(journal, sa.insert(model.correction).values(**for_all, at=NOW, reason="typo"))
    await settle(journal, scribe, 1)
    assert await prune(journal) == 0
    assert await journal.read(read_overlays, None, repeat.envelope_id)
    await settle(journal, scribe, 2)
    assert await prune(journal) == 2
    assert await journal.read(read_corrected_events, 0) == []
    assert await journal.read(read_stored_bytes) == 0


async def test_what_nobody_can_get_yet_waits_for_the_first_role_of_its_service(
    journal: Journal, scribe: Scribe
) -> None:
    await scribe.put([b"x"], type_name="flights")
    await settle(journal, scribe, 1)
    await execute(journal, sa.delete(model.cursor))
    assert await prune(journal) == 0


async def test_a_type_without_a_consumer_keeps_nothing(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"x"], type_name="secrets")
    assert await prune(journal, scan=replace(OLD, claimed=True)) == 0
    assert await prune(journal) == 1


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_absent_role_keeps_its_own_types_alone(journal: Journal, scribe: Scribe, is_listed: bool) -> None:
    """Notes lead to the store, which is away; fares lead elsewhere, and secrets nowhere."""
    kinds = ["notes", "fares", "notes", "secrets", "fares", "notes"] * 2
    for kind in kinds:
        await scribe.put([b"x"], type_name=kind)
    await lead_to_another_service(journal, "fares", "store_2")
    await settle(journal, scribe, len(kinds), "store_2")
    if is_listed:
        await list_all(journal)
    assert await prune(journal) == kinds.count("fares") + kinds.count("secrets")
    assert await positions(journal) == [place for place, kind in enumerate(kinds, 1) if kind == "notes"]


async def test_an_envelope_with_events_of_two_types_stays_for_either(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    for number, type_name in enumerate(("secrets", "notes"), start=1):
        event_id, _ = scribe.start_event(envelope_id, number, type_name)
        scribe.append(envelope_id, event_id, 0, [b"x"])
        scribe.end_event(envelope_id, event_id, 1)
    await scribe.seal(envelope_id, 2, 2)
    await list_all(journal)
    assert await prune(journal) == 0
    await settle(journal, scribe, 1)
    assert await prune(journal) == 1


async def lead_to_another_service(journal: Journal, type_name: str, role: str) -> None:
    """Have a type lead to a service of its own, which a role serves that has got all."""
    graphs = sa.select(model.graph.c.id).join(model.event_type).where(model.event_type.c.name == type_name)
    store = sa.select(model.service.c.id).where(model.service.c.name == "store").scalar_subquery()
    nodes = sa.update(model.node).where(model.node.c.graph_id.in_(graphs), model.node.c.service_id == store)

    def edit(connection: sa.Connection) -> None:
        made = sa.insert(model.service).values(name="elsewhere", kind="consumer").returning(model.service.c.id)
        service_id = connection.execute(made).scalar_one()
        of_role = sa.update(model.role).where(model.role.c.login == role)
        connection.execute(of_role.values(service_id=service_id))
        connection.execute(nodes.values(service_id=service_id))

    await journal.run(edit)


async def list_all(journal: Journal) -> None:
    """List the log in the table of contents, as if a block of it were full."""
    await execute(journal, sa.update(model.head).values(position=BLOCK_POSITIONS))
    listed = await journal.read(read_unlisted)
    assert listed is not None
    await journal.write(listed)


def keyed(scribe: Scribe, key: str) -> PutEnvelope:
    """An envelope with a key, as the front has it written."""
    whole_one = whole(scribe, [key.encode()], key=key)
    return replace(whole_one, envelope_id=keyed_envelope_id(whole_one.emitter_id, key, 0))


async def spent_keys(journal: Journal) -> list[str]:
    wanted = sa.select(model.spent_key.c.key).order_by(model.spent_key.c.key)
    return await journal.read(lambda connection: list(connection.execute(wanted).scalars()))


@pytest.mark.parametrize("keep_rows", [False, True])
async def test_a_key_outlives_its_envelope(journal: Journal, scribe: Scribe, keep_rows: bool) -> None:
    first = keyed(scribe, "order 1")
    receipt = await journal.write(first)
    await scribe.put([b"y"])
    await settle(journal, scribe, 2)
    assert await prune(journal, keep_rows=keep_rows) == 2
    await prune(journal)
    assert sum((await rows(journal)).values()) == 0
    stored = await journal.read(read_envelope, first.envelope_id)
    assert stored is not None
    assert (stored.receipt, stored.content_hash, stored.pruned, stored.head.key) == (
        *(receipt, receipt.hash, True, "order 1"),
    )
    assert await journal.read(read_past, first.envelope_id) is None
    with pytest.raises(EnvelopeIdTaken):
        await journal.write(first)
    assert examined(journal) == []
    await execute(journal, sa.update(model.spent_key).values(key="order 2"))
    (fault,) = examined(journal)
    assert (fault.code, fault.row) == (FaultCode.ENVELOPE_CHANGED, str(first.envelope_id))


async def test_a_group_leaves_out_whose_key_is_spent(journal: Journal, scribe: Scribe) -> None:
    await journal.write(keyed(scribe, "order 1"))
    await settle(journal, scribe, 1)
    await prune(journal)
    writes = [keyed(scribe, f"order {number}") for number in range(3)]
    of_type = group_type(scribe, "notes")
    events = [write.events[0] for write in writes]
    group = PutGroup(
        emitter_ids=[scribe.emitter_id()] * 3,
        at=NOW,
        envelope_ids=[write.envelope_id.bytes for write in writes],
        event_ids=[event.event_id.bytes for event in events],
        types=[of_type] * 3,
        items=[1] * 3,
        data=[event.data for event in events],
        heads=[write.head for write in writes],
        tags=[NO_TAGS] * 3,
        size=sum(write.size for write in writes),
    )
    sealed = await journal.write(group)
    assert (sealed.taken, len(sealed.hashes)) == ({1: None}, 2)
    assert await positions(journal) == [2, 3]


async def test_a_cancelled_key_is_free_and_known(journal: Journal, scribe: Scribe) -> None:
    envelope_id = keyed_envelope_id(scribe.emitter_id(), "order 1", 0)
    await journal.write(StartEnvelope(envelope_id, scribe.emitter_id(), NOW, EnvelopeHead(key="order 1")))
    await journal.write(Cancel(envelope_id, NOW, "changed its mind"))
    await journal.run(lambda connection: prune_cancelled(connection, journal.name, LATER, LATER))
    assert (await rows(journal))["envelope"] == 0
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert (stored.state, stored.receipt, stored.reason) == (EnvelopeState.CANCELLED, None, "changed its mind")


async def test_keys_go_when_their_profile_no_longer_keeps_them(journal: Journal, scribe: Scribe) -> None:
    await journal.write(keyed(scribe, "order 1"))
    await settle(journal, scribe, 1)
    await prune(journal)
    for seconds, left in ((None, 1), (1e300, 1), (32 * 86_400, 1), (30 * 86_400, 0)):
        await execute(journal, sa.update(model.emitter_profile).values(keep_keys=seconds))
        step = await journal.run(lambda connection: forget_keys(connection, LATER))
        assert (step.envelopes, len(await spent_keys(journal))) == (1 - left, left)
    assert (await journal.write(keyed(scribe, "order 1"))).position == 2
    await settle(journal, scribe, 2)
    await prune(journal)
    await execute(journal, sa.update(model.emitter_profile).values(keep_keys=-1))
    step = await journal.run(lambda connection: forget_keys(connection, LATER))
    assert (step.envelopes, step.after, len(await spent_keys(journal))) == (0, None, 1)


async def test_a_moment_that_cannot_be_read_lets_no_key_and_nothing_cancelled_go(
    journal: Journal, scribe: Scribe
) -> None:
    await journal.write(keyed(scribe, "order 1"))
    await settle(journal, scribe, 1)
    await prune(journal)
    envelope_id, _ = scribe.start_envelope()
    await journal.write(Cancel(envelope_id, NOW, "changed its mind"))
    for table in ("spent_key", "envelope"):
        await edit_sqlite(journal, f"UPDATE {table} SET closed_at = '11/27/2026'")
    await execute(journal, sa.update(model.emitter_profile).values(keep_keys=1))
    forgotten = await journal.run(lambda connection: forget_keys(connection, LATER))
    gone = await journal.run(lambda connection: prune_cancelled(connection, journal.name, LATER, LATER))
    assert (forgotten.envelopes, gone.envelopes) == (0, 0)


async def test_rows_that_are_kept_for_good_are_passed_in_small_steps(journal: Journal, scribe: Scribe) -> None:
    for _ in range(9):
        await scribe.put([b"x"])
    await settle(journal, scribe, 9)
    assert await prune(journal, keep_rows=True) == 9
    receipt = await scribe.put([b"x"])
    await settle(journal, scribe, receipt.position)

    def steps(connection: sa.Connection) -> list[PruningStep]:
        step = partial(prune_settled, connection, journal.name, keep_rows=True, scanned_positions=3)
        found = [step(0, OLD, LATER)]
        while (after := found[-1].after) is not None:
            found.append(step(after, OLD, LATER))
        return found

    done = await journal.run(steps)
    assert [(step.envelopes, step.after) for step in done] == [(0, 4), (0, 8), (1, 10), (0, None)]


async def test_where_space_is_wanted_receipts_stay_until_their_time(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"])
    await settle(journal, scribe, 1)
    assert await prune(journal, keep_rows=True) == 1
    assert await journal.read(read_stored_bytes) == 0
    stored = await journal.read(read_envelope, receipt.envelope_id)
    assert stored is not None
    assert stored.receipt == receipt
    assert await prune(journal) == 1
    assert await journal.read(read_envelope, receipt.envelope_id) is None


async def test_a_large_envelope_goes_piece_by_piece_and_can_not_be_repeated_meanwhile(
    journal: Journal, scribe: Scribe
) -> None:
    receipt = await put_in_pieces(scribe, [b"x" * 600] * 7)
    again = await scribe.again(receipt.envelope_id)
    await settle(journal, scribe, 1)
    step = partial(prune_settled, keep_rows=False, step_bytes=1000)
    done = await journal.run(step, journal.name, 0, OLD, LATER)
    assert (done.envelopes, done.after) == (0, 0)
    assert 1000 <= done.data_bytes < 2000
    assert await journal.read(read_stored_bytes) == receipt.data_bytes - done.data_bytes
    with pytest.raises(JournalError):
        await journal.write(again)
    (envelope,) = await journal.read(read_log, 0, 10)
    assert envelope.events == ()
    assert await prune(journal) == 1
    assert sum((await rows(journal)).values()) == 0
    assert await journal.read(read_stored_bytes) == 0


async def put_in_pieces(scribe: Scribe, items: Sequence[bytes]) -> SealReceipt:
    """An envelope with a segment for each item."""
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    for index, item in enumerate(items):
        await scribe.append(envelope_id, event_id, index, [item])
    scribe.end_event(envelope_id, event_id, len(items))
    return await scribe.seal(envelope_id, 1, len(items))


async def test_what_was_cancelled_goes_too(journal: Journal, scribe: Scribe) -> None:
    ids = []
    for _ in range(3):
        envelope_id, _ = scribe.start_envelope()
        event_id, _ = scribe.start_event(envelope_id)
        await scribe.append(envelope_id, event_id, 0, [b"x"])
        ids.append((envelope_id, event_id))
    for envelope_id, _ in ids[:2]:
        await journal.write(Cancel(envelope_id, NOW, "changed its mind"))
    await execute(
        journal,
        sa.insert(model.reply).values(event_id=ids[1][1], envelope_id=ids[1][0], state="held", until=NOW),
    )
    done = await journal.run(lambda connection: prune_cancelled(connection, journal.name, LATER, LATER))
    assert done.envelopes == 1
    done = await journal.run(lambda connection: prune_cancelled(connection, journal.name, LATER, LATER))
    assert (done.envelopes, done.after) == (0, None)
    left = [envelope_id for envelope_id, _ in ids if await journal.read(read_envelope, envelope_id) is not None]
    assert left == [ids[1][0], ids[2][0]]


async def test_readers_pass_what_is_gone(journal: Journal, scribe: Scribe) -> None:
    for _ in range(9):
        await scribe.put([b"x"])
    gone = sa.select(model.envelope.c.id).where(model.envelope.c.position.between(2, 7))
    for statement in (
        sa.delete(model.segment),
        sa.delete(model.event),
        sa.delete(model.envelope).where(model.envelope.c.id.in_(gone)),
    ):
        await execute(journal, statement)
    assert await positions(journal) == [1, 8, 9]
    assert await journal.read(read_log, 9, 2) == []


async def test_unknown_ids_are_nothing(journal: Journal) -> None:
    assert await journal.read(read_past, uuid.uuid4()) is None
    assert await prune(journal) == 0
