"""The table of contents of the log: what is found by it is what is found without it; on every database."""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe, settle_all
from tests.support.long_log import list_all, newest_graphs, put_log, undone
from xbus import model
from xbus.broker.housekeeping.contents import ContentsKeeper
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.backlog_changes import read_concerned
from xbus.broker.journal.log.contents import (
    BLOCK_POSITIONS,
    find_for_services,
    find_listed,
    forget_removed,
    list_blocks,
    note_graphs,
    read_contents_end,
    read_unlisted,
)
from xbus.broker.journal.log.reading import read_at, read_head, read_log
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.retention.pruning import prune_settled
from xbus.broker.journal.retention.rules import Rule, Rules, Scan
from xbus.broker.journal.writes import Decided, ListBlock, ProgressUpdate
from xbus.broker.journal.writes.cursor import Cursor
from xbus.errors import JournalError

PAGE = 100


def walk(connection: sa.Connection, graphs: Collection[int], *, by_contents: bool) -> list[int]:
    """The positions of all envelopes with events of some graphs, as a reader of the log meets them."""
    after, found = 0, list[int]()
    while True:
        listed = find_listed(connection, graphs, after, PAGE) if by_contents else None
        if listed is not None and listed.upto > after:
            envelopes, upto = read_at(connection, listed.positions), listed.upto
        else:
            envelopes = read_log(connection, after, PAGE)
            upto = envelopes[-1].position if envelopes else after
        found += [each.position for each in envelopes if any(event.graph_id in graphs for event in each.events)]
        if upto == after:
            return found
        after = upto


def remove(connection: sa.Connection, first: int, last: int) -> None:
    """Remove envelopes, as retention does."""
    position = model.envelope.c.position
    gone = sa.select(model.envelope.c.id).where(position.between(first, last))
    connection.execute(sa.delete(model.event).where(model.event.c.envelope_id.in_(gone)))
    connection.execute(sa.delete(model.envelope).where(position.between(first, last)))
    forget_removed(connection, range(first, last + 1))


def regraph(connection: sa.Connection, position: int, graph_id: int) -> None:
    """Have the events of an envelope take another graph, as a decision does."""
    event = model.event.c
    envelope_id = sa.select(model.envelope.c.id).where(model.envelope.c.position == position).scalar_subquery()
    ids = connection.execute(sa.select(event.id).where(event.envelope_id == envelope_id)).scalars().all()
    connection.execute(sa.update(model.event).where(event.id.in_(ids)).values(graph_id=graph_id))
    note_graphs(connection, [(event_id, graph_id) for event_id in ids])


def decided_about(connection: sa.Connection, graphs: Collection[int]) -> list[int]:
    """The positions of the envelopes that a decision about events of some graphs meets."""
    after, end, found = 0, read_head(connection), list[int]()
    while after < end:
        concerned = read_concerned(connection, graphs, after, end)
        assert concerned.upto > after
        found += [envelope.position for envelope in concerned.envelopes]
        after = concerned.upto
    return found


def owed_to(connection: sa.Connection, service: str) -> list[int]:
    """The positions of all envelopes that a role of a service is owed, had it got none yet."""
    found = sa.select(model.service.c.id).where(model.service.c.name == service)
    cursor = Cursor(1, 1, None, 0)
    owed = read_owed_ahead(connection, cursor, connection.execute(found).scalar_one(), 10 * BLOCK_POSITIONS)
    return [position for position, _ in owed]


TYPES = ("notes", "flights", "fares", "wishes")


@dataclass
class Story:
    """A log, and what becomes of it.

    Args:
        length: how many envelopes it has.
        often: the types of envelope ``n`` are number ``n`` of these, over and over.
        rare: positions of envelopes that hold wishes as well.
    """

    length: int
    often: list[tuple[str, ...]]
    rare: set[int]
    steps: list[tuple[str, int, int]] = field(default_factory=list)


LENGTHS = st.sampled_from([0, 1, 1023, 1024, 1025, 2 * BLOCK_POSITIONS + 100])
PLACES = st.integers(1, 2 * BLOCK_POSITIONS + 100)
STEPS = st.tuples(st.sampled_from(["list", "remove", "regraph", "regraph while listing", "grow"]), PLACES, PLACES)
STORIES = st.builds(
    Story,
    LENGTHS,
    st.lists(st.sampled_from([("notes",), ("flights", "notes"), ("fares",), ()]), min_size=1, max_size=4),
    st.sets(PLACES, max_size=5),
    st.lists(STEPS, max_size=6),
)


def take(connection: sa.Connection, graphs: dict[str, int], step: tuple[str, int, int]) -> None:
    kind, one, other = step
    match kind:
        case "list":
            list_all(connection, one % 4)
        case "remove":
            remove(connection, min(one, other), max(one, other))
        case "regraph":
            regraph(connection, one, graphs[TYPES[other % 4]])
        case "regraph while listing":
            read = read_unlisted(connection)
            regraph(connection, one, graphs[TYPES[other % 4]])
            if read is not None:
                list_blocks(connection, [read])
        case "grow":
            put_log(connection, [[graphs["notes"]]] * (one % 600) + [[graphs["wishes"]]])


