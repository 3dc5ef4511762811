"""What changes while small envelopes wait in a party or are out: nothing is lost, overtaken, or left to nobody."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, TOO_OLD, Wire, bundles, by_item, correct, items_of, letters, until_states
from tests.support.journal import NOW
from tests.support.recipients import BUNDLES, VOTES
from tests.unit.broker.back.dispatch.bundles.test_bundles import settle, want_order
from tests.unit.broker.back.dispatch.bundles.test_successors import as_it_is
from tests.unit.broker.back.dispatch.test_group_delivery import (
    RETRIES,
    STORES,
    add_shop,
    both,
    group_of,
    hold,
    known,
    put_all,
    put_keyed,
    settled,
)
from tests.unit.broker.back.test_instances import configure
from xbus import model
from xbus.broker.back.dispatch.gathering import _HeldUp
from xbus.broker.back.dispatch.group_delivery import GroupDelivery
from xbus.broker.back.dispatch.parties import FIRST_ENVELOPES, MOST_ENVELOPES, MOST_WAITING, BundleParty
from xbus.broker.back.log import GroupPart
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS
from xbus.broker.back.recipients import RecipientProxy, ServedRole
from xbus.broker.back.recipients.slots import This
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import PauseEntry, PauseKind, Sealed
from xbus.states import TrackingState


def groups_of(broker: Broker) -> GroupDelivery:
    return broker.back._assembly._groups


def only_party(broker: Broker) -> BundleParty:
    (party,) = groups_of(broker).all_parties()
    return party


async def test_what_two_programs_did_not_begin_goes_in_the_order_of_the_log(journal: Journal) -> None:
    """Hints, which it does not get, lie between its envelopes; the program with the first ones answers first."""
    await add_shop(journal, hints_to=("shop",))
    await configure(journal, instances=2)
    async with running(journal) as broker:
        clients = {"one": await broker.join("store_1", "one", BUNDLES)}
        await known(broker)
        clients["two"] = await broker.join("store_1", "two", BUNDLES)
        party = only_party(broker)
        party.size.envelopes = MOST_ENVELOPES
        out = {f"tcp://{name}": hold(client) for name, client in clients.items()}
        await broker.write(group_of(broker, [(bytes([each]), "", "notes") for each in b"abcdef"]))
        await broker.write(group_of(broker, [(b"h", "", "hints")] * 2))
        await put_all(broker, "x")
        lower, upper = sorted(party.out, key=lambda call: call.positions[0])
        (first,), (second,) = lower.instances, upper.instances
        broker.back.registry.leave(first)
        out[first.uri].set_result([DONE, [], []])
        await settle()
        for client in clients.values():
            client.answers.clear()
        out[second.uri].set_result([DONE, []])
        await broker.until(lambda: settled(broker, "store_1") == 10)
        assert set(letters(broker, "one") + letters(broker, "two")) == set("_abcdefx")


async def test_what_is_sealed_lets_nothing_go_that_waits_for_a_failed_one_of_its_key(journal: Journal) -> None:
    """The commit comes in the moment in which the failure is noted and nobody has looked at what waits."""
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        log, lanes = broker.back._assembly._log, broker.back._assembly.lanes
        out = hold(client)
        await put_keyed(broker, "ab", "kk")
        (call,) = only_party(broker).out
        kept: list[Sealed] = []
        log._listeners[log._listeners.index(lanes._grew)] = kept.extend
        await broker.write(group_of(broker, [(b"c", "l", "notes")]))
        client.answers.clear()
        out.set_result([FAILS])
        while call in only_party(broker).out:
            await asyncio.sleep(0)
        lanes._grew(kept)
        await settle()
        assert "b" not in letters(broker)
        await until_states(broker, [(2, "retry", 1), (3, "held", 0)])


# -- what changes while a turn is waited for -------------------------------------------------------------------------


def served(broker: Broker, login: str) -> ServedRole:
    found = broker.back.registry.get(broker.scribe.role_id(login))
    assert found is not None
    return found


async def take_slot(broker: Broker, login: str = "store_1") -> RecipientProxy:
    """Take the slot of a consumer: what is put for it waits for a turn."""
    (taken,) = await broker.back._assembly._slots.take([This(served(broker, login))])
    return taken


def on_reserve(broker: Broker, monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[None]]) -> None:
    """Have something happen once while a hand-over is being reserved."""
    ledger = broker.back._assembly.ledger
    reserve, happenings = ledger.reserve, [then]

    async def reserved(role_ids: Iterable[int], position: int) -> None:
        await reserve(list(role_ids), position)
        if happenings:
            await happenings.pop()()

    monkeypatch.setattr(ledger, "reserve", reserved)


async def test_a_slot_is_given_back_when_its_role_is_paused_before_the_hand_over(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(journal) as broker:
        await both(broker)
        program = served(broker, "store_1").instances[0]

        async def pause() -> None:
            entry = PauseEntry(PauseKind.ROLE, program.role.id, "store_1", "for a test", "ada", NOW, None)
            broker.back.registry.follow(replace(program.role, pause=entry))

        on_reserve(broker, monkeypatch, pause)
        taken = await take_slot(broker)
        await put_all(broker, "ab")
        await settle()
        broker.back._assembly._slots.free(taken)
        await broker.until(lambda: letters(broker, "store_2") == "_ab")
        assert letters(broker) == "_"
        broker.back.registry.follow(replace(program.role, pause=None))
        await broker.until(lambda: letters(broker) == "_ab")


async def test_what_comes_while_a_hand_over_is_reserved_goes_when_it_is_reserved_too(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash it would come again as if it were new."""
    await add_shop(journal, hints_to=("shop",))
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
        assert cursor is not None
        taken = await take_slot(broker)
        await put_all(broker, "a")
        await broker.write(group_of(broker, [(b"h", "", "hints")] * 3 * RESERVE_POSITIONS))

        async def put_one() -> None:
            await put_all(broker, "b")
            await settle()

        on_reserve(broker, monkeypatch, put_one)
        handed_to: dict[bytes, int] = {}

        def take(bundle: Wire) -> list[object]:
            handed_to.update(dict.fromkeys(items_of(bundle), cursor.handed_to))
            return [DONE] * len(bundle)

        client.answers["xbus.take_envelopes"] = take
        broker.back._assembly._slots.free(taken)
        await broker.until(lambda: letters(broker) == "_ab")
        assert handed_to[b"b"] >= broker.back._assembly._log.head


