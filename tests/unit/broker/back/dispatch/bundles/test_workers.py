"""Bundles through workers: what waits goes through each of them in one call, and alone where that fails."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.back import Broker, running
from tests.support.bundles import (
    FAILS,
    NOT_BEGUN,
    TOO_OLD,
    Wire,
    bundles,
    correct,
    letters,
    states,
    until_states,
)
from tests.support.recipients import BUNDLES, LOST, NEW
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.journal import Journal
from xbus.rpc.codec import pack_items

HANDSHAKE = ("get_metadata", "has_clearing", "has_immediate_reply")


def upper(bundle: Wire) -> list[Any]:
    """Each item in capitals."""
    return [[True, [_upper_event(event) for event in events]] for _, events in bundle]


def _upper_event(event: Wire) -> list[Any]:
    return [[first, items, data.upper(), indices] for first, items, data, indices in event[2]]


def upper_but(**answers: Any) -> Callable[[Wire], list[Any]]:
    """Each item in capitals, but for those that get another answer; what is behind a failure is not begun."""

    def answer(bundle: Wire) -> list[Any]:
        found: list[Any] = []
        for place, envelope in enumerate(bundle):
            letter = envelope[1][0][2][0][2][-1:].decode()
            found.append(answers.get(letter, upper(bundle)[place]))
            if found[-1] is FAILS:
                break
        return found + [NOT_BEGUN] * (len(bundle) - len(found))

    return answer


async def put_all(broker: Broker, items: str, type_name: str = "flights") -> None:
    for item in items:
        await broker.put(item.encode(), type_name=type_name)


async def until_settled(broker: Broker, position: int) -> None:
    """All up to this position was delivered, and nothing is left to be done."""
    cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
    assert cursor is not None
    await broker.until(lambda: cursor.position == position)
    while await states(broker):
        await asyncio.sleep(0)


# -- together --------------------------------------------------------------------------------------------------------


async def test_what_waits_goes_through_the_worker_together(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker) == ["ABC"])
        assert bundles(broker, "names_1") == ["abc"]
        await put_all(broker, "d")
        await broker.until(lambda: bundles(broker) == ["ABC", "D"])
    assert await broker.rows() == {}
    assert await broker.cursor() == 4
    assert set(broker.script.verbs("names_1")) <= {*HANDSHAKE, "xbus.take_envelopes"}


async def test_what_needs_no_worker_passes_it_by_in_the_same_bundle(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await put_all(broker, "a")
        await put_all(broker, "b", type_name="notes")
        await put_all(broker, "c")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker) == ["AbC"])
        assert bundles(broker, "names_1") == ["a", "c"]


async def test_two_workers_on_the_way_get_it_one_after_the_other(journal: Journal) -> None:
    def twice(bundle: Wire) -> list[Any]:
        doubled = [[[0, 1, pack_items([data[-1:] * 2]), [[0]]] for _, _, data, _ in e[1][0][2]] for e in bundle]
        return [[True, [batches]] for batches in doubled]

    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await broker.register("prices_1", BUNDLES, xbus_take_envelopes=twice)
        await put_all(broker, "ab", type_name="fares")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker) == ["AABB"])
        assert (bundles(broker, "names_1"), bundles(broker, "prices_1")) == (["ab"], ["AB"])
        await until_settled(broker, 2)


async def test_a_worker_that_leaves_items_out_leaves_the_envelope(journal: Journal) -> None:
    def none(bundle: Wire) -> list[Any]:
        return [[True, [[]]]] * len(bundle)

    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=none)
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES)
        await until_settled(broker, 2)
        assert bundles(broker) == [""]


async def test_what_a_worker_has_not_begun_goes_with_the_next(journal: Journal) -> None:
    def first_only(bundle: Wire) -> list[Any]:
        return [*upper(bundle[:1]), *[NOT_BEGUN] * (len(bundle) - 1)]

    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=first_only)
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker) == ["A", "B", "C"])
    assert await broker.rows() == {}


# -- alone -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NEW, replace(BUNDLES, bulk_items=100)])
async def test_a_worker_that_takes_no_bundles_gets_none(journal: Journal, kind: Abilities) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", kind)
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "abc")
        assert bundles(broker) == bundles(broker, "names_1") == []


@pytest.mark.parametrize(
    "answer", [TOO_OLD, FAILS, [True], [True, [[], []]], [True, [[[0, 5, b"", None]]]], "nonsense"]
)
async def test_what_a_worker_fails_at_goes_alone_and_the_others_go_on(journal: Journal, answer: Any) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper_but(b=answer))
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES)
        # In a run the worker obliges, and passes the item on as it is.
        await broker.until(lambda: sorted(letters(broker)) == ["A", "C", "b"])
        await until_settled(broker, 3)
        assert "xbus.take_event" in broker.script.verbs("names_1")


async def test_what_was_at_a_worker_that_is_lost_goes_alone_to_the_next(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=LOST)
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(letters(broker)) == ["a", "b"])
        assert broker.script.verbs("names_1").count("stop_envelope") >= 2
        await until_settled(broker, 2)


async def test_a_worker_that_leaves_while_it_is_wanted_is_waited_for(journal: Journal) -> None:
    async with running(journal) as broker:
        held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=held)
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker, "names_1") == ["ab"])
        await broker.leave("names_1")
        held.set_exception(LOST)
        await until_states(broker, [(1, "waiting", 0), (2, "waiting", 0)])
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await until_settled(broker, 2)


async def test_two_consumers_behind_a_worker_share_its_work(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await broker.register("store_1", BUNDLES)
        await broker.register("store_2", BUNDLES)
        await broker.until_together()
        await put_all(broker, "ab")
        await broker.until(lambda: letters(broker) == letters(broker, "store_2") == "ab")
        assert broker.script.verbs("names_1").count("xbus.take_event") == 2
        assert bundles(broker, "names_1") == []


async def test_what_a_run_for_another_role_has_open_at_the_worker_goes_alone_behind_it(journal: Journal) -> None:
    """The worker has ended its event, and the consumer of the run takes its time to do so."""
    async with running(journal) as broker:
        under_way: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await broker.register("store_1", NEW, xbus_take_event=under_way)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await broker.register("store_2", BUNDLES)
        # Its run has to wait for the other one.
        await until_states(broker, [(1, "retry", 1)])
        under_way.set_result([True, None, []])
        await broker.until(lambda: letters(broker, "store_2") == "a")
        await until_settled(broker, 1)
        assert bundles(broker, "names_1") == []
        assert "stop_envelope" not in broker.script.verbs("names_1")


async def test_a_run_waits_for_a_bundle_that_has_its_envelope_at_the_worker(journal: Journal) -> None:
    """The worker could take both at once, and would refuse an event that is open."""
    async with running(journal) as broker:
        held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await broker.register("names_1", replace(BUNDLES, envelopes=2), xbus_take_envelopes=held)
        await broker.register("store_1", BUNDLES)
        await put_all(broker, "a")
        await broker.until(lambda: bundles(broker, "names_1") != [])
        await broker.register("store_2", NEW)
        for _ in range(500):
            await asyncio.sleep(0)
        assert "xbus.take_event" not in broker.script.verbs("names_1")
        (bundle,) = [call.args[0] for call in broker.script.calls if call.verb == "xbus.take_envelopes"]
        held.set_result(upper(bundle))
        await broker.until(lambda: (letters(broker), letters(broker, "store_2")) == ("A", "a"))


async def test_a_refusal_of_the_consumer_behind_a_worker_is_parked(journal: Journal) -> None:
    def refuse_b(bundle: Wire) -> list[Any]:
        return [TOO_OLD if data.endswith(b"B") else [True] for data in [e[1][0][2][0][2] for e in bundle]]

    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=refuse_b)
        await until_states(broker, [(2, "parked", 1)])


async def test_what_is_corrected_goes_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        receipt = await broker.put(b"a", type_name="flights")
        await correct(broker, receipt.position, b"z")
        await broker.back._assembly._log.refresh()
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "z")
        assert bundles(broker, "names_1") == []


# -- fairness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NEW, BUNDLES])
async def test_a_consumer_that_takes_its_time_keeps_no_worker_from_the_others(
    journal: Journal, kind: Abilities
) -> None:
    def late(*_: Any) -> Any:
        return asyncio.get_running_loop().create_future()

    async with running(journal, behind_after=0.1, clean=False) as broker:
        answers = {"xbus_take_envelopes": upper} if kind is BUNDLES else {}
        await broker.register("names_1", kind, **answers)
        await broker.register("store_2", kind)
        await put_all(broker, "abc")
        await broker.until(lambda: letters(broker, "store_2").lower() == "abc")
        await broker.register("store_1", kind, xbus_take_envelopes=late, xbus_take_event=late)
        await broker.until(lambda: letters(broker))
        await put_all(broker, "d")
        await broker.until(lambda: letters(broker, "store_2").lower() == "abcd")
        assert letters(broker).lower() in ("a", "abc")
