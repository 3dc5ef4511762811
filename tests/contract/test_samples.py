"""Samples for the monitor: what is counted, who lacks what, and how samples are kept and thinned."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from tests.support.journal import NOW, Scribe, settle_all
from tests.support.long_log import list_all, newest_graphs, put_log
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_head, read_log
from xbus.broker.journal.samples.attention import AttentionGroup, read_attention
from xbus.broker.journal.samples.outline import read_bus
from xbus.broker.journal.samples.sample import (
    KEPT,
    STEP,
    Count,
    Delivered,
    RoleLag,
    Sample,
    floor,
    keep,
    read_of_role,
    read_samples,
    read_totals,
)
from xbus.broker.journal.samples.taking import (
    AheadOfRole,
    LagReader,
    RoleFigures,
    TakenSample,
    count_traffic,
    read_roles,
    take,
)
from xbus.broker.journal.writes import (
    DeliveryMove,
    DeliveryRow,
    Failure,
    IsolatedItem,
    NotePresence,
    PresenceRow,
    ProgressUpdate,
    SealReceipt,
)
from xbus.states import DeliveryState, PresenceState

SECOND = timedelta(seconds=1)
EARLIER = NOW - 10 * SECOND
LATER = NOW + timedelta(minutes=5)


def row(role_id: int, receipt: SealReceipt, state: DeliveryState, code: str = "why") -> DeliveryRow:
    return DeliveryRow(role_id, receipt.envelope_id, receipt.position, state, 1, code, "a reason", None)


async def roles_of(journal: Journal, lags: LagReader | None = None, most: int = 100) -> Mapping[str, RoleFigures]:
    found = await journal.read(read_roles, 1, lags or LagReader(), most)
    return {role.login: role for role in found}


async def ahead_of(journal: Journal, scribe: Scribe, lags: LagReader) -> Mapping[str, AheadOfRole]:
    """What is ahead of each role, by login."""
    services = {role.id: role.service_id for role in await journal.read(read_role_rows)}
    found = await journal.read(lags.read, 1, services)
    return {entry.login: found[entry.id] for entry in scribe.catalog.roles.values() if entry.id in found}


def read_role_rows(connection: sa.Connection) -> list[sa.Row[int, int]]:
    return [*connection.execute(sa.select(model.role.c.id, model.role.c.service_id))]


async def sample_at(journal: Journal, seconds: float, lags: LagReader | None = None) -> TakenSample:
    """Take a sample so many seconds after the beginning, and keep it."""
    taken = await journal.read(take, lags or LagReader(), NOW + seconds * SECOND)
    assert await journal.run(keep, taken.sample)
    return taken


async def test_roles_of_a_new_bus_lack_nothing(journal: Journal) -> None:
    roles = await roles_of(journal)
    assert list(roles) == ["names_1", "prices_1", "store_1", "store_2"]
    for role in roles.values():
        assert (role.state, role.lag, role.owed_since, role.parked, role.parked_items) == (
            PresenceState.ABSENT,
            0,
            None,
            0,
            0,
        )


async def test_what_a_role_lacks(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a", b"b"]) for _ in range(4)]
    role_id = scribe.role_id()
    cursor = (await journal.read(read_cursors))[role_id]
    cursor.settle_range(1, 3)
    (log,) = await journal.read(read_log, 0, 1)
    isolated = [IsolatedItem(log.events[0].event_id, 0, "refused", "bad")]
    moves = [
        DeliveryMove(None, row(role_id, receipts[0], DeliveryState.PARKED), isolated=isolated),
        DeliveryMove(None, row(role_id, receipts[1], DeliveryState.RETRY)),
        DeliveryMove(None, row(role_id, receipts[2], DeliveryState.HELD)),
    ]
    await journal.write(ProgressUpdate(LATER, cursors=[cursor], deliveries=moves))
    await journal.write(NotePresence([PresenceRow(role_id, PresenceState.PRESENT, NOW, NOW)], LATER))
    roles = await roles_of(journal)
    store, other = roles["store_1"], roles["store_2"]
    assert (store.state, store.since, store.lag, store.owed_since) == (PresenceState.PRESENT, NOW, 3, NOW)
    assert (store.parked, store.parked_items) == (1, 1)
    assert store.arrears(NOW + 7 * SECOND) == RoleLag(3, 7.0, 2)
    assert (other.state, other.lag, other.parked) == (PresenceState.ABSENT, 4, 0)
    assert roles["names_1"].lag == 0


async def test_counting_rows_ends_at_a_limit(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"]) for _ in range(4)]
    await settle_all(journal, 4)
    role_id = scribe.role_id()
    rows = [row(role_id, receipt, DeliveryState.PARKED) for receipt in receipts]
    await journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, each) for each in rows]))
    assert (await roles_of(journal, most=2))["store_1"].parked == 2
    assert (await roles_of(journal, most=4))["store_1"].parked == 4


async def test_lag_is_counted_where_the_log_is_listed_and_where_not(journal: Journal, scribe: Scribe) -> None:
    def build(connection: sa.Connection) -> None:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]], [graphs["secrets"]]] * 1100)
        list_all(connection)

    await journal.run(build)
    assert (await ahead_of(journal, scribe, LagReader())) == {
        "store_1": AheadOfRole(1100, NOW),
        "store_2": AheadOfRole(1100, NOW),
    }
    cursors = await journal.read(read_cursors)
    cursor = cursors[scribe.role_id()]
    cursor.settle_range(1, 100)
    cursor.settle_range(1001, 2100)
    await journal.write(ProgressUpdate(NOW, cursors=[cursor]))
    assert (await ahead_of(journal, scribe, LagReader()))["store_1"] == AheadOfRole(500, NOW + 100 * SECOND)


async def test_a_long_lag_is_an_estimate(journal: Journal, scribe: Scribe) -> None:
    def build(connection: sa.Connection) -> None:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]], [graphs["secrets"]]] * 2500)
        list_all(connection)

    await journal.run(build)
    ahead = (await ahead_of(journal, scribe, LagReader(most_listed=1024, most_unlisted=64)))["store_1"]
    assert ahead == AheadOfRole(2500, NOW)


async def test_what_is_for_other_roles_is_no_lag_and_is_looked_at_once(journal: Journal, scribe: Scribe) -> None:
    def give_all_to_another(connection: sa.Connection) -> None:
        other = scribe.role_id("store_2")
        ids = connection.execute(sa.select(model.envelope.c.id)).scalars().all()
        connection.execute(sa.update(model.envelope).values(origin_id=ids[0]))
        connection.execute(sa.insert(model.envelope_role), [{"envelope_id": each, "role_id": other} for each in ids])

    for _ in range(200):
        await scribe.put([b"a"])
    await journal.run(give_all_to_another)
    lags = LagReader()
    # So many are looked at in one sample; the next one goes on.
    assert (await ahead_of(journal, scribe, lags))["store_1"] == AheadOfRole(200 - 128, None)
    assert "store_1" not in await ahead_of(journal, scribe, lags)
    assert (await ahead_of(journal, scribe, lags))["store_2"] == AheadOfRole(200, NOW)
    await scribe.put([b"a"])
    assert (await ahead_of(journal, scribe, lags))["store_1"] == AheadOfRole(1, NOW)


async def test_traffic_by_emitter_and_type(journal: Journal, scribe: Scribe) -> None:
    for _ in range(3):
        await scribe.put([b"a", b"b"], [b"c"])
    await scribe.put([b"a"], type_name="flights")
    notes, flights = (scribe.catalog.event_types[name].id for name in ("notes", "flights"))
    north = scribe.emitter_id()
    assert await journal.read(count_traffic, 0, 4) == {
        (north, notes): Count(6, 9),
        (north, flights): Count(1, 1),
    }
    assert await journal.read(count_traffic, 1, 3) == {(north, notes): Count(4, 6)}
    assert await journal.read(count_traffic, 4, 4) == {}


async def test_much_traffic_is_an_estimate(journal: Journal, scribe: Scribe) -> None:
    for _ in range(40):
        await scribe.put([b"a", b"b"])
    notes = scribe.catalog.event_types["notes"].id
    found = await journal.read(count_traffic, 0, 40, 8)
    assert found == {(scribe.emitter_id(), notes): Count(40, 80)}


async def test_samples_follow_each_other(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    first = (await sample_at(journal, 3)).sample
    # Nobody knows when that came which was there already.
    assert (first.began_at, first.ended_at, first.observed, first.position) == (EARLIER, NOW + 3 * SECOND, 0, 1)
    assert (first.envelopes, first.events, first.items) == (0, 0, 0)
    for _ in range(2):
        await scribe.put([b"a", b"b"])
    second = (await sample_at(journal, 13)).sample
    assert (second.began_at, second.observed, second.position) == (NOW + 3 * SECOND, 10, 3)
    assert (second.envelopes, second.events, second.items) == (2, 2, 4)
    # Two roles of the service lack three envelopes each.
    assert (second.lag, second.lag_seconds) == (6, 13.0)
    assert await journal.read(read_samples, STEP, EARLIER) == [first, second]
    (only,) = await journal.read(read_totals, STEP, NOW + SECOND)
    assert (only.items, only.traffic) == (4, {})


async def test_of_two_monitors_one_counts(journal: Journal, scribe: Scribe) -> None:
    await sample_at(journal, 0)
    await scribe.put([b"a"])
    one = await journal.read(take, LagReader(), NOW + 10 * SECOND)
    other = await journal.read(take, LagReader(), NOW + 11 * SECOND)
    assert [await journal.run(keep, each.sample) for each in (one, other)] == [True, False]
    next_of_other = await journal.read(take, LagReader(), NOW + 21 * SECOND)
    assert (next_of_other.sample.began_at, next_of_other.sample.envelopes) == (NOW + 10 * SECOND, 0)
    assert await journal.run(keep, next_of_other.sample)
    assert sum(each.items for each in await journal.read(read_samples, STEP, NOW)) == 1


@pytest.mark.parametrize("seconds", [60, 3600, -30])
async def test_after_a_gap_counting_begins_anew(journal: Journal, scribe: Scribe, seconds: float) -> None:
    await sample_at(journal, 10)
    await scribe.put([b"a"])
    sample = (await sample_at(journal, 10 + seconds)).sample
    assert (sample.observed, sample.envelopes, sample.position) == (0, 0, 1)


async def test_a_journal_that_was_put_back_is_counted_anew(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    await sample_at(journal, 0)
    await journal.run(lambda connection: connection.execute(sa.update(model.head).values(position=0)).close())
    assert (await sample_at(journal, 10)).sample.observed == 0


def plain(began_at: datetime, seconds: int = 10, **figures: int) -> Sample:
    """A sample of one emitter, type and role."""
    items = figures.get("items", 1)
    return Sample(
        STEP,
        began_at,
        began_at + seconds * SECOND,
        seconds,
        position=1,
        envelopes=1,
        events=1,
        items=items,
        lag=figures.get("lag", 0),
        traffic={(1, 2): Count(1, items)},
        roles={3: RoleLag(figures.get("lag", 0), 0.5, 1)},
        delivered={3: Delivered(1, items), 4: Delivered(2, 0)},
    )


async def test_samples_are_thinned(journal: Journal) -> None:
    def fill(connection: sa.Connection, hours: int) -> None:
        for number in range(360 * hours):
            keep(connection, plain(NOW + 10 * number * SECOND, items=2, lag=number))

    await journal.run(fill, 2)
    steps = {step: await journal.read(read_samples, step, NOW) for step in KEPT}
    assert {step: len(samples) for step, samples in steps.items()} == {10: 360, 60: 120, 900: 8, 5400: 1}
    minute, quarter = steps[60][1], steps[900][1]
    assert (minute.began_at, minute.ended_at, minute.observed) == (NOW + 60 * SECOND, NOW + 120 * SECOND, 60)
    assert (minute.envelopes, minute.items, minute.lag) == (6, 12, 11)
    assert (minute.traffic, minute.roles) == ({(1, 2): Count(6, 12)}, {3: RoleLag(11, 0.5, 1)})
    assert minute.delivered == {3: Delivered(6, 12), 4: Delivered(12, 0)}
    of_role = await journal.read(read_of_role, 60, minute.began_at, 3)
    assert (of_role[0].roles, of_role[0].delivered) == (minute.roles, {3: Delivered(6, 12)})
    assert (quarter.began_at, quarter.items, quarter.lag) == (NOW + 900 * SECOND, 180, 179)
    assert all(sum(sample.items for sample in steps[step]) == 1440 for step in (60, 900))
    # The longest samples end before now, and shorter ones go on from there.
    lately = await journal.read(read_totals, 5400, NOW)
    assert [(sample.step, sample.items) for sample in lately] == [(5400, 1080), (900, 180), (900, 180)]
    told = await journal.read(read_of_role, 5400, NOW, 3)
    assert sum(sample.delivered[3].items for sample in told) == 1440


async def test_thinning_goes_on_after_a_gap(journal: Journal) -> None:
    def fill(connection: sa.Connection) -> None:
        for start in (NOW + 30 * SECOND, NOW + timedelta(days=2)):
            for number in range(12):
                keep(connection, plain(start + 10 * number * SECOND))

    await journal.run(fill)
    minutes = await journal.read(read_samples, 60, NOW)
    assert [(sample.began_at, sample.items) for sample in minutes] == [
        (NOW + timedelta(days=2), 6),
        (NOW + timedelta(days=2, minutes=1), 6),
    ]
    assert sum(sample.items for sample in await journal.read(read_samples, 900, NOW)) == 12


def test_moments_are_cut_to_a_step() -> None:
    assert floor(NOW + 899.9 * SECOND, 900) == NOW
    assert floor(NOW + 900 * SECOND, 900) == NOW + 900 * SECOND


async def test_what_waits_for_a_person(journal: Journal, scribe: Scribe) -> None:
    receipts = [await scribe.put([b"a"]) for _ in range(3)]
    role_id = scribe.role_id()
    (log,) = await journal.read(read_log, 0, 1)
    event_id = log.events[0].event_id
    isolated = [IsolatedItem(event_id, 0, "refused", "bad")]
    moves = [
        DeliveryMove(None, row(role_id, receipts[0], DeliveryState.PARKED, "timed_out"), isolated=isolated),
        DeliveryMove(None, row(role_id, receipts[1], DeliveryState.PARKED, "refused")),
    ]
    later = DeliveryMove(None, row(role_id, receipts[2], DeliveryState.PARKED, "refused"))
    failures = [Failure(receipts[0].envelope_id, None, None, "end_envelope", "refused", "no") for _ in range(2)]
    await journal.write(ProgressUpdate(NOW, deliveries=moves, failures=failures))
    await journal.write(ProgressUpdate(LATER, deliveries=[later]))
    envelope_id, started = scribe.start_envelope()
    await asyncio.wait_for(started, 60)

    found = await journal.read(read_attention, NOW)
    assert found.parked == [
        AttentionGroup("store_1", "refused", 2, False, NOW, LATER),
        AttentionGroup("store_1", "timed_out", 1, False, NOW, NOW),
    ]
    assert found.parked_items == [AttentionGroup("store_1", "refused", 1, False, NOW, NOW)]
    assert found.failures == [AttentionGroup(None, "refused", 2, False, NOW, NOW)]
    assert [(login, stalled.number) for login, stalled in found.open] == [("north", 1)]
    assert (await journal.read(read_attention, NOW - SECOND)).open == []
    (few, *_) = (await journal.read(read_attention, NOW, 2)).parked
    assert few.at_least
    await scribe.seal(envelope_id, 0, 0)


async def test_the_outline_of_the_bus(journal: Journal) -> None:
    bus = await journal.read(read_bus)
    types = {name: type_id for type_id, name in bus.types.items()}
    services = {service.name: service_id for service_id, service in bus.services.items()}
    emitters = {login: emitter_id for emitter_id, login in bus.emitters.items()}
    assert bus.ways[types["fares"]] == {
        None: {services["names"]},
        services["names"]: {services["prices"]},
        services["prices"]: {services["store"]},
    }
    assert types["secrets"] not in bus.ways
    assert bus.sends[emitters["south"]] == [types["notes"]]
    assert bus.services[services["names"]].is_worker
    assert sorted(role.login for role in bus.roles.values()) == ["names_1", "prices_1", "store_1", "store_2"]


async def test_nobody_counts_before_the_head(journal: Journal, scribe: Scribe) -> None:
    await scribe.put([b"a"])
    taken = await sample_at(journal, 0)
    assert taken.sample.position == await journal.read(read_head)
