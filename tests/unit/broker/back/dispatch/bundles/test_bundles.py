"""Bundles in a whole back: what waits for a consumer goes in one call, and each envelope has a fate of its own."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.back import Broker, running
from tests.support.bundles import (
    DONE,
    FAILS,
    NOT_BEGUN,
    TOO_OLD,
    Wire,
    bundles,
    by_item,
    correct,
    letters,
    states,
    until_states,
)
from tests.support.recipients import BUNDLES, LOST, NEW, OLD, SILENT, ScriptedClient
from xbus import model
from xbus.broker.back.dispatch.parties import FIRST_ENVELOPES, MOST_ENVELOPES
from xbus.broker.back.log import DeliveryNote
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.journal import Journal
from xbus.errors import Failed

RETRIES = RetryPolicy(attempts=3, jitter=0)
AT_ONCE = RetryPolicy(attempts=5, first_delay=0)

PATIENCE_SECONDS = 10
"""For what can't be waited for until the test's deadline."""

BEGINNINGS = {"start_event": 3, "xbus.take_event": 5, "xbus.take_envelopes": 1}
"""The calls with which an envelope begins at a recipient, and how many arguments they have without a note."""


async def put_all(broker: Broker, items: str) -> None:
    """An envelope with one item of each letter."""
    for item in items:
        await broker.put(item.encode())


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(100):
        await asyncio.sleep(0)


async def until_read(broker: Broker) -> None:
    """All lanes have handed out what was put: it waits, or is on its way."""
    delivering = broker.back._assembly
    await broker.until(lambda: all(lane.position == delivering._log.head for lane in delivering.lanes._lanes))
    await settle()


def held() -> "asyncio.Future[Any]":
    """An answer that comes when the test gives it."""
    return asyncio.get_running_loop().create_future()


def give_in_turn(client: ScriptedClient, *answers: Any) -> None:
    """Have a client give these answers to bundles, and then oblige."""
    left = list(answers)

    def answer(bundle: Wire) -> Any:
        given = left.pop(0) if left else [DONE] * len(bundle)
        if isinstance(given, Exception):
            failed = held()
            failed.set_exception(given)
            return failed
        return given

    client.answers["xbus.take_envelopes"] = answer


# -- together --------------------------------------------------------------------------------------------------------


async def test_what_waits_goes_together_and_one_alone_goes_at_once(journal: Journal) -> None:
    async with running(journal) as broker:
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: bundles(broker) == ["abc"])
        await put_all(broker, "d")
        await broker.until(lambda: bundles(broker) == ["abc", "d"])
    assert await broker.rows() == {}
    assert await broker.cursor() == 4
    assert set(broker.script.verbs("store_1")) <= {
        "get_metadata",
        "has_clearing",
        "has_immediate_reply",
        "xbus.take_envelopes",
    }


async def test_what_comes_while_one_is_under_way_waits_for_its_end(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await put_all(broker, "a")
        await broker.until(lambda: bundles(broker) == ["a"])
        await put_all(broker, "bcd")
        await until_read(broker)
        assert bundles(broker) == ["a"]
        first.set_result([DONE])
        await broker.until(lambda: letters(broker) == "abcd")


async def test_all_of_an_envelope_is_in_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.scribe.put([b"a", b"b"], [], [b"c"])
        broker.ring()
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "abc")
    (((_, events),),) = next(call.args for call in broker.script.calls if call.verb == "xbus.take_envelopes")
    assert [(type_name, [batch[:2] for batch in batches]) for _, type_name, batches in events] == [
        ("notes", [(0, 2)]),
        ("notes", []),
        ("notes", [(0, 1)]),
    ]


async def test_a_long_backlog_comes_in_order_and_once(journal: Journal) -> None:
    async with running(journal) as broker:
        wanted = [b"%d" % number for number in range(600)]
        for item in wanted:
            await broker.scribe.put([item])
        broker.ring()
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: len(broker.items("store_1")) == 600)
        assert broker.items("store_1") == wanted
        sizes = [len(bundle) for bundle in broker.script.bundles("store_1")]
        assert sizes[0] == FIRST_ENVELOPES
        assert max(sizes) <= MOST_ENVELOPES
        assert len(sizes) < 200
    assert await broker.cursor() == 600
    assert await broker.rows() == {}


# -- each has its own result -----------------------------------------------------------------------------------------


async def test_a_refused_one_is_parked_and_the_others_settle(journal: Journal) -> None:
    async with running(journal) as broker:
        await put_all(broker, "abc")
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"b": TOO_OLD}))
        await until_states(broker, [(2, "parked", 1)])
    assert letters(broker) == "abc"
    assert await broker.rows() == {"store_1": ("parked", 1, "refused")}
    assert await broker.cursor() == 3


async def test_a_failed_one_goes_alone_next_and_is_stopped_before(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        await put_all(broker, "abcd")
        client = await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"b": FAILS}))
        await until_states(broker, [(2, "retry", 1)])
        # Those that were not begun come again in order, with no attempt counted.
        await broker.until(lambda: letters(broker).startswith("abcdcd"))
        assert letters(broker) == "abcdcd"
        assert bundles(broker)[:2] == ["abcd", "c"]
        del client.answers["xbus.take_envelopes"]
        broker.pass_time(10)
        await until_states(broker, [])
        assert letters(broker) == "abcdcdb"
        verbs = [verb for verb in broker.script.verbs("store_1") if verb != "xbus.take_envelopes"]
        assert verbs[-2:] == ["stop_envelope", "xbus.take_event"]
    assert await broker.cursor() == 4


async def test_five_in_a_row_that_fail_trip_the_breaker(journal: Journal) -> None:
    async with running(journal, retry=RetryPolicy(attempts=9, first_delay=300), trouble_after=5) as broker:
        role_id = broker.scribe.role_id("store_1")
        await put_all(broker, "abcdefgh")
        failing = by_item(dict.fromkeys((b"%c" % letter for letter in b"abcdefgh"), FAILS))
        client = await broker.register("store_1", BUNDLES, xbus_take_envelopes=failing)
        await broker.until(lambda: broker.back.breakers.is_troubled(role_id))
        await settle()
        assert bundles(broker) == ["abcdefgh", "b", "c", "d", "e"]
        client.answers.clear()
        broker.pass_time(30)
        await broker.until(lambda: not broker.back.breakers.is_troubled(role_id))
        await until_states(broker, [])
    assert sorted(letters(broker)[8 + 4 :]) == list("abcdefgh")
    assert await broker.cursor() == 8


async def test_one_that_goes_well_between_is_no_trouble(journal: Journal) -> None:
    async with running(journal, trouble_after=3) as broker:
        failing = by_item({b"a": FAILS, b"b": FAILS, b"d": FAILS, b"e": FAILS})
        await put_all(broker, "abcdef")
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=failing)
        await until_states(broker, [(position, "parked", 1) for position in (1, 2, 4, 5)])
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_1"))
        await broker.until(lambda: letters(broker)[-1] == "f")


# -- the call fails --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [LOST, SILENT], ids=["lost", "silent"])
async def test_all_of_a_bundle_that_got_no_answer_come_again_alone(journal: Journal, failure: Exception) -> None:
    async with running(journal, retry=RETRIES, trouble_after=2) as broker:
        await put_all(broker, "abc")
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, failure)
        await until_states(broker, [(position, "retry", 1) for position in (1, 2, 3)])
        # They failed together, so they count as one.
        assert not broker.back.breakers.is_troubled(broker.scribe.role_id("store_1"))
        assert broker.script.verbs("store_1").count("stop_envelope") == 3
        calls = len(broker.script.calls)
        broker.pass_time(10)
        await until_states(broker, [])
        assert [call.verb for call in broker.script.calls[calls:]] == ["stop_envelope", "xbus.take_event"] * 3
    assert letters(broker) == "abcabc"
    assert await broker.cursor() == 3


async def test_nothing_is_brought_before_the_late_answer_of_one_that_was_silent(journal: Journal) -> None:
    async with running(journal, retry=AT_ONCE) as broker:
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, SILENT)
        client.owes.clear()
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "b")
        for _ in range(20):
            await settle()
            broker.pass_time(1)
        assert letters(broker) == "a"
        client.owes.set()
        await broker.until(lambda: sorted(letters(broker)) == ["a", "a", "b"])


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        [],
        [DONE],
        [DONE] * 3,
        {"a": 1},
    ],
    ids=repr,
)
async def test_an_answer_that_does_not_fit_the_bundle_parks_all_of_it(journal: Journal, answer: Any) -> None:
    async with running(journal) as broker:
        await put_all(broker, "ab")
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, answer)
        await until_states(broker, [(1, "parked", 1), (2, "parked", 1)])
        assert broker.script.verbs("store_1").count("stop_envelope") == 2
        await put_all(broker, "c")
        await broker.until(lambda: letters(broker) == "abc")
    assert (await broker.rows())["store_1"] == ("parked", 1, "nonsense")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        1,
        "yes",
        [1],
        [True, None],
        [False],
        [False, []],
        [False, [], 7],
        [None, "recipient_failed", None],
        [None, ["recipient_failed"], None],
        [None, [1, 2], None],
        {"a": 1},
    ],
    ids=repr,
)
async def test_nonsense_about_one_parks_it_and_has_it_rolled_back(journal: Journal, answer: Any) -> None:
    async with running(journal) as broker:
        await put_all(broker, "abc")
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, [DONE, answer, DONE])
        await until_states(broker, [(2, "parked", 1)])
        assert broker.script.verbs("store_1").count("stop_envelope") == 1
    assert (await broker.rows())["store_1"] == ("parked", 1, "nonsense")
    assert letters(broker) == "abc"
    assert await broker.cursor() == 3


async def test_a_wrong_event_id_in_a_refusal_is_no_harm(journal: Journal) -> None:
    async with running(journal) as broker:
        await put_all(broker, "ab")
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, [[False, [[[7], "too old"]], "no uuid"], [False, "too old", "7" * 32]])
        await until_states(broker, [(1, "parked", 1), (2, "parked", 1)])


async def test_one_that_begins_nothing_is_not_asked_for_ever(journal: Journal) -> None:
    """A recipient that honours the contract begins the first one; one that does not must not keep the broker busy."""
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=lambda bundle: [NOT_BEGUN] * len(bundle))
        await put_all(broker, "ab")
        await until_states(broker, [(1, "parked", 1), (2, "parked", 1)])
        assert len(bundles(broker)) < 10


# -- what goes alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OLD, NEW])
async def test_those_that_announce_no_bundles_get_none(journal: Journal, kind: Abilities) -> None:
    async with running(journal) as broker:
        await put_all(broker, "abc")
        await broker.register("store_1", kind)
        await broker.until(lambda: letters(broker) == "abc")
        assert bundles(broker) == []


@pytest.mark.parametrize("kind", [OLD, NEW, BUNDLES], ids=["old", "new", "bundles"])
@pytest.mark.parametrize("wants_notes", [False, True])
async def test_a_note_goes_to_those_that_want_one_and_else_no_call_changes(
    journal: Journal, kind: Abilities, wants_notes: bool
) -> None:
    wanted = wants_notes and kind.batches
    async with running(journal) as broker:
        await put_all(broker, "a")
        await broker.register("store_1", replace(kind, notes=wanted))
        await broker.until(lambda: letters(broker) == "a")
    call = next(call for call in broker.script.calls if call.verb in BEGINNINGS)
    (whole, usual) = (call.args[0][0], 2) if call.verb == "xbus.take_envelopes" else (call.args, BEGINNINGS[call.verb])
    assert len(whole) == usual + wanted
    if wanted:
        assert DeliveryNote(*whole[-1])._asdict() | {"sealed_at": None} == {
            "emitter": "north",
            "key": None,
            "ordering_key": None,
            "position": 1,
            "sealed_at": None,
            "attempt": 1,
        }


async def test_one_with_a_worker_on_its_way_goes_alone_and_what_is_behind_it_together(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("names_1")
        await broker.put(b"a", type_name="flights")
        await put_all(broker, "bc")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(letters(broker)) == list("abc"))
        assert bundles(broker) == ["bc"]
    assert await broker.cursor() == 3


async def test_one_whose_emitter_waits_for_a_reply_goes_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES, has_immediate_reply=[True, ["notes"]])
        await broker.until(lambda: letters(broker) == "ab")
        assert bundles(broker) == []


async def test_two_that_both_have_a_vote_decide_together(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES)
        await broker.register("store_2", BUNDLES)
        await broker.until_together()
        await put_all(broker, "ab")
        await broker.until(lambda: letters(broker) == letters(broker, "store_2") == "ab")
        assert bundles(broker) == bundles(broker, "store_2") == []


async def want_order(journal: Journal) -> None:
    """Have the first store want order, before a broker starts."""

    def carry_out(connection: sa.Connection) -> None:
        connection.execute(sa.update(model.role).where(model.role.c.login == "store_1").values(ordered=True))

    await journal.read(carry_out)


async def test_a_role_that_wants_order_gets_one_of_each_key_at_a_time(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal) as broker:
        for item, key in zip("abcde", ["k", "l", "k", None, None], strict=True):
            await broker.put(item.encode(), ordering_key=key)
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "abcde")
        assert bundles(broker) == ["ab", "cd", "e"]


@pytest.mark.parametrize("answer", [TOO_OLD, FAILS])
async def test_what_waits_behind_one_of_its_key_that_failed_is_held_and_others_go_on(
    journal: Journal, answer: Any
) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        for item, key in zip("abcd", ["k", "l", "k", "l"], strict=True):
            await broker.put(item.encode(), ordering_key=key)
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"a": answer}))
        await until_states(broker, [(1, "parked" if answer is TOO_OLD else "retry", 1), (3, "held", 0)])
        await broker.until(lambda: letters(broker).endswith("bd"))
        assert "c" not in letters(broker)
        if answer is FAILS:
            broker.pass_time(1000)
            await broker.until(lambda: letters(broker).endswith("ac"))


async def test_a_large_one_does_not_overtake_one_of_its_key_that_fails_in_a_bundle(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        first = held()
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await broker.put(b"a", ordering_key="k")
        await broker.until(lambda: bundles(broker) == ["a"])
        await broker.put(b"x" * 70_000, ordering_key="k")
        await settle()
        first.set_result([FAILS])
        await until_states(broker, [(1, "retry", 1), (2, "held", 0)])
        assert broker.items("store_1") == [b"a"]
        broker.pass_time(1000)
        await broker.until(lambda: broker.items("store_1") == [b"a", b"a", b"x" * 70_000])


async def test_the_next_recipient_of_a_role_that_wants_order_waits_for_the_bundle_before(journal: Journal) -> None:
    await want_order(journal)
    async with running(journal, retry=RETRIES) as broker:
        first = held()
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await broker.put(b"a", ordering_key="k")
        await broker.until(lambda: bundles(broker) == ["a"])
        await broker.put(b"b", ordering_key="k")
        await until_read(broker)
        await broker.leave("store_1")
        await broker.register("store_1", BUNDLES)
        await settle()
        assert broker.items("store_1") == [b"a"]
        first.set_exception(LOST)
        await until_states(broker, [(1, "retry", 1), (2, "held", 0)])
        broker.pass_time(1000)
        await broker.until(lambda: broker.items("store_1") == [b"a", b"a", b"b"])


def make_own(broker: Broker, login: str) -> None:
    """Take a recipient's vote."""
    recipient = broker.back.registry.get(broker.scribe.role_id(login))
    assert recipient is not None
    recipient.role = replace(recipient.role, own=True)