@pytest.mark.long
@given(story=STORIES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_same_is_found_with_and_without_it(engine: sa.Engine, story: Story) -> None:
    with undone(engine) as connection:
        graphs = dict(newest_graphs(connection))
        types = [
            (*story.often[place % len(story.often)], *(["wishes"] if place + 1 in story.rare else []))
            for place in range(story.length)
        ]
        put_log(connection, [[graphs[name] for name in names] for names in types])
        for step in story.steps:
            take(connection, graphs, step)
        for names in (["wishes"], ["flights", "notes"], []):
            wanted = {graphs[name] for name in names}
            expected = walk(connection, wanted, by_contents=False)
            assert walk(connection, wanted, by_contents=True) == expected, names
            assert decided_about(connection, wanted) == expected, names
        assert owed_to(connection, "prices") == walk(connection, {graphs["fares"]}, by_contents=False)


@pytest.fixture
def statements(engine: sa.Engine) -> Iterator[Callable[[], int]]:
    """How many statements were executed since this was called last."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    sa.event.listen(engine, "before_cursor_execute", note)
    yield since
    sa.event.remove(engine, "before_cursor_execute", note)


@pytest.mark.long
def test_a_rare_type_costs_the_same_in_a_long_log(engine: sa.Engine, statements: Callable[[], int]) -> None:
    costs = []
    for blocks in (4, 16):
        with undone(engine) as connection:
            graphs = newest_graphs(connection)
            log = [[graphs["notes"]]] * (blocks * BLOCK_POSITIONS)
            rare = [7, 2 * BLOCK_POSITIONS, len(log) - 3]
            for position in rare:
                log[position - 1] = [graphs["notes"], graphs["wishes"]]
            put_log(connection, log)
            assert list_all(connection) == blocks
            statements()
            assert walk(connection, [graphs["wishes"]], by_contents=True) == rare
            costs.append(statements())
    # Two statements more for each further window in which something is found; reading all would take 123 more.
    assert costs[1] <= costs[0] + 4 < 24


def test_a_frequent_type_costs_a_few_statements_more_for_each_page(
    engine: sa.Engine, statements: Callable[[], int]
) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]]] * (2 * BLOCK_POSITIONS))
        list_all(connection)
        statements()
        found = walk(connection, [graphs["notes"]], by_contents=True)
        assert found == list(range(1, 2 * BLOCK_POSITIONS + 1))
        assert statements() <= 4 * (len(found) / PAGE + 2)


def test_events_are_found_by_the_services_that_their_graphs_lead_to(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        log = [[graphs["secrets"]]] * BLOCK_POSITIONS
        log[4], log[9] = [graphs["secrets"], graphs["fares"]], [graphs["notes"]]
        put_log(connection, log)
        list_all(connection)
        for services, positions in ((["store"], [5, 10]), (["prices"], [5]), (["names", "prices"], [5]), ([], [])):
            listed = find_for_services(connection, services, 0, PAGE)
            assert (list(listed.positions), listed.upto) == (positions, BLOCK_POSITIONS)
        listed = find_for_services(connection, ["store"], 0, 1)
        assert (list(listed.positions), listed.upto) == ([5], 5)


def test_a_block_is_listed_once_and_whole(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"], graphs["notes"]]] * BLOCK_POSITIONS)
        block = read_unlisted(connection)
        assert block is not None
        list_blocks(connection, [block])
        with pytest.raises(JournalError, match="does not end at position 0 any more"):
            list_blocks(connection, [block])
        (row,) = connection.execute(sa.select(model.contents)).all()
        assert (row.graph_id, row.block, row.events) == (graphs["notes"], 0, 2 * BLOCK_POSITIONS)
        assert row.positions == b"\xff" * (BLOCK_POSITIONS // 8)
        assert (row.oldest_at, row.newest_at) == (NOW, NOW + timedelta(seconds=BLOCK_POSITIONS - 1))
        assert read_contents_end(connection) == BLOCK_POSITIONS
        assert read_unlisted(connection) is None


def test_what_was_removed_long_ago_is_passed_at_once(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]]])
        remove(connection, 1, 1)
        connection.execute(sa.update(model.head).values(position=1_000_000))
        full = 1_000_000 // BLOCK_POSITIONS * BLOCK_POSITIONS
        assert read_unlisted(connection) == ListBlock(0, full, ())
        put_log(connection, [[graphs["wishes"]]] * 2000)
        assert list_all(connection) == 2
        assert read_contents_end(connection) == full + 2 * BLOCK_POSITIONS
        assert walk(connection, [graphs["wishes"]], by_contents=True) == list(range(1_000_001, 1_002_001))
        assert walk(connection, [graphs["notes"]], by_contents=True) == []


def test_a_block_of_which_all_was_removed_since_it_was_read_leaves_no_rows(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        put_log(connection, [[newest_graphs(connection)["notes"]]] * BLOCK_POSITIONS)
        block = read_unlisted(connection)
        assert block is not None
        remove(connection, 1, BLOCK_POSITIONS)
        list_blocks(connection, [block])
        assert connection.execute(sa.select(model.contents)).all() == []
        assert read_contents_end(connection) == BLOCK_POSITIONS


@pytest.mark.long
async def test_retention_removes_the_rows_of_blocks_that_are_gone(journal: Journal) -> None:
    def put(connection: sa.Connection) -> None:
        put_log(connection, [[newest_graphs(connection)["notes"]]] * (2 * BLOCK_POSITIONS))

    await journal.run(put)
    await ContentsKeeper(journal, StandingClock()).catch_up()
    await settle_all(journal, BLOCK_POSITIONS + 10)
    until = NOW + timedelta(days=1)
    after: int | None = 0
    while after is not None:
        step = await journal.run(
            prune_settled, "broker", after, Scan(Rules(Rule(until))), until, keep_rows=after % 2 == 0
        )
        after = step.after
        blocks = (await journal.run(lambda connection: connection.execute(sa.select(model.contents.c.block)))).all()
        assert (1,) in blocks
    assert blocks == [(1,)]
    await settle_all(journal, 2 * BLOCK_POSITIONS)
    after = 0
    while after is not None:
        after = (
            await journal.run(prune_settled, "broker", after, Scan(Rules(Rule(until))), until, keep_rows=True)
        ).after
    assert (await journal.run(lambda connection: connection.execute(sa.select(model.contents)))).all() == []


async def test_an_event_that_takes_another_graph_by_a_decision_is_found_by_it(journal: Journal) -> None:
    ids: list[uuid.UUID] = []

    def put(connection: sa.Connection) -> int:
        graphs = newest_graphs(connection)
        ids.extend(put_log(connection, [[graphs["secrets"]]] * BLOCK_POSITIONS))
        connection.execute(
            sa.insert(model.decision).values(move="dropped", at=NOW, reason="why", position=0, graph_id=graphs["notes"])
        )
        return graphs["notes"]

    def event_of(connection: sa.Connection, envelope_id: uuid.UUID) -> uuid.UUID:
        event = model.event.c
        found: uuid.UUID = connection.execute(sa.select(event.id).where(event.envelope_id == envelope_id)).scalar_one()
        return found

    async def found(services: Sequence[str]) -> Sequence[int]:
        return list((await journal.read(find_for_services, services, 0, PAGE)).positions)

    notes = await journal.run(put)
    await ContentsKeeper(journal, StandingClock()).catch_up()
    assert await found(["store"]) == []
    event_id = await journal.read(event_of, ids[41])
    decided = Decided(1, BLOCK_POSITIONS, False, regraphed=[(event_id, notes)])
    await journal.write(ProgressUpdate(NOW, decided=[decided]))
    assert await found(["store"]) == [42]


async def test_replays_and_what_comes_again_are_found_as_any_other(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"x"], type_name="wishes")
    again = await journal.write(await scribe.again(receipt.envelope_id))

    def fill(connection: sa.Connection) -> None:
        put_log(connection, [[newest_graphs(connection)["secrets"]]] * BLOCK_POSITIONS)

    await journal.run(fill)
    await ContentsKeeper(journal, StandingClock()).catch_up()
    listed = await journal.read(find_for_services, ["store"], 0, PAGE)
    assert list(listed.positions) == [receipt.position, again.position]


def test_an_event_that_took_another_graph_before_its_block_is_listed_is_named_once(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        put_log(connection, [[graphs["notes"]]] * (BLOCK_POSITIONS + 10))
        list_all(connection)
        for position in (3, BLOCK_POSITIONS + 3):
            regraph(connection, position, graphs["wishes"])
        listed = find_listed(connection, [graphs["wishes"]], 0, PAGE)
        assert (list(listed.positions), listed.upto) == ([3], BLOCK_POSITIONS)
        put_log(connection, [[graphs["wishes"]]] * BLOCK_POSITIONS)
        list_all(connection)
        listed = find_listed(connection, [graphs["wishes"]], 0, 3)
        assert (list(listed.positions), listed.upto) == (
            [3, BLOCK_POSITIONS + 3, BLOCK_POSITIONS + 11],
            BLOCK_POSITIONS + 11,
        )


def test_types_are_counted(engine: sa.Engine) -> None:
    with undone(engine) as connection:
        graphs = newest_graphs(connection)
        log = [[graphs["notes"], graphs["notes"]]] * (BLOCK_POSITIONS + 10)
        log[-1] = [graphs["wishes"]]
        put_log(connection, log)
        newest = NOW + timedelta(seconds=len(log) - 1)
        expected = {"notes": (2 * len(log) - 2, newest - timedelta(seconds=1)), "wishes": (1, newest)}
        for _ in range(2):
            found = count_types(connection, NOW)
            assert (found.upto, found.head) == (len(log), len(log))
            assert {each.name: (each.events, each.newest_at) for each in found.types if each.events} == expected
            assert all(each.recent == each.events for each in found.types)
            list_all(connection)
        # Within a block the events are taken to come at an even pace.
        recent = {each.name: each.recent for each in count_types(connection, NOW + timedelta(seconds=512)).types}
        assert recent == {"fares": 0, "flights": 0, "notes": 1023 + 18, "secrets": 0, "wishes": 1}
