"""Several consumers behind a worker: it works once for all of them, ahead of them, and they decide together."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import FAILS, NOT_BEGUN, TOO_OLD, Wire, bundles, by_item, letters, until_states
from tests.support.recipients import BUNDLES, GOES_ON, LOST, VOTES, ScriptedClient
from tests.support.waiting import answered
from tests.unit.broker.back.dispatch.bundles.test_bundles import settle
from tests.unit.broker.back.dispatch.bundles.test_votes import calls, failures, prepared, settled
from tests.unit.broker.back.dispatch.bundles.test_workers import upper, upper_but
from xbus import model
from xbus.broker.back.recipients import Abilities
from xbus.broker.journal.journal import Journal

STORES = ("store_1", "store_2")


async def set_up(journal: Journal, change: sa.Update) -> None:
    """Change the configuration before a broker starts."""
    await journal.read(lambda connection: connection.execute(change).rowcount)


async def behind(
    broker: Broker, first: Abilities = VOTES, second: Abilities = VOTES, **answers: Any
) -> list[ScriptedClient]:
    """Register a worker, which waits until it is let go, and two stores behind it; have it hold the first envelope."""
    worker = await broker.register("names_1", BUNDLES, xbus_take_envelopes=asyncio.get_running_loop().create_future())
    clients = [await broker.register("store_1", first, **answers), await broker.register("store_2", second)]
    await broker.until_together()
    await put(broker, "_")
    await broker.until(lambda: bundles(broker, "names_1") == ["_"])
    return [worker, *clients]


def go(worker: ScriptedClient, answer: Any = upper) -> None:
    """Let the worker answer what it has, and give what comes next an answer of its own."""
    held = worker.answers["xbus.take_envelopes"]
    worker.answers["xbus.take_envelopes"] = answer
    held.set_result(upper([["id", [["id", "type", [[0, 1, b"\xc4\x01_", None]]]]]]))


async def put(broker: Broker, items: str, keys: Sequence[str] = ()) -> None:
    for place, item in enumerate(items):
        await broker.put(item.encode(), type_name="flights", ordering_key=keys[place] if keys else None)
    await settle()


def keep_behind(broker: Broker, login: str) -> None:
    """Let a consumer go on at its own pace, as it keeps the others waiting."""
    served = broker.back.registry.get(broker.scribe.role_id(login))
    assert served is not None
    broker.back._assembly._gathering.leave_behind(served)


def committed(broker: Broker, login: str) -> int:
    return sum(len(call.args[0]) for call in calls(broker, login, "xbus.commit_envelopes"))


async def test_consumers_that_decide_together_get_what_a_worker_made_of_it_once(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "abc")
        go(worker)
        await settled(broker, 4)
        assert bundles(broker, "names_1") == ["_", "abc"]
        assert prepared(broker) == prepared(broker, "store_2") == ["_", "ABC"]
        assert committed(broker, "store_1") == committed(broker, "store_2") == 4
    assert await broker.rows() == {}


async def test_consumers_that_stand_for_themselves_share_the_work_too(journal: Journal) -> None:
    """What one refuses is no affair of the other."""
    await set_up(journal, sa.update(model.service).where(model.service.c.name == "store").values(failures="own"))
    async with running(journal) as broker:
        worker, *_ = await behind(broker, xbus_prepare_envelopes=by_item({b"B": TOO_OLD}))
        await put(broker, "abc")
        go(worker)
        await settled(broker, 4)
        assert bundles(broker, "names_1") == ["_", "abc"]
        assert (committed(broker, "store_1"), committed(broker, "store_2")) == (3, 4)
        await until_states(broker, [(3, "parked", 1)])


async def test_what_one_refuses_is_parked_for_both(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker, xbus_prepare_envelopes=by_item({b"B": TOO_OLD}))
        await put(broker, "abc")
        go(worker)
        await settled(broker, 4)
        assert committed(broker, "store_1") == committed(broker, "store_2") == 3
        await until_states(broker, [(3, "parked", 1), (3, "parked", 1)])


async def test_what_fails_at_one_comes_to_it_again_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker, xbus_prepare_envelopes=by_item({b"B": FAILS}))
        await put(broker, "ab")
        go(worker)
        await broker.until(lambda: letters(broker) == "_AB")
        await settle()
        assert (committed(broker, "store_1"), committed(broker, "store_2")) == (2, 3)
        assert await answered(lambda: failures(broker), "it is told") == [("store_1", "recipient_failed")]


@pytest.mark.parametrize("answer", [TOO_OLD, FAILS, "nonsense"])
async def test_what_the_worker_fails_at_takes_a_run_for_both(journal: Journal, answer: Any) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "abc")
        go(worker, upper_but(b=answer))
        await settled(broker, 4)
        # In a run the worker obliges, and passes the item on as it is.
        assert sorted(letters(broker)) == sorted(letters(broker, "store_2")) == ["A", "C", "_", "b"]
        assert broker.script.verbs("names_1").count("xbus.take_event") == 1
    assert await broker.rows() == {}


async def test_what_was_at_a_worker_that_is_lost_takes_a_run(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "ab")
        go(worker, LOST)
        await settled(broker, 3)
        assert sorted(letters(broker)) == sorted(letters(broker, "store_2")) == ["_", "a", "b"]
        assert broker.script.verbs("names_1").count("xbus.take_event") == 2


async def test_what_the_worker_has_not_begun_is_asked_for_again(journal: Journal) -> None:
    def first_only(bundle: Wire) -> list[Any]:
        return [*upper(bundle[:1]), *[NOT_BEGUN] * (len(bundle) - 1)]

    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "abc")
        go(worker, first_only)
        await settled(broker, 4)
        assert bundles(broker, "names_1") == ["_", "abc", "bc", "c"]
        assert "".join(prepared(broker)) == "".join(prepared(broker, "store_2")) == "_ABC"


async def test_the_worker_has_what_is_next_while_the_consumers_are_at_it(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, first, _ = await behind(broker, GOES_ON, GOES_ON)
        out = first.answers["xbus.prepare_envelopes"] = asyncio.get_running_loop().create_future()
        go(worker)
        await broker.until(lambda: prepared(broker) == ["_"])
        await put(broker, "ab")
        await broker.until(lambda: "".join(bundles(broker, "names_1")) == "_ab")
        del first.answers["xbus.prepare_envelopes"]
        out.set_result([[True]])
        await settled(broker, 3)
        assert prepared(broker) == ["_"]
        assert [len(call.args) for call in calls(broker, "store_1", "xbus.commit_envelopes")] == [2, 1]


async def test_one_that_leaves_does_not_keep_the_other_from_what_the_worker_has(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "ab")
        await broker.leave("store_1")
        go(worker)
        await broker.until(lambda: letters(broker, "store_2") == "_AB")
        assert bundles(broker, "names_1") == ["_", "ab"]
        assert letters(broker) == ""
        await broker.register("store_1", VOTES)
        await settled(broker, 3)
        assert letters(broker) == "_AB"


async def test_one_that_keeps_the_other_waiting_gets_what_was_made_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        worker, first, _ = await behind(broker)
        first.answers["xbus.prepare_envelopes"] = asyncio.get_running_loop().create_future()
        go(worker)
        await broker.until(lambda: prepared(broker) == ["_"])
        await put(broker, "ab")
        await broker.until(lambda: "".join(bundles(broker, "names_1")) == "_ab")
        keep_behind(broker, "store_1")
        first.answers.pop("xbus.prepare_envelopes").set_result([[True]])
        await settled(broker, 3)
        assert (letters(broker), letters(broker, "store_2")) == ("_AB", "_AB")
        assert "".join(bundles(broker, "names_1")) == "_ab"


async def test_what_the_worker_fails_at_is_not_overtaken_by_what_is_of_its_key(journal: Journal) -> None:
    await set_up(journal, sa.update(model.role).where(model.role.c.login.in_(STORES)).values(ordered=True))
    async with running(journal) as broker:
        worker, *_ = await behind(broker)
        await put(broker, "abcd", keys="kkkl")
        go(worker, upper_but(a=TOO_OLD))
        await settled(broker, 5)
        for store in STORES:
            assert [each for each in letters(broker, store) if each in "aABC"] == ["a", "B", "C"]


async def test_a_stop_leaves_what_is_at_the_worker_to_the_next_start(journal: Journal) -> None:
    async with running(journal) as broker:
        await behind(broker)
        await put(broker, "ab")
    assert broker.script.verbs("names_1").count("stop_envelope") == 1
    assert await broker.rows() == {}
    assert await broker.cursor() == 0


async def test_an_old_consumer_has_both_take_runs(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        await broker.register("store_1", VOTES)
        await broker.register("store_2", replace(BUNDLES, prepares=0))
        await broker.until_together()
        await put(broker, "ab")
        await settled(broker, 2)
        assert bundles(broker, "names_1") == []


async def test_what_needs_no_worker_keeps_its_place_where_one_leaves_the_other(journal: Journal) -> None:
    """It waited before it was known that workers are before these consumers."""
    await set_up(journal, sa.update(model.role).where(model.role.c.login.in_(STORES)).values(ordered=True))
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=upper)
        first = await broker.register("store_1", VOTES)
        await broker.register("store_2", VOTES)
        await broker.until_together()
        out = first.answers["xbus.prepare_envelopes"] = asyncio.get_running_loop().create_future()
        for item in "abc":
            await broker.put(item.encode(), type_name="notes", ordering_key="k")
        await put(broker, "d", keys="k")
        await broker.until(lambda: bundles(broker, "names_1") == ["d"])
        keep_behind(broker, "store_1")
        first.answers.pop("xbus.prepare_envelopes")
        out.set_result([[True]])
        await settled(broker, 4)
        assert (letters(broker), letters(broker, "store_2")) == ("abcD", "abcD")
