"""A node that emits answers by the rules of consumers, and makes of a bundle what its envelopes make alone."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import Scribe, memory_engine
from xbus import model
from xbus.broker.back.chaining.emitting_consumer import EmittingConsumer
from xbus.broker.back.log import DeliveryNote
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEnvelope, read_log, read_segments
from xbus.errors import Failed, JournalUnavailable
from xbus.headers import pack_headers, unpack_headers
from xbus.rpc.codec import Value, pack_items, unpack_items

TAKE, PREPARE, COMMIT = (f"xbus.{verb}_envelopes" for verb in ("take", "prepare", "commit"))
LARGE = [b"%d" % number + b"x" * 1000 for number in range(200)]


def id_of(number: int) -> str:
    return str(uuid.UUID(int=number))


def entry(
    number: int,
    *events: Sequence[Sequence[bytes]],
    ordering_key: str | None = None,
    **headers: Any,
) -> Any:
    """An envelope as a call brings it.

    Args:
        events: the batches of each event; one event of one item where none are given.
        headers: of the first event and its envelope.
    """
    written: list[Any] = [
        [id_of(1000 * number + place), "notes", [(0, len(each), pack_items(each), None) for each in batches]]
        for place, batches in enumerate(events or ([[b"a"]],), start=1)
    ]
    if headers:
        written[0].append(headers)
    return id_of(number), written, ("shop", None, ordering_key, 1, 7.0, 1)


class Node:
    """A node that emits notes, and what the journal has of it."""

    def __init__(self, journal: Journal, scribe: Scribe, tasks: asyncio.TaskGroup) -> None:
        self.journal = journal
        catalog = scribe.catalog
        role = replace(next(iter(catalog.roles.values())), emits=catalog.event_types["notes"].id)
        emitter = replace(catalog.emitters[scribe.emitter_id()], kind="node", login=role.login)
        self.catalog = replace(catalog, emitters={emitter.id: emitter})
        self.may_emit = True
        self.consumer = EmittingConsumer(
            role, journal, StandingClock(), tasks, lambda: self.catalog, 0.01, lambda: self.may_emit
        )

    async def call(self, verb: str, *arguments: object) -> Value:
        return await self.consumer.call(verb, *arguments)

    async def items(self) -> list[list[list[bytes]]]:
        """The items of each event of each envelope in the log."""
        found = []
        for envelope in await self.log():
            segments = [
                await self.journal.read(read_segments, each.segments_id, 0, 10_000_000) for each in envelope.events
            ]
            found.append([[item for each in some for item in unpack_items(each.data, each.items)] for some in segments])
        return found

    async def log(self) -> list[LogEnvelope]:
        return await self.journal.read(read_log, 0, 100)

    async def hashes(self) -> list[object]:
        """The hashes of what is in the log, and those by which a key finds a repeat."""
        envelope = model.envelope.c
        wanted = sa.select(envelope.hash, envelope.content_hash).order_by(envelope.position)
        return await self.journal.read(lambda connection: [*map(tuple, connection.execute(wanted))])

    async def told(self) -> list[object]:
        """All that is known of what was made."""
        return [await self.log(), await self.items(), await self.hashes()]

    def commits(self) -> int:
        return sum(self.journal.commits.writes.counts)


@pytest.fixture
async def node(journal: Journal, scribe: Scribe) -> AsyncIterator[Node]:
    async with asyncio.TaskGroup() as tasks:
        yield Node(journal, scribe, tasks)


BUNDLE = [
    entry(1),
    entry(2, [[b"b", b"c"]], ordering_key="client 7", partition_key="client 7"),
    entry(3, [[b"d"]], [[b"e"]], ordering_key="client 7"),
    entry(4, [[b"f"]], envelope_headers=pack_headers({"shard": 1}), headers=pack_headers({"row": 7})),
    entry(5, [[b"g"], [b"h", b"i"]]),
    entry(6, []),
    entry(7, [[]]),
    entry(8, [[b"j"]], envelope_headers=pack_headers({"correlation_id": "import 7"})),
]
MADE = (0, 1, 2, 3, 4, 7)
"""Those of them that bring items."""


async def test_a_bundle_makes_what_its_envelopes_make_alone(node: Node) -> None:
    async with Journal(memory_engine(), "broker") as journal, asyncio.TaskGroup() as tasks:
        other = Node(journal, await Scribe.of(journal), tasks)
        for envelope_id, events, note in BUNDLE:
            for each in events:
                first: Any = (DeliveryNote(*note),) if each is events[0] else ()
                await other.call("xbus.take_event", envelope_id, *each[:3], each is events[-1], *first, *each[3:])
        alone = await other.told()
    before = node.commits()
    assert await node.call(TAKE, BUNDLE) == [[True]] * len(BUNDLE)
    assert node.commits() == before + 1
    made = await node.told()
    assert made == alone
    assert [each.head.key for each in await node.log()] == [id_of(1 + place) for place in MADE]
    headers = [unpack_headers(each.head.headers) for each in await node.log()]
    assert [headers[place] for place in (0, 3, 5)] == [
        {"correlation_id": id_of(1)},
        {"correlation_id": id_of(4), "shard": 1},
        {"correlation_id": "import 7"},
    ]

    for bundle in (BUNDLE, BUNDLE[::-1], BUNDLE[3:]):
        assert await node.call(TAKE, bundle) == [[True]] * len(bundle)
        assert await node.call(PREPARE, bundle) == [[True]] * len(bundle)
        assert await node.call(COMMIT, [each[0] for each in bundle]) == [[True]] * len(bundle)
    assert await node.told() == made, "repeats make nothing"


async def test_what_an_earlier_delivery_made_differently_concerns_no_other_of_a_bundle(node: Node) -> None:
    await node.call("start_event", id_of(1), id_of(1001), "notes")
    await node.call("xbus.send_items", id_of(1), id_of(1001), 0, len(LARGE), pack_items(LARGE), None)
    await node.call("stop_envelope", id_of(1))
    await node.call(TAKE, [entry(2, [[b"first"]])])
    bundle = [entry(1), entry(2, [[b"other"]]), entry(3, [[b"c"]])]
    assert await node.call(TAKE, bundle) == [[True]] * 3
    assert await node.items() == [[[b"first"]], [[b"c"]], [[b"a"]]]
    assert await node.call(TAKE, bundle) == [[True]] * 3
    assert len(await node.log()) == 3


async def test_a_bundle_waits_for_space_in_a_full_journal_unless_it_is_stopped(node: Node) -> None:
    node.may_emit = False
    emitting = asyncio.ensure_future(node.call(TAKE, BUNDLE))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await node.log() == []
    await node.call("stop_envelope", id_of(2))
    node.may_emit = True
    answers: Any = await asyncio.wait_for(emitting, 30)
    assert answers.pop(1)[1][0] == "envelope_stopped"
    assert answers == [[True]] * (len(BUNDLE) - 1)
    assert {each.head.key for each in await node.log()} == {id_of(1 + place) for place in MADE if place != 1}


@pytest.mark.parametrize("failures", [5, 11], ids=["at first", "and again"])
async def test_what_comes_of_a_bundle_keeps_its_order_when_the_database_was_away(node: Node, failures: int) -> None:
    submit, tried = node.journal.submit, list[object]()

    def fail_at_first(write: Any, answer: Any, **options: Any) -> None:
        tried.append(write)
        if len(tried) <= failures:
            answer.set_exception(JournalUnavailable("away", "wait"))
        else:
            submit(write, answer, **options)

    node.journal.submit = fail_at_first
    assert await asyncio.wait_for(node.call(TAKE, BUNDLE), 30) == [[True]] * len(BUNDLE)
    assert [each.head.key for each in await node.log()] == [id_of(1 + place) for place in MADE]
    assert len(tried) == failures + len(MADE)


async def test_what_is_prepared_is_made_when_it_is_committed(node: Node) -> None:
    ids = [each[0] for each in BUNDLE]
    assert await node.call(PREPARE, BUNDLE) == [[True]] * len(BUNDLE)
    await node.call("stop_envelope", ids.pop(0))
    assert await node.log() == []
    with pytest.raises(Failed) as caught:
        await node.call(COMMIT, [id_of(1), *ids])
    assert (caught.value.code, await node.log()) == ("envelope_unknown", [])
    assert await node.call(COMMIT, ids) == [[True]] * len(ids)
    assert [each.head.key for each in await node.log()] == [id_of(1 + place) for place in MADE[1:]]


async def test_what_is_sealed_is_told_though_the_next_can_not_be_emitted(node: Node) -> None:
    assert await node.call(PREPARE, [entry(10)]) == [[True]]
    seal_all = node.consumer._seal_all

    async def seal_and_remove_the_type(delivered: Any) -> Any:
        answers = await seal_all(delivered)
        node.catalog = replace(node.catalog, event_types={})
        return answers

    node.consumer._seal_all = seal_and_remove_the_type  # type: ignore[method-assign]
    assert await node.call(COMMIT, [id_of(10)], [entry(20)]) == [[True], []]


async def test_the_last_answer_comes_before_the_node_owes_nothing(journal: Journal, scribe: Scribe) -> None:
    role = next(iter(scribe.catalog.roles.values()))
    answers: list[object] = []
    async with asyncio.TaskGroup() as tasks:
        node = EmittingConsumer(role, journal, StandingClock(), tasks, lambda: scribe.catalog, 0.01, lambda: True)
        node.ask("ping", ("here",), lambda answer, error: answers.append(answer))
        assert node.owed == 1
        await node.settled()
        assert (node.owed, answers) == (0, ["here"])
