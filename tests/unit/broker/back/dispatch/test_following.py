"""The next envelopes go in the call that has those before committed, in a whole back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, NOT_BEGUN, TOO_OLD, Wire, letters, states, until_states
from tests.support.journal import NOW
from tests.support.recipients import BROKEN, GOES_ON, LOST, SILENT, VOTES, ScriptedClient
from tests.unit.broker.back.dispatch.bundles.test_bundles import settle, want_order
from tests.unit.broker.back.dispatch.test_group_delivery import (
    RETRIES,
    STORES,
    hold,
    known,
    put_all,
    put_keyed,
    settled,
)
from xbus import model
from xbus.broker.back.dispatch.parties import FIRST_ENVELOPES
from xbus.broker.back.recipients import Abilities, This
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import PauseEntry, PauseKind
from xbus.errors import Failed, Refused

PREPARE, COMMIT = "xbus.prepare_envelopes", "xbus.commit_envelopes"

ONE = replace(GOES_ON, prepares=1)
"""Has one transaction."""


async def both(broker: Broker, second: Abilities = ONE, first: Abilities = ONE) -> list[ScriptedClient]:
    """Register two stores that decide together, and have one envelope delivered to both by the lane."""
    clients = [await broker.register("store_1", first), await broker.register("store_2", second)]
    await broker.until_together()
    await known(broker)
    return clients


async def put_behind_one(broker: Broker, client: ScriptedClient, items: str, keys: str = "") -> None:
    """Have the first envelope prepared after the others have come."""
    out = hold(client, PREPARE)
    await put_keyed(broker, items, keys or "_" * len(items))
    await settle()
    for party in broker.back._assembly._groups.all_parties():
        # A slow recipient gets less at a time, and a busy machine makes it one.
        party.size.envelopes = FIRST_ENVELOPES
    del client.answers[PREPARE]
    out.set_result([DONE])
    await settle()


def asked(broker: Broker, login: str = "store_1") -> list[tuple[str, int, str]]:
    """Give the calls behind the first envelope: each verb, how many were committed, and what was brought."""
    found: list[tuple[str, int, str]] = []
    for call in broker.script.calls:
        if call.whom == login and call.verb in (PREPARE, COMMIT):
            committed = len(call.args[0]) if call.verb == COMMIT else 0
            bundle: Wire = call.args[-1] if call.verb == PREPARE or len(call.args) > 1 else []
            brought = "".join(events[0][2][0][2][-1:].decode() for _, events, *_ in bundle)
            found.append((call.verb.removeprefix("xbus.").removesuffix("_envelopes"), committed, brought))
    behind = next(place for place, call in enumerate(found) if call[2] == "a")
    return found[behind:]


def once(*answers: Any) -> Callable[..., Any]:
    """Answer the next calls for a decision so, and then oblige."""
    left = list(answers)

    def answer(ids: Wire, bundle: Wire = ()) -> Any:  # type: ignore[assignment]
        return left.pop(0) if left else [DONE] * (len(ids) + len(bundle))

    return answer


async def set_instances(journal: Journal, number: int) -> None:
    """Let each role be served by so many programs, before a broker starts."""

    def carry_out(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.role).values(instances=number))

    await journal.read(carry_out)


async def all_settled(broker: Broker, position: int) -> None:
    await broker.until(lambda: [settled(broker, store) for store in STORES] == [position] * 2)


async def test_who_has_one_transaction_gets_one_call_for_each_of_a_run_of_envelopes(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker)
        await put_behind_one(broker, client, "abcde")
        await all_settled(broker, 6)
        for store in STORES:
            assert asked(broker, store) == [
                ("prepare", 0, "a"),
                ("commit", 1, "b"),
                ("commit", 1, "c"),
                ("commit", 1, "d"),
                ("commit", 1, "e"),
                ("commit", 1, ""),
            ]
        (party,) = broker.back._assembly._groups.all_parties()
        assert not party.is_under_way
        assert all(broker.back._assembly._slots.is_free(each) for each in party.recipients)
    assert [await broker.cursor(store) for store in STORES] == [6, 6]


async def test_as_many_follow_as_each_allows_and_slots_are_given_back(journal: Journal) -> None:
    async with running(journal) as broker:
        three = replace(GOES_ON, prepares=3, envelopes=3)
        client, _ = await both(broker, three, three)
        await put_behind_one(broker, client, "abcdef")
        await all_settled(broker, 7)
        assert asked(broker)[:2] == [("prepare", 0, "a"), ("commit", 1, "bcd")]
        assert letters(broker) == letters(broker, "store_2") == "_abcdef"
        assert max(len(brought) for _, _, brought in asked(broker)) == 3
        (party,) = broker.back._assembly._groups.all_parties()
        for each in party.recipients:
            (instance,) = each.instances
            assert broker.back._assembly._slots.spare(instance) == 3


async def test_where_one_takes_none_with_a_decision_all_get_two_calls(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker, replace(VOTES, prepares=1))
        await put_behind_one(broker, client, "ab")
        await all_settled(broker, 3)
        for store in STORES:
            assert asked(broker, store) == [
                ("prepare", 0, "a"),
                ("commit", 1, ""),
                ("prepare", 0, "b"),
                ("commit", 1, ""),
            ]


# -- what goes wrong -------------------------------------------------------------------------------------------------


async def test_behind_a_commit_that_failed_the_next_is_asked_for_again_and_no_attempt_counts(journal: Journal) -> None:
    async with running(journal, retry=RETRIES, trouble_after=2) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = once([FAILS, NOT_BEGUN])
        await put_behind_one(broker, first, "ab")
        await until_states(broker, [(2, "retry", 1)])
        await broker.until(lambda: settled(broker, "store_1") == 3)
        assert asked(broker) == [("prepare", 0, "a"), ("commit", 1, "b"), ("commit", 1, "")]
        assert asked(broker, "store_2") == [*asked(broker)[:2], ("prepare", 0, "b"), ("commit", 1, "")]
        # What is open there is stopped before anything else begins.
        verbs = broker.script.verbs("store_2")
        assert verbs[-3:] == ["stop_envelope", PREPARE, COMMIT]
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_2"))
        broker.pass_time(10)
        await until_states(broker, [])


async def test_a_refusal_of_the_next_leaves_what_is_committed_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = once([DONE, TOO_OLD])
        await put_behind_one(broker, first, "abc")
        await until_states(broker, [(3, "parked", 1), (3, "parked", 1)])
        await all_settled(broker, 4)
        assert broker.script.verbs("store_1").count("stop_envelope") == 1


async def test_a_failure_of_the_next_is_the_affair_of_one(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = once([DONE, FAILS])
        await put_behind_one(broker, first, "ab")
        await until_states(broker, [(3, "retry", 1)])
        await broker.until(lambda: settled(broker, "store_1") == 3)
        assert asked(broker)[-1] == ("commit", 1, "")
        assert settled(broker, "store_2") == 3


@pytest.mark.parametrize("failure", [LOST, SILENT, BROKEN], ids=["lost", "silent", "error"])
async def test_who_gives_no_answer_gets_both_alone_later_as_one_failure(journal: Journal, failure: Exception) -> None:
    async with running(journal, retry=RETRIES, trouble_after=2) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = failure
        await put_behind_one(broker, first, "ab")
        await until_states(broker, [(2, "retry", 1), (3, "retry", 1)])
        await broker.until(lambda: settled(broker, "store_1") == 3)
        assert broker.script.verbs("store_2").count("stop_envelope") == 2
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_2"))
        second.answers.clear()
        broker.pass_time(10)
        await until_states(broker, [])


async def test_who_is_about_to_stop_commits_and_begins_no_more(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = [DONE, NOT_BEGUN]
        second.answers[PREPARE] = lambda bundle: (
            [DONE] if letters(broker, "store_2")[-1] == "a" else Failed("it stops", code="recipient_stopping")
        )
        await put_behind_one(broker, first, "ab")
        await broker.until(lambda: settled(broker, "store_1") == 3)
        await settle()
        assert settled(broker, "store_2") == 2
        assert [attempts for _, _, attempts in await states(broker)] in ([], [0])


@pytest.mark.parametrize(
    "answer", [[DONE], Refused("it is open already", code="envelope_open")], ids=["short", "refused"]
)
async def test_an_answer_that_tells_of_neither_has_both_come_again_alone(journal: Journal, answer: Any) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        second.answers[COMMIT] = once(answer)
        await put_behind_one(broker, first, "abc")
        await until_states(broker, [(2, "retry", 1), (3, "retry", 1)])
        await broker.until(lambda: settled(broker, "store_1") == 4)


async def test_a_fault_while_the_next_is_written_leaves_the_decision_alone(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        obliging = once()

        def fail(ids: Wire, *bundle: Wire) -> Any:
            if bundle:
                raise RuntimeError("a fault of ours")
            return obliging(ids)

        second.answers[COMMIT] = fail
        await put_behind_one(broker, first, "ab")
        await until_states(broker, [(3, "retry", 1), (3, "retry", 1)])
        assert asked(broker, "store_2")[:3] == [("prepare", 0, "a"), ("commit", 1, "b"), ("commit", 1, "")]
        assert broker.script.verbs("store_2").count(COMMIT) == 3, "one for the first envelope of all"


# -- who comes between -----------------------------------------------------------------------------------------------


async def test_nothing_follows_while_somebody_waits_for_a_slot(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker)
        slots = broker.back._assembly._slots
        out = hold(client, PREPARE)
        await put_all(broker, "ab")
        served = broker.back.registry.get(broker.scribe.role_id("store_2"))
        waiting = asyncio.ensure_future(slots.take([This(served)]))
        await settle()
        out.set_result([DONE])
        (taken,) = await waiting
        assert asked(broker) == [("prepare", 0, "a"), ("commit", 1, "")]
        client.answers.clear()
        slots.free(taken)
        await all_settled(broker, 3)


async def test_nothing_follows_at_one_that_is_paused(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker)
        out = hold(client, PREPARE)
        await put_all(broker, "ab")
        program = broker.back.registry.find(broker.scribe.role_id("store_2"), b"store_2")
        assert program is not None
        entry = PauseEntry(PauseKind.ROLE, program.role.id, "store_2", "for a test", "ada", NOW, None)
        broker.back.registry.follow(replace(program.role, pause=entry))
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: settled(broker, "store_2") == 2)
        assert asked(broker, "store_2") == [("prepare", 0, "a"), ("commit", 1, "")]
        broker.back.registry.follow(replace(program.role, pause=None))
        await all_settled(broker, 3)


async def test_one_that_is_paused_with_a_next_that_it_did_not_begin_has_nothing_open(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        answers = [hold(client, COMMIT) for client in (second, first)]
        await put_behind_one(broker, first, "ab")
        answers[0].set_result([FAILS, NOT_BEGUN])
        await settle()
        program = broker.back.registry.find(broker.scribe.role_id("store_2"), b"store_2")
        assert program is not None
        entry = PauseEntry(PauseKind.ROLE, program.role.id, "store_2", "for a test", "ada", NOW, None)
        broker.back.registry.follow(replace(program.role, pause=entry))
        first.answers.clear()
        answers[1].set_result([DONE, DONE])
        await broker.until(lambda: settled(broker, "store_1") == 3)
        assert len(program.bringing) == 0


async def test_what_follows_goes_on_without_one_that_leaves(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        out = hold(second, COMMIT)
        await put_behind_one(broker, first, "abc")
        leaving = asyncio.create_task(broker.leave("store_2"))
        await settle()
        second.answers.clear()
        out.set_result([DONE, DONE])
        await leaving
        await broker.until(lambda: settled(broker, "store_1") == 4)
        await broker.register("store_2", ONE)
        await all_settled(broker, 4)
        await until_states(broker, [])
    assert sorted(set(letters(broker, "store_2"))) == list("_abc")


async def test_one_that_is_lost_with_both_parts_gets_both_from_the_next_program(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, second = await both(broker)
        out = hold(second, COMMIT)
        await put_behind_one(broker, first, "abc")
        out.set_exception(LOST)
        await broker.lose("store_2", "store_2")
        await broker.until(lambda: settled(broker, "store_1") == 4)
        await broker.register("store_2", ONE)
        while await states(broker):
            broker.pass_time(10)
            await asyncio.sleep(0.001)
        await all_settled(broker, 4)
    assert sorted(set(letters(broker, "store_2"))) == list("_abc")


async def test_a_stop_of_the_broker_stops_both(journal: Journal) -> None:
    async with running(journal) as broker:
        first, second = await both(broker)
        hold(second, COMMIT)
        await put_behind_one(broker, first, "abc")
        await broker.back._assembly._groups.finish(0.01)
        assert broker.script.verbs("store_2")[-2:] == ["stop_envelope"] * 2
        assert letters(broker, "store_2") == "_ab"


async def test_a_role_that_wants_order_gets_the_next_of_a_key_when_the_one_before_is_settled(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        first, _ = await both(broker)
        first.answers[COMMIT] = once([FAILS])
        await put_behind_one(broker, first, "ab", "kk")
        await until_states(broker, [(2, "retry", 1), (3, "held", 0)])
        await broker.until(lambda: settled(broker, "store_2") == 3)
        assert asked(broker, "store_2") == [("prepare", 0, "a"), ("commit", 1, "")]
        assert letters(broker, "store_2") == "_ab"
        await put_behind_one(broker, first, "cd", "mn")
        await broker.until(lambda: settled(broker, "store_2") == 5)
        assert ("commit", 1, "d") in asked(broker)


async def test_a_role_that_begins_to_want_order_meanwhile_gets_none_of_a_key_early(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        first, _ = await both(broker)
        out = hold(first, PREPARE)
        await put_keyed(broker, "ab", "kk")
        await settle()
        broker.back._assembly._roles[broker.scribe.role_id("store_1")].keys.want(True)
        first.answers[COMMIT] = once([FAILS])
        del first.answers[PREPARE]
        out.set_result([DONE])
        await until_states(broker, [(2, "retry", 1), (3, "held", 0)])


async def test_a_pair_that_is_free_gets_what_waits_while_another_one_is_slow(journal: Journal) -> None:
    await set_instances(journal, 2)
    async with running(journal) as broker:
        logins = {name: f"store_{name[0]}" for name in ("1a", "1b", "2a", "2b")}
        clients = {name: await broker.join(login, name, ONE) for name, login in logins.items()}
        await broker.until_together()
        await known(broker)
        prepares = {name: hold(client, PREPARE) for name, client in clients.items()}
        await put_keyed(broker, "a", "_")
        await settle()
        (party,) = (each for each in broker.back._assembly._groups.all_parties() if len(each.recipients) == 2)
        (call,) = party.out
        slow = [name for name in clients if any(each.uri.endswith(name) for each in call.instances)]
        await put_keyed(broker, "bcd", "___")
        await settle()
        commits = {name: hold(clients[name], COMMIT) for name in slow}
        for name in [*slow, *(each for each in clients if each not in slow)]:
            clients[name].answers.pop(PREPARE, None)
            prepares[name].set_result([DONE])
            await settle()
        await put_keyed(broker, "ef", "__")
        await broker.until(lambda: party.waiting == 0)
        for name in slow:
            del clients[name].answers[COMMIT]
            commits[name].set_result([DONE, DONE])
        await all_settled(broker, 7)


async def test_who_keeps_the_others_waiting_with_both_parts_does_so_once(journal: Journal) -> None:
    async with running(journal, behind_after=1000) as broker:
        first, second = await both(broker)
        out = hold(second, COMMIT)
        await put_behind_one(broker, first, "ab")
        (following,) = (
            call for party in broker.back._assembly._groups.all_parties() for call in party.out if call.follows
        )
        second.answers.clear()
        await asyncio.sleep(0.02)
        out.set_result([DONE, DONE])
        await all_settled(broker, 3)
        assert max(following.busy_seconds().values()) < 0.02
