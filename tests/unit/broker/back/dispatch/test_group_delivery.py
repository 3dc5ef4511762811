"""Groups that go as columns, in a whole back: who gets them, and what becomes of those that are not committed."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import DONE, FAILS, TOO_OLD, Wire, bundles, by_item, letters, until_states
from tests.support.journal import NOW, small_bus
from tests.support.recipients import BUNDLES, LOST, SILENT, VOTES, ScriptedClient
from tests.unit.broker.back.dispatch.bundles.test_bundles import make_own, settle, want_order
from tests.unit.broker.back.dispatch.bundles.test_successors import as_it_is
from tests.unit.broker.back.test_instances import configure
from xbus import model
from xbus.broker.back.dispatch.parties import FIRST_ENVELOPES, MOST_WAITING
from xbus.broker.back.log import SMALL_BYTES, GroupPart
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients import Abilities
from xbus.broker.journal.configuration import (
    EventTypeSpec,
    NodeSpec,
    RoleSpec,
    ServiceSpec,
    apply,
    make_plan,
    read_stored,
)
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import GroupType, ProgressUpdate, PutGroup
from xbus.envelope import EnvelopeHead
from xbus.headers import NO_TAGS
from xbus.rpc.codec import pack_items

RETRIES = RetryPolicy(attempts=3, jitter=0)
STORES = ("store_1", "store_2")

MOST_ROUNDS = 500
"""Where a machine is busy for this long, a recipient is slow."""


async def put_all(broker: Broker, items: str, type_name: str = "notes") -> None:
    for item in items:
        await broker.put(item.encode(), type_name=type_name)


async def known(broker: Broker) -> None:
    """Have one envelope delivered, by the lane: the emitter and the graph are known from then on."""
    await put_all(broker, "_")
    await broker.until(lambda: settled(broker, "store_1") == 1)
    await settle()


async def put_keyed(broker: Broker, items: str, keys: str) -> None:
    """Put envelopes with ordering keys; "_" is none."""
    for item, key in zip(items, keys, strict=True):
        await broker.put(item.encode(), ordering_key=None if key == "_" else key)


async def put_together(broker: Broker, envelopes: Sequence[tuple[str, str, str]]) -> None:
    """Put envelopes that one commit seals, each by its item, ordering key and type."""
    puts = [broker.put(item.encode(), ordering_key=key, type_name=of_type) for item, key, of_type in envelopes]
    positions = [receipt.position for receipt in await asyncio.gather(*puts)]
    assert positions == list(range(positions[0], positions[0] + len(positions)))


def group_of(broker: Broker, envelopes: Sequence[tuple[bytes, str, str]]) -> PutGroup:
    """Make a group of envelopes, each of its item, ordering key and type."""
    items = [pack_items([item]) for item, _, _ in envelopes]
    kinds = [broker.scribe.catalog.event_types[of_type] for _, _, of_type in envelopes]
    return PutGroup(
        [broker.scribe.emitter_id()] * len(items),
        NOW,
        [uuid4().bytes for _ in items],
        [uuid4().bytes for _ in items],
        [GroupType(kind.id, kind.name, kind.hashed_name, kind.graph_id, compress=False) for kind in kinds],
        [1] * len(items),
        items,
        [EnvelopeHead(ordering_key=key) for _, key, _ in envelopes],
        [NO_TAGS] * len(items),
        sum(map(len, items)),
    )


async def add_shop(journal: Journal, hints_to: Sequence[str] = ("store", "shop")) -> None:
    """Have hints go to the service of a shop too, and notes to the stores alone, before a broker starts."""
    bus = small_bus()
    nodes = {each: NodeSpec(each, each) for each in hints_to}
    wanted = replace(
        bus,
        event_types={**bus.event_types, "hints": EventTypeSpec("hints", False, nodes)},
        services={**bus.services, "shop": ServiceSpec("shop", "consumer")},
        roles={**bus.roles, "store_of_shop": RoleSpec("store_of_shop", "shop")},
    )

    def carry_out(connection: sa.Connection) -> None:
        apply(connection, make_plan(read_stored(connection), wanted), NOW)

    await journal.read(carry_out)


def settled(broker: Broker, login: str) -> int:
    """Up to which position a role needs nothing more in its turn."""
    cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id(login))
    assert cursor is not None
    return cursor.position


def hold(client: ScriptedClient, verb: str = "xbus.take_envelopes") -> "asyncio.Future[Any]":
    """Have the calls of a consumer wait for the answer that is given to the future."""
    out: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    client.answers[verb] = out
    return out


def has_ended(broker: Broker, items: str) -> bool:
    """Check whether these items were the last ones that were delivered."""
    return letters(broker).endswith(items)


def in_groups(broker: Broker) -> int:
    """Count the envelopes that went in groups behind the first one of all."""
    return broker.back.figures.in_groups - 1


async def test_a_role_at_the_head_gets_what_is_sealed_in_the_turn_of_its_commit(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES)
        await known(broker)
        await put_all(broker, "a")
        assert letters(broker) == "_a", "nothing was waited for"
        await broker.until(lambda: in_groups(broker) == 1)
    assert await broker.cursor() == 2


async def test_what_is_sealed_while_a_call_is_out_goes_together(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        # A busy machine stretches a call, and a slow recipient gets less at a time: one round in time is enough. It has
        # to put three envelopes in 33 ms, as BUNDLE_SECONDS is shared by those that go together.
        for round_of in islice(cycle(("abcd", "efgh")), MOST_ROUNDS):
            out = hold(client)
            await put_all(broker, round_of)
            assert letters(broker)[-1] == round_of[0], "the others wait"
            client.answers.clear()
            out.set_result([DONE])
            await broker.until(partial(has_ended, broker, round_of[1:]))
            await settle()
            if bundles(broker)[-1] == round_of[1:]:
                break
        assert bundles(broker)[-1] == round_of[1:]
        await broker.until(lambda: in_groups(broker) == len(letters(broker)) - 1)
        put = len(letters(broker))
    assert await broker.cursor() == put


async def test_a_failure_concerns_its_envelope_alone(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"b": FAILS}))
        await known(broker)
        await put_all(broker, "abc")
        await until_states(broker, [(3, "retry", 1)])
        await broker.until(lambda: letters(broker).endswith("c"))
    assert await broker.cursor() == 4


@pytest.mark.parametrize("is_late", [False, True], ids=["at_once", "while_others_are_out"])
async def test_a_fault_while_they_are_written_reaches_no_commit(journal: Journal, is_late: bool) -> None:
    """The emitter has its receipt, and the envelope goes alone."""
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)

        def fail(bundle: Wire) -> Any:
            raise RuntimeError("a fault of ours")

        client.answers["xbus.take_envelopes"] = fail
        await put_all(broker, "ab" if is_late else "a")
        client.answers.clear()
        while not set(letters(broker)) >= set("ab" if is_late else "a"):
            broker.pass_time(10)
            await asyncio.sleep(0.001)
        cursor = broker.back._assembly.ledger.cursor(broker.scribe.role_id("store_1"))
        assert cursor is not None
        await broker.until(lambda: cursor.position == (3 if is_late else 2))


async def test_what_an_operator_skips_while_it_waits_is_not_handed_over(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "abc")
        broker.back._assembly.ledger.settle(broker.scribe.role_id("store_1"), 3)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: letters(broker).endswith("c"))
        assert letters(broker) == "_ac"


async def test_a_role_that_leaves_gets_what_waited_when_it_comes_again(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_all(broker, "abc")
        leaving = asyncio.ensure_future(broker.leave("store_1"))
        await asyncio.sleep(0)
        out.set_result([DONE])
        await leaving
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "_abc")
    assert await broker.cursor() == 4


async def test_a_call_that_is_out_at_the_end_is_broken_off(journal: Journal) -> None:
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        hold(client)
        await put_all(broker, "a")
        await broker.back._assembly._groups.finish(0.01)
        assert [call.verb for call in broker.script.calls][-1] == "stop_envelope"
        assert (await broker.cursor(), in_groups(broker)) == (1, 0)


async def test_a_group_passes_workers_without_a_page(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = 0
    async with running(journal) as broker:
        await broker.register("names_1", BUNDLES, xbus_take_envelopes=as_it_is)
        await broker.register("store_1", BUNDLES)
        await put_all(broker, "_", "flights")
        await broker.until(lambda: settled(broker, "store_1") == 1)
        await settle()
        log = broker.back._assembly._log
        read = log.page

        def counted(after: int, services: Collection[str]) -> Any:
            nonlocal pages
            pages += 1
            return read(after, services)

        monkeypatch.setattr(log, "page", counted)
        await put_all(broker, "ab", "flights")
        await broker.until(lambda: settled(broker, "store_1") == 3)
    assert (pages, letters(broker), letters(broker, "names_1")) == (0, "_ab", "_ab")


# -- order -----------------------------------------------------------------------------------------------------------


async def test_a_role_that_wants_order_gets_one_of_each_key_at_a_time(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_keyed(broker, "a", "k")
        await put_keyed(broker, "bcdef", "klk__")
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 6)
        assert letters(broker) == "_abcdef"
        keys = dict(zip("abcdef", "kklk__", strict=True))
        assert all(len({keys[item] for item in bundle}) == len(bundle) for bundle in bundles(broker)[1:])
    assert await broker.cursor() == 7


async def test_what_waits_keeps_no_bytes_of_what_has_gone(journal: Journal) -> None:
    """The envelopes of a group that wait for one of their key are the small ones."""
    await want_order(journal)
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        (party,) = broker.back._assembly._groups.all_parties()
        party.size.envelopes = FIRST_ENVELOPES
        out = hold(client)
        group = group_of(broker, [(item, "k", "notes") for item in (b"a" * 1000, b"b", b"c")])
        await broker.write(group)
        (waiting,) = party.parts
        assert isinstance(waiting, GroupPart)
        assert (list(waiting.positions), waiting.group.data) == ([3, 4], group.data[1:])
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 3)
        assert has_ended(broker, "aabc")
    assert await broker.cursor() == 4


async def test_no_key_stays_in_hand_of_a_role_that_wants_no_order_any_more(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_keyed(broker, "a", "k")
        role = broker.back._assembly._roles[broker.scribe.role_id("store_1")]
        assert "k" in role.keys_in_hand
        role.keys.want(False)
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 1)
        assert "k" not in role.keys_in_hand


async def test_two_programs_of_a_role_never_have_the_same_key(journal: Journal) -> None:
    await configure(journal, instances=2, ordered=True)
    async with running(journal) as broker:
        first = await broker.join("store_1", "store_a", BUNDLES)
        second = await broker.join("store_1", "store_b", BUNDLES)
        await known(broker)
        answers = {"store_a": hold(first), "store_b": hold(second)}
        await put_keyed(broker, "abcd", "kklk")
        # One has the key; the other one gets what is of none such.
        (has_key,) = [name for name in answers if letters(broker, name).endswith("a")]
        (other,) = answers.keys() - {has_key}
        assert letters(broker, other).endswith("c")
        answers[other].set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 1)
        assert not letters(broker, other).endswith("d")
        first.answers.clear()
        second.answers.clear()
        answers[has_key].set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 4)
    assert await broker.cursor() == 5


async def test_what_waits_behind_a_failed_one_of_its_key_is_held_and_others_go_on(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"a": FAILS}))
        await known(broker)
        await put_keyed(broker, "abc", "klk")
        await until_states(broker, [(2, "retry", 1), (4, "held", 0)])
        await broker.until(lambda: letters(broker).endswith("b"))
        assert "c" not in letters(broker)
        broker.pass_time(10)
        await until_states(broker, [])
        assert letters(broker).endswith("ac")


async def test_the_next_recipient_of_a_role_that_wants_order_waits_for_the_call_before(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        out = hold(client)
        await put_keyed(broker, "ab", "kk")
        assert letters(broker) == "_a"
        await broker.register("store_1", BUNDLES)
        await settle()
        assert letters(broker) == "_a"
        out.set_exception(LOST)
        broker.pass_time(10)
        await broker.until(lambda: letters(broker) == "_aab")


@pytest.mark.parametrize("is_ordered", [False, True], ids=["plain", "ordered"])
async def test_a_voter_of_two_graphs_gets_all_of_one_commit_and_its_keys_in_order(
    journal: Journal, is_ordered: bool
) -> None:
    """It decides with different consumers about envelopes that lie between each other."""
    await add_shop(journal)
    await configure(journal, ordered=is_ordered)
    async with running(journal) as broker:
        await broker.register("store_1", VOTES)
        await broker.register("store_of_shop", VOTES)
        await broker.until_together()
        await known(broker)
        await put_all(broker, "_", "hints")
        await broker.until(lambda: settled(broker, "store_1") == 2)
        await settle()
        await put_together(broker, [("a", "k", "hints"), ("b", "l", "notes"), ("c", "l", "hints")])
        await broker.until(lambda: settled(broker, "store_1") == 5)
        given = letters(broker)
        assert sorted(given) == sorted("__abc")
        assert not is_ordered or given.index("b") < given.index("c")


async def test_those_that_get_the_same_of_a_group_share_their_part(journal: Journal) -> None:
    await add_shop(journal, hints_to=["shop"])
    async with running(journal) as broker:
        clients = [await broker.register(login, BUNDLES) for login in STORES]
        await broker.register("store_of_shop", BUNDLES)
        for store in STORES:
            make_own(broker, store)
        await broker.until_together()
        await known(broker)
        await put_all(broker, "_", "hints")
        await broker.until(lambda: settled(broker, "store_of_shop") == 2)
        await settle()
        out = [hold(client) for client in clients]
        await put_all(broker, "a")
        await broker.write(group_of(broker, [(b"b", "k", "notes"), (b"c", "l", "hints"), (b"d", "m", "notes")]))
        one, other = [part for party in broker.back._assembly._groups.all_parties() for part in party.parts]
        assert one is other
        assert list(one.positions) == [4, 6]
        for client, answer in zip(clients, out, strict=True):
            client.answers.clear()
            answer.set_result([DONE])
        await broker.until(lambda: letters(broker) == letters(broker, "store_2") == "_abd")


async def test_a_run_waits_for_a_call_whose_envelopes_may_not_be_begun(journal: Journal) -> None:
    """A call brings a to e. While it is out the lane comes to a large envelope of the key of d, and a fails then."""
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        await known(broker)
        (party,) = broker.back._assembly._groups.all_parties()
        party.size.envelopes = FIRST_ENVELOPES
        out = hold(client)
        await put_together(broker, [(item, item, "notes") for item in "abcde"])
        assert bundles(broker)[-1] == "abcde"
        await broker.put(b"L" * (SMALL_BYTES + 1), ordering_key="d")
        await settle()
        client.answers.clear()
        out.set_result([FAILS, [], [], [], []])
        await broker.until(lambda: "L" in letters(broker))
        # The first "d" was in the call that did not begin it.
        assert letters(broker).partition("L")[0].count("d") == 2


# -- those that decide together --------------------------------------------------------------------------------------


async def both(broker: Broker, kind: Abilities = VOTES) -> list[ScriptedClient]:
    """Register two stores that decide together, and have one envelope delivered to both by the lane."""
    clients = [await broker.register(store, kind) for store in STORES]
    await broker.until_together()
    await known(broker)
    return clients


async def test_two_that_decide_together_get_a_group_in_two_calls_each(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker)
        before = len(broker.script.calls)
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "a")
        await put_all(broker, "bc")
        # Nobody is told to commit what another one has not voted on, and what comes meanwhile waits.
        assert [call.verb for call in broker.script.calls[before:]] == ["xbus.prepare_envelopes"] * 2
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 3)
        verbs = [call.verb for call in broker.script.calls[before:] if call.whom == "store_1"]
        assert verbs == ["xbus.prepare_envelopes", "xbus.commit_envelopes"] * (len(verbs) // 2)
    assert [await broker.cursor(store) for store in STORES] == [4, 4]


async def test_what_one_refuses_is_stopped_at_all_and_the_others_are_committed(journal: Journal) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker)
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "a")
        await put_all(broker, "bcd")
        client.answers["xbus.prepare_envelopes"] = by_item({b"c": TOO_OLD})
        out.set_result([DONE])
        await until_states(broker, [(4, "parked", 1), (4, "parked", 1)])
        await broker.until(lambda: [settled(broker, store) for store in STORES] == [5, 5])
        stops = [call for call in broker.script.calls if call.verb == "stop_envelope" and call.whom == "store_2"]
        assert len(stops) == 1
        # The next group finds nothing that is left of this one.
        count = in_groups(broker)
        await put_all(broker, "e")
        await broker.until(lambda: in_groups(broker) == count + 1)


async def test_one_that_is_lost_before_the_decision_gets_all_alone_later(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        client, _ = await both(broker)
        client.answers["xbus.prepare_envelopes"] = LOST
        await put_all(broker, "a")
        await until_states(broker, [(2, "retry", 1)])
        assert (settled(broker, "store_2"), letters(broker, "store_2")) == (2, "_a")


async def test_one_that_does_not_answer_the_decision_gets_all_again_after_a_stop(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        client, _ = await both(broker)
        client.answers["xbus.commit_envelopes"] = SILENT
        await put_all(broker, "a")
        await until_states(broker, [(2, "retry", 1)])
        assert [call.verb for call in broker.script.calls if call.whom == "store_1"][-1] == "stop_envelope"
        assert settled(broker, "store_2") == 2


async def test_a_vote_that_is_broken_off_gives_slots_and_keys_back(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal) as broker:
        client, _ = await both(broker)
        broker.clients["tcp://store_2"].answers["xbus.prepare_envelopes"] = by_item({b"a": TOO_OLD})
        hold(client, "xbus.commit_envelopes")
        for party in broker.back._assembly._groups.all_parties():
            party.size.envelopes = FIRST_ENVELOPES
        await put_together(broker, [("a", "k", "notes"), ("b", "l", "notes")])
        await settle()
        back = broker.back._assembly
        role = back._roles[broker.scribe.role_id("store_1")]
        assert "k" in role.keys_in_hand
        await back._groups.finish(0)
        assert "k" not in role.keys_in_hand
        assert role.served is not None
        assert back._groups._slots.is_free(role.served)


async def let_each_decide_alone(journal: Journal) -> None:
    def carry_out(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.service).where(model.service.c.name == "store").values(failures="own"))
        connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1))

    await journal.read(carry_out)


async def test_those_that_decide_together_no_more_get_groups_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        await both(broker)
        await put_all(broker, "a")
        await broker.until(lambda: in_groups(broker) == 1)
        await let_each_decide_alone(journal)
        await broker.refresh_configuration()
        stores = [broker.back.registry.get(broker.scribe.role_id(store)) for store in STORES]
        await broker.until(lambda: all(store is not None and store.role.own for store in stores))
        before = len(broker.script.calls)
        await put_all(broker, "b")
        await broker.until(lambda: in_groups(broker) == 3)
        assert [call.verb for call in broker.script.calls[before:]] == ["xbus.take_envelopes"] * 2
    assert [await broker.cursor(store) for store in STORES] == [3, 3]


@pytest.mark.parametrize("most", [1, 2])
async def test_no_more_are_open_than_each_allows(journal: Journal, most: int) -> None:
    async with running(journal) as broker:
        client, _ = await both(broker, replace(VOTES, prepares=most))
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "a")
        await put_all(broker, "bcd")
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: in_groups(broker) == 4)
        assert "".join(bundles(broker)) == "_abcd"
        assert max(map(len, bundles(broker))) <= most


async def test_those_that_decide_together_wait_for_one_reservation(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 0
    submit = journal.submit

    def counted(write: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal pages
        pages += isinstance(write, ProgressUpdate) and not has_ended(broker, "b")
        submit(write, *args, **kwargs)

    async with running(journal) as broker:
        await both(broker)
        await put_all(broker, "a")
        await broker.until(lambda: [settled(broker, store) for store in STORES] == [2, 2])
        await broker.back._assembly.ledger.written()
        for store in STORES:
            # As after many envelopes of other types.
            role = broker.back._assembly._roles[broker.scribe.role_id(store)]
            assert role.cursor is not None
            role.cursor.handed_to = role.reserving_to = role.reserved_to = 2
        monkeypatch.setattr(journal, "submit", counted)
        await put_all(broker, "b")
        await broker.until(lambda: has_ended(broker, "b"))
    assert pages == 1


async def test_a_program_that_prepares_nothing_is_not_asked_to(journal: Journal) -> None:
    """It comes while envelopes wait that another program of its role would have prepared."""
    await configure(journal, instances=2)
    async with running(journal) as broker:
        client, _ = await both(broker)
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "ab")
        await broker.join("store_1", "second", BUNDLES)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: [settled(broker, store) for store in STORES] == [3, 3])
        assert letters(broker) + letters(broker, "second") == "_ab"
        assert "xbus.prepare_envelopes" not in broker.script.verbs("second")


async def test_what_is_out_is_waited_for_though_one_has_left_those_that_decide(journal: Journal) -> None:
    await configure(journal, ordered=True)
    async with running(journal) as broker:
        _, client = await both(broker)
        bundled = broker.back._assembly._groups
        out = hold(client, "xbus.prepare_envelopes")
        await put_all(broker, "a")
        staying, slow = [broker.back.registry.get(broker.scribe.role_id(store)) for store in STORES]
        assert staying is not None
        assert slow is not None
        broker.back.events.slow.publish(slow)
        waiting = asyncio.ensure_future(broker.back._assembly._pages.emptied(staying, in_company=False))
        await settle()
        assert not waiting.done()
        out.set_result([DONE])
        await waiting
        await settle()
        assert not any(party.is_closing for party in bundled.all_parties())


# -- one that is slow ------------------------------------------------------------------------------------------------


async def test_one_that_decides_alone_never_keeps_others_waiting(journal: Journal) -> None:
    """It goes on at its own pace as soon as its queue is full, however long others would wait for it."""
    async with running(journal, behind_after=1000) as broker:
        client = await broker.register("store_1", BUNDLES)
        await broker.register("store_2", BUNDLES)
        make_own(broker, "store_1")
        await broker.until_together()
        await known(broker)
        out = hold(client)
        for _ in range(2 * MOST_WAITING):
            await put_all(broker, "a")
        await broker.until(lambda: settled(broker, "store_2") == 1 + 2 * MOST_WAITING)
        client.answers.clear()
        out.set_result([DONE])
        await broker.until(lambda: settled(broker, "store_1") == 1 + 2 * MOST_WAITING)
    assert letters(broker) == letters(broker, "store_2")


async def test_one_that_decides_alone_keeps_nobody_waiting_who_has_nothing_to_do(journal: Journal) -> None:
    """So many are sealed at once that they wait in a page, of which others get nothing more while its lane waits."""
    async with running(journal, behind_after=1000) as broker:
        client = await broker.register("store_1", BUNDLES)
        await broker.register("store_2", BUNDLES)
        make_own(broker, "store_1")
        await broker.until_together()
        await known(broker)
        out = hold(client)
        await put_together(broker, [("a", "", "notes")] * 3 * MOST_WAITING)
        await broker.until(lambda: settled(broker, "store_2") == 1 + 3 * MOST_WAITING)
        client.answers.clear()
        out.set_result([DONE] * len(bundles(broker)[-1]))
        await broker.until(lambda: settled(broker, "store_1") == 1 + 3 * MOST_WAITING)
    assert letters(broker) == letters(broker, "store_2")