async def test_one_without_a_vote_is_bundled_beside_one_that_has_it(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES)
        await broker.register("store_2", NEW)
        make_own(broker, "store_1")
        await broker.until_together()
        await put_all(broker, "abc")
        await broker.until(lambda: letters(broker) == letters(broker, "store_2") == "abc")
        assert "".join(bundles(broker)) == "abc"
        assert bundles(broker, "store_2") == []


async def test_what_is_corrected_for_all_goes_alone_and_corrected(journal: Journal) -> None:
    async with running(journal) as broker:
        receipt = await broker.put(b"b")
        await put_all(broker, "cd")
        await correct(broker, receipt.position, b"B")
        await broker.back._assembly._log.refresh()
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(letters(broker)) == list("Bcd"))
        assert bundles(broker) == ["cd"]


async def test_what_is_corrected_while_it_waits_comes_corrected(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        receipt = await broker.put(b"b")
        await put_all(broker, "c")
        await until_read(broker)
        await correct(broker, receipt.position, b"B")
        await broker.back._assembly._log.refresh()
        first.set_result([DONE])
        await broker.until(lambda: len(letters(broker)) == 3)
        assert sorted(letters(broker)) == list("Bac")


async def test_what_is_too_large_goes_alone(journal: Journal) -> None:
    async with running(journal) as broker:
        large = b"x" * 70_000
        await put_all(broker, "a")
        await broker.put(large)
        await put_all(broker, "b")
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(broker.items("store_1")) == [b"a", b"b", large])
        assert sorted("".join(bundles(broker))) == ["a", "b"]
    assert await broker.cursor() == 3


