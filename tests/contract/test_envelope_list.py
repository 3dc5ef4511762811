"""Lists of envelopes by what is known of them: with the table of contents and without it; on every database."""

import random
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from tests.support.long_log import list_all, newest_graphs, put_log, undone
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import (
    BLOCK_POSITIONS,
    count_listed,
    find_newest,
)
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.operations.envelopes.details import resolve_envelope, shorten
from xbus.broker.journal.operations.envelopes.listing import EnvelopeFilters, list_envelopes
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, ProgressUpdate, StartEnvelope
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.ids import keyed_envelope_id
from xbus.states import DeliveryState, EnvelopeState

RARE, USUAL = "flights", "notes"


def positions(connection: sa.Connection, before: uuid.UUID | None = None, **filters: Any) -> list[int | None]:
    found = list_envelopes(connection, EnvelopeFilters(**filters), before, 1000)
    return [summary.position for summary in found]


def put_rare(connection: sa.Connection, places: Sequence[int], length: int) -> list[uuid.UUID]:
    graphs = newest_graphs(connection)
    return put_log(connection, [[graphs[RARE if place in places else USUAL]] for place in range(1, length + 1)])


@pytest.mark.long
@pytest.mark.parametrize("listed_blocks", [0, 1, 1000])
def test_a_rare_type_is_listed_wherever_it_lies(engine: sa.Engine, listed_blocks: int) -> None:
    places = [1, 7, BLOCK_POSITIONS, BLOCK_POSITIONS + 1, 2 * BLOCK_POSITIONS + 5]
    with undone(engine) as connection:
        ids = put_rare(connection, places, 2 * BLOCK_POSITIONS + 9)
        list_all(connection, listed_blocks)
        assert positions(connection, event_type=RARE) == places[::-1]
        assert positions(connection, ids[BLOCK_POSITIONS], event_type=RARE) == [BLOCK_POSITIONS, 7, 1]
        assert positions(connection, event_type=RARE, since=NOW + timedelta(seconds=1)) == []
        assert positions(connection, event_type=RARE, emitter="south") == []
        graphs = {newest_graphs(connection)[RARE]}
        assert find_newest(connection, graphs, BLOCK_POSITIONS + 1, 2, 1) == [BLOCK_POSITIONS, 7]
    engine.dispose()