async def test_what_a_crash_would_leave_in_doubt_goes_when_a_call_is_over(journal: Journal) -> None:
    """One program has an envelope of a key, and more of it wait than may be in doubt before one of another key."""
    await configure(journal, instances=2, ordered=True)
    async with running(journal) as broker:
        clients = {name: await broker.join("store_1", name, BUNDLES) for name in ("one", "two")}
        await known(broker)
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
        assert cursor is not None
        in_doubt: list[int] = []

        def take(bundle: Wire) -> list[object]:
            in_doubt.append(len(cursor.unsettled()))
            return [DONE] * len(bundle)

        out = {name: hold(client) for name, client in clients.items()}
        await put_keyed(broker, "a", "k")
        for client in clients.values():
            client.answers["xbus.take_envelopes"] = take
        await broker.write(group_of(broker, [(b"b", "k", "notes")] * RESERVE_POSITIONS + [(b"c", "l", "notes")]))
        await settle()
        assert "c" not in letters(broker, "one") + letters(broker, "two")
        for each in out.values():
            each.set_result([DONE])
        await broker.until(lambda: settled(broker, "store_1") == 3 + RESERVE_POSITIONS)
        assert max(in_doubt) <= RESERVE_POSITIONS


async def test_what_waits_reserves_no_more_than_what_goes_next(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
        assert cursor is not None
        only_party(broker).size.envelopes = FIRST_ENVELOPES
        out = hold(client)
        await put_all(broker, "a")
        await broker.write(group_of(broker, [(b"b", "", "notes")] * MOST_WAITING))
        again = hold(client)
        out.set_result([DONE])
        await broker.until(lambda: letters(broker).endswith("b"))
        await settle()
        assert cursor.handed_to <= cursor.position + RESERVE_POSITIONS
        client.answers.clear()
        again.set_result([DONE] * len(bundles(broker)[-1]))
        await broker.until(lambda: settled(broker, "store_1") == 2 + MOST_WAITING)


async def test_what_waits_for_two_that_keep_each_other_waiting_goes_to_both(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One leaves for a lane of its own; the lane of the other one has passed what waits."""
    async with running(journal) as broker:
        await both(broker)
        stores = [served(broker, store) for store in STORES]
        gathering = broker.back._assembly._gathering
        take_all = gathering._take_all
        held_up = [_HeldUp(stores)]

        async def take(recipients: Sequence[ServedRole]) -> list[RecipientProxy]:
            if held_up:
                raise held_up.pop()
            return await take_all(recipients)

        monkeypatch.setattr(gathering, "_take_all", take)
        taken = await take_slot(broker)
        await put_all(broker, "ab")
        await settle()
        broker.back._assembly._slots.free(taken)
        await broker.until(lambda: letters(broker) == letters(broker, "store_2") == "_ab")


# -- what goes without those that wait -------------------------------------------------------------------------------


def let_runs_wait(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Have runs of several consumers wait for their slots until the event is set."""
    may_begin, launcher = asyncio.Event(), broker.back._assembly._launcher
    gather = launcher.gather

    async def gathered(*args: Any, **more: Any) -> Any:
        await may_begin.wait()
        return await gather(*args, **more)

    monkeypatch.setattr(launcher, "gather", gathered)
    return may_begin


async def come_again(broker: Broker, login: str) -> None:
    await broker.lose(login, login)
    await broker.register(login, VOTES)
    await settle()


async def test_what_only_one_gets_is_not_left_to_a_program_that_was_lost(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correction goes first, in a run; what is held for one of two is brought to the other one behind it."""
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        client, _ = await both(broker)
        may_begin = let_runs_wait(broker, monkeypatch)
        out = hold(client, "xbus.prepare_envelopes")
        await put_keyed(broker, "a", "k")
        await put_keyed(broker, "bc", "lk")
        await settle()
        await correct(broker, 3, b"B")
        broker.ring()
        await broker.until(lambda: broker.back._assembly._log.has_corrections)
        client.answers.clear()
        out.set_result([FAILS])
        await broker.until(lambda: any(party.apart for party in groups_of(broker).all_parties()))
        await come_again(broker, "store_2")
        may_begin.set()
        await broker.until(lambda: {*"Bc"} <= {*letters(broker, "store_2")})


async def test_an_orderly_end_leaves_what_was_to_be_brought_apart(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two corrected envelopes are to go in runs, and the first of them waits: nothing is left in doubt."""
    async with running(journal, retry=RETRIES) as broker:
        client, _ = await both(broker)
        let_runs_wait(broker, monkeypatch)
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "abc")
        await settle()
        await correct(broker, 3, b"B")
        await correct(broker, 4, b"C")
        broker.ring()
        await broker.until(lambda: broker.back._assembly._log.has_corrections)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: any(party.apart for party in groups_of(broker).all_parties()))
        roles = [broker.back._assembly._roles[broker.scribe.role_id(store)] for store in STORES]
    assert [role.in_flight.positions for role in roles] == [set(), set()]
    assert [role.cursor and (role.cursor.position, role.cursor.handed_to) for role in roles] == [(2, 2)] * 2


async def test_the_clock_that_is_handed_in_says_how_long_a_call_takes(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "a")
        broker.clock.go_on(10)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: settled(broker, "store_1") == 2)
        assert only_party(broker).size.envelopes == 1


