"""What changes while small envelopes wait in a party or are out: nothing is lost, overtaken, or left to nobody."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, Wire, bundles, items_of, letters, until_states
from tests.support.journal import NOW
from tests.support.recipients import BUNDLES
from tests.unit.broker.back.dispatch.bundles.test_bundles import settle, want_order
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
from xbus.broker.back.dispatch.gathering import _HeldUp
from xbus.broker.back.dispatch.group_delivery import GroupDelivery
from xbus.broker.back.dispatch.parties import FIRST_ENVELOPES, MOST_ENVELOPES, MOST_WAITING, BundleParty
from xbus.broker.back.progress.ledger import RESERVE_POSITIONS
from xbus.broker.back.recipients import RecipientProxy, ServedRole
from xbus.broker.back.recipients.slots import This
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Sealed
from xbus.broker.journal.writes.pauses import PauseEntry, PauseKind


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
        on_reserve(broker, monkeypatch, partial(put_all, broker, "b"))
        handed_to: dict[bytes, int] = {}

        def take(bundle: Wire) -> list[object]:
            handed_to.update(dict.fromkeys(items_of(bundle), cursor.handed_to))
            return [DONE] * len(bundle)

        client.answers["xbus.take_envelopes"] = take
        broker.back._assembly._slots.free(taken)
        await broker.until(lambda: letters(broker) == "_ab")
        assert handed_to[b"b"] >= broker.back._assembly._log.head


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
        assert cursor.handed_to <= cursor.position + FIRST_ENVELOPES * 2 + RESERVE_POSITIONS
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
