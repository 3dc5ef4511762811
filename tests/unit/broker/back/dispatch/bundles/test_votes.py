"""Bundles for consumers that decide together: each envelope is committed at all of them, or at none."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, TOO_OLD, Wire, by_item, correct, letters, states, until_states
from tests.support.recipients import BROKEN, BUNDLES, LOST, NEW, SILENT, VOTES, Call, ScriptedClient
from tests.unit.broker.back.dispatch.bundles.test_bundles import held, make_own, put_all, settle, until_read, want_order
from xbus import model
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients import This
from xbus.broker.journal.journal import Journal

RETRIES = RetryPolicy(attempts=3, jitter=0)
STORES = ("store_1", "store_2")


async def both(broker: Broker, second: Any = VOTES, **answers: Any) -> list[ScriptedClient]:
    """Register both stores, the second with some answers, and let them read together."""
    clients = [await broker.register("store_1", VOTES), await broker.register("store_2", second, **answers)]
    await broker.until_together()
    return clients


async def put_at_once(broker: Broker, items: str, keys: Sequence[str | None] = ()) -> None:
    """An envelope with one item of each letter, which all wait until both stores have a free slot."""
    slots = broker.back._assembly._slots
    served = [broker.back.registry.get(broker.scribe.role_id(store)) for store in STORES]
    taken = await slots.take([This(each) for each in served])
    further = {each: slots.take_further(each, 100) for each in taken}
    for item, key in zip_longest(items, keys):
        await broker.put(item.encode(), ordering_key=key)
    await until_read(broker)
    for each in taken:
        for _ in range(1 + further[each]):
            slots.free(each)


async def settled(broker: Broker, position: int) -> None:
    """Nothing is owed to either store up to a position."""
    for store in STORES:
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id(store))
        assert cursor is not None
        await broker.until(lambda: cursor.position >= position)  # noqa: B023


async def failures(broker: Broker) -> list[tuple[str, str]]:
    """Whose failures were noted, with their codes."""
    failure, role = model.failure.c, model.role.c
    wanted = sa.select(role.login, failure.code).join_from(model.failure, model.role, failure.role_id == role.id)
    found = await broker.journal.read(lambda connection: connection.execute(wanted).all())
    return [(login, code) for login, code in found]


def calls(broker: Broker, login: str, verb: str) -> list[Call]:
    return [call for call in broker.script.calls if call.whom == login and call.verb == verb]


def prepared(broker: Broker, login: str = "store_1") -> list[str]:
    """The items of each bundle that was prepared."""
    bundles = [call.args[0] for call in calls(broker, login, "xbus.prepare_envelopes")]
    return ["".join(events[0][2][0][2][-1:].decode() for _, events, *_ in bundle) for bundle in bundles]


def decided(broker: Broker, login: str = "store_1") -> tuple[str, str]:
    """The items of the envelopes that one was told to commit, and of those that it was told to forget."""
    item_of = {
        envelope_id: events[0][2][0][2][-1:].decode()
        for call in calls(broker, login, "xbus.prepare_envelopes")
        for envelope_id, events, *_ in call.args[0]
    }
    committed = [each for call in calls(broker, login, "xbus.commit_envelopes") for each in call.args[0]]
    stopped = [str(call.args[0]) for call in calls(broker, login, "stop_envelope")]
    return "".join(map(item_of.__getitem__, committed)), "".join(item_of[each] for each in stopped if each in item_of)


def take_turns(*answers: Any) -> Any:
    """Give these answers to bundles, and then oblige."""
    left = list(answers)

    def answer(bundle: Wire) -> Any:
        given = left.pop(0) if left else [DONE] * len(bundle)
        return given(bundle) if callable(given) else given

    return answer


# -- together --------------------------------------------------------------------------------------------------------


async def test_two_get_a_bundle_in_two_calls_each(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        await both(broker, xbus_prepare_envelopes=take_turns(first))
        await put_all(broker, "a")
        await broker.until(lambda: prepared(broker) == ["a"])
        await put_all(broker, "bcd")
        await until_read(broker)
        # Nobody is told to commit what another one has not voted on, and what comes meanwhile waits.
        assert decided(broker) == ("", "")
        first.set_result([DONE])
        await settled(broker, 4)
        for store in STORES:
            assert "".join(prepared(broker, store)) == "abcd"
            assert decided(broker, store) == ("abcd", "")
            assert len(calls(broker, store, "xbus.commit_envelopes")) == len(prepared(broker, store)) < 4
    assert await broker.rows() == {}


async def test_one_that_is_refused_is_stopped_at_all_and_the_others_are_committed(journal: Journal) -> None:
    async with running(journal) as broker:
        await both(broker, xbus_prepare_envelopes=by_item({b"b": TOO_OLD}))
        await put_at_once(broker, "abc")
        await until_states(broker, [(2, "parked", 1), (2, "parked", 1)])
        await settled(broker, 3)
        assert decided(broker) == ("ac", "b")
        assert decided(broker, "store_2") == ("ac", "")
    assert await broker.rows() == dict.fromkeys(STORES, ("parked", 1, "refused"))
    # Noted once, of the one that refused it.
    assert await failures(broker) == [("store_2", "refused")]


@pytest.mark.parametrize("failure", [LOST, SILENT, BROKEN], ids=["lost", "silent", "error"])
async def test_who_gives_no_vote_gets_all_alone_later_and_the_others_decide(
    journal: Journal, failure: Exception
) -> None:
    async with running(journal, retry=RETRIES, trouble_after=2) as broker:
        _, second = await both(broker, xbus_prepare_envelopes=failure)
        await put_at_once(broker, "abc")
        await until_states(broker, [(position, "retry", 1) for position in (1, 2, 3)])
        assert decided(broker) == ("abc", "")
        assert decided(broker, "store_2") == ("", "abc")
        # They failed together, so they count as one.
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_2"))
        second.answers.clear()
        broker.pass_time(10)
        await until_states(broker, [])
    assert letters(broker) == "abc"
    assert letters(broker, "store_2") == "abcabc"


async def test_who_fails_at_one_is_asked_for_its_votes_on_the_rest(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        await both(broker, xbus_prepare_envelopes=by_item({b"b": FAILS, b"d": TOO_OLD}))
        await put_at_once(broker, "abcd")
        await until_states(broker, [(2, "retry", 1), (4, "parked", 1), (4, "parked", 1)])
        await settled(broker, 4)
        # The first had to prepare nothing twice.
        assert prepared(broker) == ["abcd"]
        assert prepared(broker, "store_2") == ["abcd", "cd"]
        assert decided(broker) == ("abc", "d")
        assert decided(broker, "store_2") == ("ac", "")


async def test_who_fails_again_and_again_has_no_vote_any_more(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=9, first_delay=300), trouble_after=2) as broker:
        failing = by_item(dict.fromkeys((b"a", b"b", b"c", b"d"), FAILS))
        _, second = await both(broker, xbus_prepare_envelopes=failing)
        await put_at_once(broker, "abcd")
        await broker.until(lambda: decided(broker) == ("abcd", ""))
        await broker.until(lambda: broker.back.breakers.is_troubled(broker.scribe.role_id("store_2")))
        assert prepared(broker, "store_2") == ["abcd", "bcd"]
        await until_states(broker, [(1, "retry", 1), (2, "retry", 1), (3, "retry", 0), (4, "retry", 0)])
        second.answers.clear()
        broker.pass_time(1000)
        await until_states(broker, [])
        await settled(broker, 4)
        assert sorted(letters(broker, "store_2")[7:]) == list("abcd")


@pytest.mark.parametrize("answer", [None, True, [DONE], [DONE] * 4, [DONE, 7, DONE]], ids=repr)
async def test_a_vote_that_makes_no_sense_stops_what_it_is_about_at_all(journal: Journal, answer: Any) -> None:
    async with running(journal) as broker:
        await both(broker, xbus_prepare_envelopes=answer)
        await put_at_once(broker, "abc")
        is_about_one = answer == [DONE, 7, DONE]
        parked = (2,) if is_about_one else (1, 2, 3)
        await until_states(broker, [(position, "parked", 1) for position in parked for _ in STORES])
        await settled(broker, 3)
        assert decided(broker) == (("ac", "b") if is_about_one else ("", "abc"))
        assert decided(broker, "store_2") == decided(broker)


# -- the decision is lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [LOST, SILENT, BROKEN], ids=["lost", "silent", "error"])
async def test_who_does_not_answer_the_decision_gets_all_alone_after_a_stop(
    journal: Journal, failure: Exception
) -> None:
    async with running(journal, retry=RETRIES) as broker:
        _, second = await both(broker, xbus_commit_envelopes=failure)
        await put_at_once(broker, "ab")
        await until_states(broker, [(1, "retry", 1), (2, "retry", 1)])
        assert decided(broker) == ("ab", "")
        assert decided(broker, "store_2") == ("ab", "ab")
        second.answers.clear()
        before = len(broker.script.calls)
        broker.pass_time(10)
        await until_states(broker, [])
        alone = [call.verb for call in broker.script.calls[before:] if call.whom == "store_2"]
        assert alone == ["stop_envelope", "xbus.take_event"] * 2
    assert letters(broker) == "ab"


async def test_what_is_behind_a_failed_commit_failed_with_it(journal: Journal) -> None:
    async with running(journal, retry=RETRIES, trouble_after=2) as broker:
        await both(broker, xbus_commit_envelopes=[DONE, FAILS, [], []])
        await put_at_once(broker, "abcd")
        await until_states(broker, [(position, "retry", 1) for position in (2, 3, 4)])
        assert decided(broker) == ("abcd", "")
        assert decided(broker, "store_2") == ("abcd", "bcd")
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_2"))


async def test_a_refused_commit_is_the_affair_of_one(journal: Journal) -> None:
    async with running(journal) as broker:
        await both(broker, xbus_commit_envelopes=[DONE, TOO_OLD, DONE])
        await put_at_once(broker, "abc")
        await until_states(broker, [(2, "parked", 1)])
        await settled(broker, 3)
        assert decided(broker) == ("abc", "")


# -- who decides together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NEW, BUNDLES], ids=["new", "bundles"])
async def test_where_one_can_leave_nothing_open_all_get_runs(journal: Journal, kind: Any) -> None:
    async with running(journal) as broker:
        await both(broker, kind)
        await put_all(broker, "ab")
        await settled(broker, 2)
        assert letters(broker) == letters(broker, "store_2") == "ab"
        assert prepared(broker) == prepared(broker, "store_2") == []


async def test_one_without_a_vote_has_its_own_bundles(journal: Journal) -> None:
    async with running(journal) as broker:
        await both(broker)
        make_own(broker, "store_2")
        await put_all(broker, "ab")
        await settled(broker, 2)
        assert prepared(broker) == prepared(broker, "store_2") == []


async def test_no_more_are_open_than_one_allows(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        await both(broker, replace(VOTES, prepares=3, envelopes=3), xbus_prepare_envelopes=take_turns(first))
        await put_at_once(broker, "abcdefg")
        await broker.until(lambda: prepared(broker) == ["abc"])
        # A row that is due finds no slot meanwhile, though three envelopes may be open.
        slots = broker.back._assembly._slots
        served = broker.back.registry.get(broker.scribe.role_id("store_2"))
        assert served is not None
        assert not slots.is_free(served)
        first.set_result([DONE] * 3)
        await settled(broker, 7)
        assert slots.is_free(served)
        assert prepared(broker, "store_2") == ["abc", "def", "g"]


async def test_an_ordered_role_has_one_of_a_key_in_a_bundle_and_what_is_behind_a_failed_one_is_held(
    journal: Journal,
) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        clients = await both(broker)
        clients[0].answers["xbus.prepare_envelopes"] = by_item({b"a": FAILS})
        await put_at_once(broker, "abcd", ["k", "l", "k", "l"])
        await until_states(broker, [(1, "retry", 1), (3, "held", 0)])
        await broker.until(lambda: letters(broker, "store_2") == "abcd" and decided(broker) == ("bd", ""))
        assert prepared(broker, "store_2")[0] == "ab"
        clients[0].answers.clear()
        broker.pass_time(1000)
        await until_states(broker, [])
        assert letters(broker).endswith("ac")


async def test_what_is_corrected_while_it_waits_goes_to_both_in_one_run(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        _, second = await both(broker, xbus_prepare_envelopes=take_turns(first))
        await put_all(broker, "a")
        await broker.until(lambda: prepared(broker) == ["a"])
        receipt = await broker.put(b"b")
        await put_all(broker, "c")
        await until_read(broker)
        await correct(broker, receipt.position, b"B")
        await broker.back._assembly._log.refresh()
        second.answers["xbus.take_event"] = [False, [[[0], "too old"]]]
        first.set_result([DONE])
        # Both are told of the refusal by one of them, so they had it in one run.
        await until_states(broker, [(2, "parked", 1), (2, "parked", 1)])
        await settled(broker, 3)
        assert prepared(broker) == ["a", "c"]
        assert "B" in letters(broker)


# -- coming and going ------------------------------------------------------------------------------------------------


async def test_what_waits_goes_on_to_the_others_when_one_leaves(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first = held()
        clients = await both(broker)
        clients[0].answers["xbus.prepare_envelopes"] = take_turns(first)
        await put_all(broker, "a")
        await broker.until(lambda: prepared(broker) == ["a"])
        await put_all(broker, "bcd")
        await until_read(broker)
        leaving = asyncio.create_task(broker.leave("store_2"))
        await settle()
        first.set_result([DONE])
        await leaving
        await broker.until(lambda: letters(broker) == "abcd")
        await broker.register("store_2", VOTES)
        await settled(broker, 4)
    assert letters(broker, "store_2").count("b") == 1
    assert sorted(set(letters(broker, "store_2"))) == list("abcd")
    assert await broker.rows() == {}


async def test_who_keeps_the_others_waiting_takes_what_waits_at_its_own_pace(journal: Journal) -> None:
    async with running(journal, behind_after=0.01) as broker:
        under_way = held()
        await both(broker, xbus_take_envelopes=under_way)
        recipient = broker.back.registry.get(broker.scribe.role_id("store_2"))
        assert recipient is not None
        first = held()
        broker.clients["tcp://store_2"].answers["xbus.prepare_envelopes"] = take_turns(first)
        await put_all(broker, "a")
        await broker.until(lambda: prepared(broker) == ["a"])
        await put_all(broker, "bc")
        await until_read(broker)
        broker.back._assembly.events.slow.publish(recipient)
        first.set_result([DONE])
        await broker.until(lambda: letters(broker) == "abc")
        await put_all(broker, "d")
        await broker.until(lambda: letters(broker) == "abcd")
        under_way.set_result([DONE] * 2)
        await settled(broker, 4)
        assert letters(broker, "store_2") == "abcd"


async def test_a_stop_of_the_broker_leaves_nothing_open_and_the_next_one_brings_what_waited(journal: Journal) -> None:
    async with running(journal) as broker:
        await both(broker, xbus_prepare_envelopes=held())
        await put_all(broker, "a")
        await broker.until(lambda: prepared(broker) == ["a"])
        await put_all(broker, "bc")
        await until_read(broker)
        await broker.back.stop(0)
        assert decided(broker) == decided(broker, "store_2") == ("", "a")
    async with running(journal) as broker:
        # One was in doubt, the others were never handed over.
        assert [position for position, _, _ in await states(broker)] == [1, 1]
        await both(broker)
        await settled(broker, 3)
        await until_states(broker, [])
        assert sorted(letters(broker)) == sorted(letters(broker, "store_2")) == list("abc")


async def test_an_ordered_role_has_one_open_at_a_time_even_if_its_program_allows_several(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal) as broker:
        for store in STORES:
            await broker.register(store, replace(VOTES, prepares=4, envelopes=4))
        await broker.until_together()
        await put_at_once(broker, "abc", ["k", "l", "m"])
        await settled(broker, 3)
        assert prepared(broker) == prepared(broker, "store_2") == ["a", "b", "c"]