# -- coming and going ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "is replaced", "is lost"])
async def test_who_comes_next_gets_what_waited(journal: Journal, how: str) -> None:
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        under_way = held()
        give_in_turn(client, under_way)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "bcd")
        await until_read(broker)
        if how == "leaves":
            await broker.leave("store_1")
        elif how == "is lost":
            broker.lost["tcp://store_1"]()
            await broker.until(lambda: broker.back.registry.get(broker.scribe.role_id("store_1")) is None)
        if how != "is replaced":
            under_way.set_exception(LOST)
        await broker.register("store_1", BUNDLES)
        if how == "is replaced":
            under_way.set_exception(LOST)
        broker.pass_time(10)
        await broker.until(lambda: sorted(letters(broker)) == list("aabcd"))
        await until_states(broker, [])
    assert await broker.cursor() == 4


async def test_who_comes_while_the_database_is_slow_gets_what_waited(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A bundle is lost. 2. Its failure takes its time to be written. 3. Another recipient comes, and reads on.

    4. It is written. Nobody may have passed what had waited for the first one.
    """
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        under_way, may_write = held(), asyncio.Event()
        give_in_turn(client, under_way)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "bcd")
        await until_read(broker)
        ledger = broker.back._assembly.ledger
        written = ledger.written

        async def slowly() -> None:
            await may_write.wait()
            await written()

        monkeypatch.setattr(ledger, "written", slowly)
        under_way.set_exception(LOST)
        await settle()
        await broker.leave("store_1")
        await broker.register("store_1", BUNDLES)
        for _ in range(5):
            await put_all(broker, "e")
            await settle()
        await broker.until(lambda: letters(broker).count("e") == 5)
        may_write.set()
        broker.pass_time(10)
        await broker.until(lambda: sorted(letters(broker)) == list("aabcdeeeee"))
        await until_states(broker, [])
    assert await broker.cursor() == 9


async def test_one_that_is_about_to_stop_ends_what_it_began_and_the_next_gets_the_rest(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES)
        first = held()
        give_in_turn(client, first, Failed("it is about to stop", code="recipient_stopping"))
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "bcd")
        await until_read(broker)
        first.set_result([DONE])
        role_id = broker.scribe.role_id("store_1")
        await broker.until(lambda: broker.back.registry.get(role_id) is None)
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker).endswith("bcd") and len(letters(broker)) > 4)
    assert await broker.rows() == {}
    assert await broker.cursor() == 4


async def test_nothing_is_kept_of_a_recipient_that_is_gone(journal: Journal) -> None:
    async with running(journal) as broker:
        await broker.register("store_1", BUNDLES)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a" and broker.back._assembly._groups.envelopes == 1)
        await broker.leave("store_1")
        assert broker.back._assembly._groups.parties_of == {}


async def test_a_slow_one_does_not_hold_the_others_up(journal: Journal) -> None:
    """One without a vote that stands still costs the others nothing, however much waits for it."""
    async with running(journal, behind_after=0.01) as broker:
        under_way = held()
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=under_way)
        await broker.register("store_2", BUNDLES)
        make_own(broker, "store_1")
        await broker.until_together()
        for number in range(3 * MOST_ENVELOPES):
            await broker.scribe.put([b"%d" % number])
        broker.ring()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broker.until(lambda: len(broker.items("store_2")) == 3 * MOST_ENVELOPES)
        # Else the stop would wait for it.
        under_way.set_exception(LOST)


async def test_a_large_one_does_not_wait_for_what_a_slow_one_has_to_take_first(journal: Journal) -> None:
    async with running(journal, behind_after=0.01) as broker:
        under_way = held()
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=under_way)
        await broker.register("store_2", BUNDLES)
        make_own(broker, "store_1")
        await broker.until_together()
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "b")
        await broker.put(b"x" * 70_000)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broker.until(lambda: len(broker.items("store_2")) == 3)
        assert letters(broker) == "a"
        under_way.set_exception(LOST)


# -- stopping --------------------------------------------------------------------------------------------------------


async def test_a_stop_leaves_what_waits_to_the_next_broker(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "bcd")
        await until_read(broker)
        stopping = asyncio.create_task(broker.back.stop(60))
        await settle()
        first.set_result([DONE])
        await stopping
        assert letters(broker) == "a"
    assert await broker.cursor() == 1
    async with running(journal) as broker:
        assert await broker.rows() == {}
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "bcd")
        assert "stop_envelope" not in broker.script.verbs("store_1")
    assert await broker.rows() == {}
    assert await broker.cursor() == 4


async def test_a_stop_sends_no_other_bundle_for_those_not_begun(journal: Journal) -> None:
    async with running(journal) as broker:
        first = held()
        await put_all(broker, "abc")
        client = await broker.register("store_1", BUNDLES)
        give_in_turn(client, first)
        await broker.until(lambda: bundles(broker) == ["abc"])
        stopping = asyncio.create_task(broker.back.stop(60))
        await settle()
        first.set_result([DONE, NOT_BEGUN, NOT_BEGUN])
        await stopping
        assert bundles(broker) == ["abc"]
    async with running(journal) as broker:
        assert await broker.rows() == {}
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "bc")


async def test_what_is_large_does_not_overtake_what_waits(journal: Journal) -> None:
    """Else a stop would leave in doubt what was never handed over."""
    async with running(journal) as broker:
        first = held()
        client = await broker.register("store_1", replace(BUNDLES, envelopes=2))
        give_in_turn(client, first)
        await put_all(broker, "a")
        await broker.until(lambda: letters(broker) == "a")
        await put_all(broker, "bc")
        await broker.put(b"x" * 70_000)
        await broker.until(lambda: broker.back._assembly._log.head == 4)
        await settle()
        stopping = asyncio.create_task(broker.back.stop(60))
        await settle()
        first.set_result([DONE])
        await stopping
    async with running(journal) as broker:
        # Nothing of these was handed over, so no attempt is counted and none is stopped.
        assert await states(broker) == []
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: letters(broker) == "bc" + "x" * 70_000)
        assert "stop_envelope" not in broker.script.verbs("store_1")
    assert await broker.cursor() == 4


async def test_a_bundle_that_takes_too_long_at_a_stop_is_in_doubt(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=held())
        await broker.until(lambda: bundles(broker) == ["ab"])
        await put_all(broker, "c")
        await until_read(broker)
        await broker.back.stop(0.01)
        assert broker.script.verbs("store_1").count("stop_envelope") == 2
    async with running(journal, retry=AT_ONCE) as broker:
        assert await states(broker) == [(1, "retry", 1), (2, "retry", 1)]
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(letters(broker)) == list("abc"))
        await until_states(broker, [])
    assert await broker.cursor() == 3


async def test_a_crash_brings_back_all_of_a_bundle(journal: Journal) -> None:
    async with running(journal, clean=False) as broker:
        await put_all(broker, "ab")
        await broker.register("store_1", BUNDLES, xbus_take_envelopes=held())
        await broker.until(lambda: bundles(broker) == ["ab"])
    async with running(journal, retry=AT_ONCE) as broker:
        assert await states(broker) == [(1, "retry", 1), (2, "retry", 1)]
        await broker.register("store_1", BUNDLES)
        await broker.until(lambda: sorted(letters(broker)) == list("ab"))
        await until_states(broker, [])
    verbs = [verb for verb in broker.script.verbs("store_1") if verb in ("stop_envelope", "xbus.take_event")]
    assert verbs == ["stop_envelope", "xbus.take_event"] * 2


async def test_the_row_of_an_earlier_one_gets_its_turn_between_bundles(journal: Journal) -> None:
    async with running(journal, retry=RETRIES) as broker:
        client = await broker.register("store_1", BUNDLES, xbus_take_envelopes=by_item({b"a": FAILS}))
        await put_all(broker, "a")
        await until_states(broker, [(1, "retry", 1)])
        pending: list[tuple[asyncio.Future[Any], Wire]] = []

        def answer(bundle: Wire) -> "asyncio.Future[Any]":
            pending.append((held(), bundle))
            return pending[-1][0]

        client.answers["xbus.take_envelopes"] = answer
        await put_all(broker, "b" * 20)
        await broker.until(lambda: pending)
        broker.pass_time(10)
        # The row waits for the slot that the bundle has; as that comes back the row is first.
        await broker.until(lambda: broker.back._assembly._slots._change)
        future, bundle = pending.pop()
        future.set_result([DONE] * len(bundle))
        await broker.until(lambda: letters(broker).count("a") == 2 or pending)
        assert letters(broker).count("a") == 2
        client.answers.clear()
        for future, bundle in pending:
            future.set_result([DONE] * len(bundle))
        await broker.until(lambda: letters(broker).count("b") == 20)
        await until_states(broker, [])