# -- repeats, groups of several graphs, workers ----------------------------------------------------------------------


async def test_a_repeat_that_is_committed_closes_the_failure_of_what_it_repeats(journal: Journal) -> None:
    async def trackings() -> list[str]:
        wanted = sa.select(model.failure.c.tracking)
        return list(await journal.read(lambda connection: connection.scalars(wanted).all()))

    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"x": TOO_OLD}))
        first = await broker.put(b"x")
        await broker.until_rows({"store_1": ("parked", 1, "refused")})
        # Somebody drops it.
        await journal.read(lambda connection: connection.execute(sa.delete(model.delivery)))
        client.answers.clear()
        await broker.write(await broker.scribe.again(first.envelope_id))
        while await trackings() != [TrackingState.CORRECTED.value]:
            await asyncio.sleep(0)
        assert letters(broker) == "xx"


async def test_what_waits_keeps_no_bytes_of_other_graphs(journal: Journal) -> None:
    await add_shop(journal, hints_to=("shop",))
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await broker.register("store_of_shop", BUNDLES)
        await broker.until_together()
        await known(broker)
        await put_all(broker, "_", "hints")
        await broker.until(lambda: settled(broker, "store_of_shop") == 2)
        await settle()
        out = hold(client)
        await put_all(broker, "a")
        group = group_of(broker, [(b"h" * 1000, "", "hints"), (b"b", "", "notes")])
        await broker.write(group)
        (waiting,) = [part for party in groups_of(broker).all_parties() for part in party.parts]
        assert isinstance(waiting, GroupPart)
        assert (list(waiting.positions), waiting.group.data) == ([5], group.data[1:])
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: letters(broker).endswith("ab"))


async def test_the_ways_of_groups_are_found_anew_when_a_worker_has_recovered(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=as_it_is)
        await broker.register("store_1", BUNDLES)
        await put_all(broker, "_", "flights")
        await broker.until(lambda: settled(broker, "store_1") == 1)
        await settle()
        await put_all(broker, "a", "flights")
        assert groups_of(broker)._ways
        broker.back.events.recovered.publish(served(broker, "names_1"))
        assert not groups_of(broker)._ways
