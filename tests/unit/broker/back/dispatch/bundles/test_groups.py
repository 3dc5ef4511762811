"""Groups on their way through a whole back: each envelope as if it came alone, and no call of a function for each."""

import asyncio
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

import xbus
from tests.contract.test_groups import group_type, some_group
from tests.support.back import QUIET, Broker, running
from tests.support.journal import NOW, Scribe, memory_engine
from tests.support.recipients import BUNDLES
from tests.unit.broker.back.dispatch.bundles.test_successors import as_it_is
from xbus.broker.back.dispatch.parties import MOST_ENVELOPES
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.writes import PutEnvelope, PutGroup, SealedGroup
from xbus.envelope import PLAIN_HEAD
from xbus.headers import NO_TAGS
from xbus.rpc.codec import pack, pack_items, unpack

PRODUCT = str(Path(xbus.__file__).parent)
WANTS_ALL = replace(BUNDLES, notes=True, headers=True)


def cut(group: PutGroup, how: str, random: Random) -> list[PutGroup | PutEnvelope]:
    """The writes of a group's envelopes, as they could have come otherwise."""
    places = range(len(group))
    if how == "together":
        return [group]
    if how == "in parts":
        edges = sorted({0, len(group), *random.sample(places, 5)})
        return [group.at_places(places[first:end]) for first, end in pairwise(edges)]
    return [SealedGroup(0, -1, group, ()).envelope(place) for place in places]


async def taken(group: Any, how: str, random: Random, *, is_read_back: bool) -> list[Any]:
    """Write a group's envelopes and deliver them to a consumer, some through a worker; give what the consumer got."""
    async with Journal(memory_engine(), "broker") as journal:
        scribe = await Scribe.of(journal)
        writes = cut(group(scribe), how, random)
        if is_read_back:
            for write in writes:
                await journal.write(write)
        async with running(journal) as broker:
            await broker.register("names_1", BUNDLES, xbus_take_envelopes=as_it_is)
            await broker.register("store_1", WANTS_ALL)
            for write in () if is_read_back else writes:
                await journal.write(write)
            await broker.until(lambda: broker.script.calls)
            head = await journal.read(read_head)
            while await broker.cursor() < head:
                await asyncio.sleep(0)
        assert await broker.rows() == {}
    calls = [call for call in broker.script.calls if call.whom == "store_1" and call.verb == "xbus.take_envelopes"]
    found: Any = unpack(pack([entry for call in calls for entry in call.args[0]]))
    return list(found)


@pytest.mark.parametrize("seed", range(5))
async def test_it_makes_no_difference_how_envelopes_came(seed: int) -> None:
    def group(scribe: Scribe) -> PutGroup:
        return some_group(scribe, 40, Random(seed))

    random = Random(seed)
    wanted = await taken(group, "together", random, is_read_back=False)
    assert len(wanted) == 40
    for how, is_read_back in [("in parts", False), ("singly", False), ("together", True), ("in parts", True)]:
        assert await taken(group, how, random, is_read_back=is_read_back) == wanted


# -- what it costs ---------------------------------------------------------------------------------------------------

MOST_CALLS_OF_A_GROUP = 150
MOST_CALLS_OF_AN_ENVELOPE = 0.1
"""Calls of functions of the product, on the loop and in the writer, from a put until its cursor is durable."""


def plain_group(broker: Broker, random: Random, envelopes: int) -> PutGroup:
    """A group of envelopes of one item each."""
    ids, event_ids = ([random.randbytes(16) for _ in range(envelopes)] for _ in range(2))
    data = [pack_items([b"x" * 200])] * envelopes
    types = [group_type(broker.scribe, "notes")] * envelopes
    heads, tags = [PLAIN_HEAD] * envelopes, [NO_TAGS] * envelopes
    columns = (ids, event_ids, types, [1] * envelopes, data, heads, tags)
    return PutGroup([broker.scribe.emitter_id()] * envelopes, NOW, *columns, size=sum(map(len, data)))


async def deliver(broker: Broker, group: PutGroup) -> None:
    """Have a group sealed and delivered, and wait until the cursor is durable."""
    role = broker.back._assembly._roles[broker.scribe.role_id("store_1")]
    sealed = await broker.journal.write(group)
    while role.cursor is None or role.cursor.position < sealed.last:
        await asyncio.sleep(0)
    await broker.back._assembly.ledger.written()


ROUNDS = 25
"""The round with the fewest calls counts, as a timer may fall into any of them."""


async def calls_of(envelopes: int) -> int:
    """Count the functions that are called for a group of so many envelopes, once all is warm."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event == "call" and frame.f_code.co_filename.startswith(PRODUCT)

    async with Journal(memory_engine(), "broker") as journal, running(journal, intervals=QUIET) as broker:
        random = Random(7)
        await broker.register("store_1", WANTS_ALL)
        await deliver(broker, plain_group(broker, random, 100))
        (party,) = broker.back._assembly._groups.all_parties()
        measured = [plain_group(broker, random, envelopes) for _ in range(ROUNDS)]
        found: list[int] = []
        await journal.run(lambda connection: sys.setprofile(count))
        for group in measured:
            # A busy machine stretches a call, and the next group would be cut.
            party.size.envelopes = MOST_ENVELOPES
            counted = 0
            sys.setprofile(count)
            try:
                await deliver(broker, group)
            finally:
                sys.setprofile(None)
            found.append(counted)
        await journal.run(lambda connection: sys.setprofile(None))
    return min(found)


async def test_a_group_costs_calls_and_its_envelopes_next_to_none() -> None:
    one, hundred = await calls_of(1), await calls_of(100)
    assert one <= MOST_CALLS_OF_A_GROUP
    assert (hundred - one) / 99 <= MOST_CALLS_OF_AN_ENVELOPE
