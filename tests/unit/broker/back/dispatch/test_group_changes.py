"""What changes while small envelopes wait in a party or are out: nothing is lost, overtaken, or left to nobody."""

import asyncio

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, letters, until_states
from tests.support.recipients import BUNDLES
from tests.unit.broker.back.dispatch.bundles.test_bundles import settle, want_order
from tests.unit.broker.back.dispatch.test_group_delivery import (
    RETRIES,
    add_shop,
    group_of,
    hold,
    known,
    put_all,
    put_keyed,
    settled,
)
from tests.unit.broker.back.test_instances import configure
from xbus.broker.back.dispatch.group_delivery import GroupDelivery
from xbus.broker.back.dispatch.parties import MOST_ENVELOPES, BundleParty
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Sealed


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