def test_a_rare_type_is_listed_without_reading_the_rest(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        put_rare(connection, [3], 6 * BLOCK_POSITIONS)
        list_all(connection)
        read: list[int] = []
        sa.event.listen(engine, "after_cursor_execute", lambda *call: read.append(1))
        assert positions(connection, event_type=RARE) == [3]
    assert len(read) < 25
    engine.dispose()


@pytest.mark.parametrize("filters", [EnvelopeFilters(), EnvelopeFilters(event_type=RARE)])
def test_a_page_takes_as_many_statements_as_one_envelope(engine: sa.Engine, filters: EnvelopeFilters) -> None:
    statements: list[str] = []
    with undone(engine) as connection:
        put_rare(connection, [*range(1, 51)], 50)
        sa.event.listen(engine, "after_cursor_execute", lambda *call: statements.append(call[2]))
        of_one = len(list_envelopes(connection, filters, None, 1)), len(statements)
        of_page = len(list_envelopes(connection, filters, None, 50)), len(statements) - of_one[1]
    assert (of_one[0], of_page[0]) == (1, 50)
    assert of_page[1] <= of_one[1] < 20, statements
    engine.dispose()


def test_all_that_the_contents_name_are_counted(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        put_rare(connection, [3, 5, 1500], 2 * BLOCK_POSITIONS)
        list_all(connection)
        graphs = {newest_graphs(connection)[RARE]}
        counts = [count_listed(connection, graphs, *span) for span in ((0, 2048), (3, 2048), (5, 1499), (7, 7))]
    assert counts == [3, 2, 0, 0]
    engine.dispose()


def test_envelopes_of_one_moment_are_in_the_order_of_the_log(engine: sa.Engine) -> None:
    """Their ids are random."""
    with undone(engine) as connection:
        put_rare(connection, [], 30)
        first = list_envelopes(connection, limit=12)
        assert [summary.position for summary in first] == [*range(30, 18, -1)]
        assert positions(connection, first[-1].id) == [*range(18, 0, -1)]
    engine.dispose()


async def open_with_key(journal: Journal, emitter_id: int, key: str, generation: int = 0) -> uuid.UUID:
    envelope_id = keyed_envelope_id(emitter_id, key, generation)
    await journal.write(StartEnvelope(envelope_id, emitter_id, NOW, EnvelopeHead(None, key)))
    return envelope_id


async def test_an_envelope_is_found_by_its_key(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    north = await open_with_key(journal, scribe.emitter_id(), "order 1")
    south = await open_with_key(journal, scribe.emitter_id("south"), "order 1")

    async def found(**filters: Any) -> set[uuid.UUID]:
        listed = await journal.read(list_envelopes, EnvelopeFilters(**filters))
        assert {summary.key for summary in listed} <= {"order 1"}
        return {summary.id for summary in listed}

    assert await found(key="order 1") == {north, south}
    assert await found(key="order 1", emitter="south") == {south}
    assert await found(key="order 2") == set()

    def cancel(connection: sa.Connection) -> None:
        connection.execute(
            sa.update(model.envelope).where(model.envelope.c.id == north).values(state="cancelled", closed_at=NOW)
        )

    await journal.run(cancel)
    again = await open_with_key(journal, scribe.emitter_id(), "order 1", 1)
    assert await found(key="order 1", emitter="north") == {north, again}
    assert await found(key="order 1", state=EnvelopeState.OPEN) == {again, south}


async def test_what_is_undelivered_is_listed_whatever_keeps_it(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"]) for _ in range(6)]
    cursors = await journal.read(read_cursors)
    moves = []
    for login, done in (("store_1", (1, 2, 3, 4, 6)), ("store_2", (1, 2, 3, 4, 5, 6))):
        for position in done:
            cursors[scribe.role_id(login)].settle(position)
    for place, state in ((1, DeliveryState.RETRY), (2, DeliveryState.PARKED)):
        receipt = receipts[place]
        row = DeliveryRow(scribe.role_id(), receipt.envelope_id, receipt.position, state, 1, "refused", "no")
        moves.append(DeliveryMove(None, row))
    await journal.write(ProgressUpdate(NOW, list(cursors.values()), moves))

    async def found(**filters: Any) -> list[int | None]:
        return await journal.read(lambda connection: positions(connection, undelivered=True, **filters))

    assert await found() == [5, 3, 2]
    assert await found(role="store_1") == [5, 3, 2]
    assert await found(role="store_2") == []
    assert await found(event_type="flights") == []
    assert await journal.read(lambda connection: positions(connection, role="store_2")) == [6, 5, 4, 3, 2, 1]
    assert await journal.read(lambda connection: positions(connection, role="names_1")) == []


async def test_what_waits_for_the_first_role_of_a_service_is_undelivered(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])

    def remove_roles(connection: sa.Connection) -> None:
        role, cursor = model.role.c, model.cursor
        stores = sa.select(role.id).join(model.service).where(model.service.c.name == "store")
        connection.execute(sa.delete(cursor).where(cursor.c.role_id.in_(stores)))
        connection.execute(sa.delete(model.role).where(role.id.in_(stores.scalar_subquery())))

    await journal.run(remove_roles)
    assert await journal.read(lambda connection: positions(connection, undelivered=True)) == [1]


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ({"event_type": "x"}, "unknown_type"),
        ({"emitter": "x"}, "unknown_login"),
        ({"role": "x"}, "unknown_login"),
        ({"role": "x", "undelivered": True}, "unknown_login"),
    ],
)
def test_an_unknown_name_is_refused(engine: sa.Engine, filters: dict[str, Any], code: str) -> None:
    with undone(engine) as connection, pytest.raises(Refused) as refused:
        positions(connection, **filters)
    assert refused.value.code == code
    engine.dispose()


# -- short ids ---------------------------------------------------------------------------------------------------------


def test_a_short_id_is_of_one_envelope_only(engine: sa.Engine) -> None:
    numbers = random.Random(4711)
    with undone(engine) as connection:
        ids = put_rare(connection, [], 300)
        for place in (0, 7, 299):
            # Made in the same millisecond.
            near = uuid.UUID(int=ids[place].int ^ numbers.getrandbits(40))
            envelope = model.envelope
            row = dict(connection.execute(sa.select(envelope).where(envelope.c.id == ids[place])).one()._mapping)
            connection.execute(sa.insert(envelope).values(row | {"id": near, "position": None, "state": "open"}))
            ids.append(near)
        short = shorten(connection, ids)
        assert len(set(short.values())) == len(ids)
        for envelope_id, text in short.items():
            assert str(envelope_id).startswith(text)
            assert len(text) >= 8
            assert resolve_envelope(connection, text.replace("-", "")) == envelope_id
        with pytest.raises(Refused) as refused:
            resolve_envelope(connection, short[ids[0]].replace("-", "")[:-1])
        assert refused.value.code == "ambiguous_id"
        assert {str(ids[0]), str(ids[300])} <= set(refused.value.next_step.replace(",", "").split())
        with pytest.raises(Refused) as refused:
            resolve_envelope(connection, "0" * 31)
        assert refused.value.code == "envelope_unknown"
    engine.dispose()
