"""Small envelopes that came in parts are told as groups when they are sealed, so that the back need not read them."""

import uuid
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.unit.broker.front.conftest import Desk
from xbus import model
from xbus.broker.configuration import Configuration
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.front.envelopes.state import KEPT_BYTES
from xbus.broker.journal.fsck.content import check_content
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import SealedEnvelope, SealedGroup
from xbus.clock import Clock
from xbus.errors import JournalUnavailable
from xbus.rpc.codec import pack_items

LARGE = [b"x" * 900] * (KEPT_BYTES // 900 + 1)


class TickingClock(StandingClock):
    """Goes on whenever it is asked."""

    def now(self) -> datetime:
        self.go_on(1)
        return super().now()


@pytest.fixture
def clock() -> Clock:
    return TickingClock()


@pytest.fixture
def told(journal: Journal) -> list[Any]:
    """The sealed envelopes, as commits tell them."""
    told: list[Any] = []
    journal.on_sealed(told.extend)
    return told


async def ended(desk: Desk, *batches: list[bytes], events: int = 1, type_name: str = "notes") -> uuid.UUID:
    """Send an envelope up to its end."""
    envelope_id = await desk.start_envelope()
    for _ in range(events):
        event_id = await desk.start_event(envelope_id, type_name=type_name)
        for batch in batches:
            await desk.append(envelope_id, event_id, None, batch)
        await desk.end_event(envelope_id, event_id)
    return envelope_id


async def sealed_together(*envelopes: tuple[Desk, uuid.UUID], put: uuid.UUID | None = None) -> list[Any]:
    """Seal envelopes in one turn of the loop, where they are open; gives their receipts.

    Args:
        put: the one of them that is put.
    """
    sealing: list[Any] = []

    def seal() -> None:
        for desk, envelope_id in envelopes:
            if envelope_id == put:
                sealing.append(desk.put_soon(envelope_id, [NewEvent(uuid.uuid4(), "notes", 1, pack_items([b"p"]))]))
            else:
                sealing.append(desk.front.end_envelope(desk.emitter_id, envelope_id, 1))

    envelopes[0][0].journal.turn.run(seal)
    return [await each for each in sealing]


async def test_envelopes_that_end_in_one_turn_of_the_loop_are_a_group(
    north: Desk, south: Desk, told: list[Any]
) -> None:
    first = await ended(north, [b"a"], [b"b", b"c"])
    second = await ended(south, [b"d"])
    third = await ended(north)
    receipts = await sealed_together((north, first), (south, second), (north, third))
    (group,) = told
    assert isinstance(group, SealedGroup)
    assert [group.receipt(place) for place in range(3)] == receipts
    contents = [group.envelope(position) for position in (1, 2, 3)]
    assert [each.emitter_id for each in contents] == [north.emitter_id, south.emitter_id, north.emitter_id]
    batches: list[list[bytes]] = [[b"a", b"b", b"c"], [b"d"], []]
    for desk, content, items in zip((north, south, north), contents, batches, strict=True):
        stored = await desk.stored(content.envelope_id)
        assert stored is not None
        ((event,), (of_journal,)) = content.events, stored.events
        assert (event.event_id, event.type_name, event.items) == (of_journal.event_id, "notes", len(items))
        assert event.data == (pack_items(items) if items else b"")


async def test_a_type_may_be_renamed_while_an_envelope_is_open(
    north: Desk, told: list[Any], configuration: Configuration
) -> None:
    """The hash holds the first name of the type, and recipients get the event by its present one."""
    same = await north.seal(await ended(north, [b"a"]))
    envelope_id = await ended(north, [b"a"])
    rename = sa.update(model.event_type).where(model.event_type.c.name == "notes").values(name="memos")
    new_version = sa.update(model.configuration).values(version=model.configuration.c.version + 1)
    await north.journal.run(lambda connection: (connection.execute(rename), connection.execute(new_version)))
    await configuration.refresh()
    receipt = await north.seal(envelope_id)
    assert receipt.hash == same.hash
    assert told[-1].type_ids is None
    with north.journal._engine.connect() as connection:
        assert [*check_content(connection, lambda rows: None)] == []


@pytest.mark.parametrize("batches", [[LARGE], [[b"a"], LARGE]], ids=["at once", "in the end"])
async def test_a_large_one_stands_between_groups(north: Desk, told: list[Any], batches: list[list[bytes]]) -> None:
    small, large, other = await ended(north, [b"a"]), await ended(north, *batches), await ended(north, [b"b"])
    await sealed_together((north, small), (north, large), (north, other))
    assert [type(each) for each in told] == [SealedGroup, SealedEnvelope, SealedGroup]
    assert [each.first for each in told] == [1, 2, 3]
    assert told[1].content is None


@pytest.mark.parametrize("batches", [[], [[b"a", b"b"]]], ids=["empty", "one batch"])
async def test_its_receipt_is_that_of_the_same_put(north: Desk, told: list[Any], batches: list[list[bytes]]) -> None:
    in_parts = await north.seal(await ended(north, *batches))
    items = [item for batch in batches for item in batch]
    put = await north.put(
        uuid.uuid4(), NewEvent(uuid.uuid4(), "notes", len(items), pack_items(items) if items else b"")
    )
    assert in_parts[2:] == put[2:]
    stored = await north.stored(in_parts.envelope_id)
    assert stored is not None
    assert stored.receipt == in_parts


def closings(connection: sa.Connection) -> list[datetime]:
    """The moments at which all envelopes were closed, in position order."""
    closed = sa.select(model.envelope.c.closed_at).order_by(model.envelope.c.position)
    return [*connection.execute(closed).scalars()]


async def test_moments_grow_with_positions(north: Desk, told: list[Any]) -> None:
    before, put, behind = await ended(north), uuid.uuid4(), await ended(north)
    await sealed_together((north, before), (north, put), (north, behind), put=put)
    moments = await north.journal.read(closings)
    assert [each.first for each in told] == [1, 2, 3]
    assert len({*moments}) == 3
    assert moments == sorted(moments)


async def test_one_of_two_events_is_read_from_the_journal(north: Desk, told: list[Any]) -> None:
    await north.seal(await ended(north, [b"a"], events=2))
    assert [type(each) for each in told] == [SealedEnvelope]


async def test_one_that_was_read_back_after_an_outage_is_read_by_the_back(
    north: Desk, told: list[Any], faults: Faults
) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, None, [b"a"])
    with faults.before_commit():
        with pytest.raises(JournalUnavailable):
            await north.append(envelope_id, event_id, None, [b"b"])
    assert await north.append(envelope_id, event_id, 1, [b"c"]) == 2
    await north.end_event(envelope_id, event_id)
    await north.seal(envelope_id)
    assert [type(each) for each in told] == [SealedEnvelope]
