"""Bundles that several consumers decide about: each envelope stays open until it is committed or stopped."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.recipient.test_bundle import FAILED, Bench, Store, event_id, whole
from xbus.errors import Failed, Refused
from xbus.recipient import Consumer, Envelope, Event, Item, Recipient, Worker


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    made = Bench(store)
    yield made
    store.may_go_on.set()
    made.desk.close()


async def test_what_is_prepared_stays_open_until_it_is_decided(bench: Bench, store: Store) -> None:
    assert await bench.api.prepare_envelopes([whole("A", b"a"), whole("B", b"b"), whole("C", b"c")]) == [(True,)] * 3
    assert bench.open == ["A", "B", "C"]
    assert not [call for call in store.calls if call.startswith(("commit", "rollback"))]
    assert await bench.api.stop_envelope("B")
    assert await bench.api.commit_envelopes(["A", "C"]) == [(True,), (True,)]
    assert store.calls[-3:] == ["rollback B", "commit A", "commit C"]
    assert bench.open == []
    assert bench.api.deliveries.is_idle


async def test_a_refused_one_is_rolled_back_and_leaves_the_others_alone(bench: Bench, store: Store) -> None:
    refused = whole("B", b"refuse")
    answers = await bench.api.prepare_envelopes([whole("A", b"a"), refused, whole("C", b"c")])
    assert answers == [(True,), (False, [([0], "too old")], event_id(refused)), (True,)]
    assert store.calls.count("rollback B") == 1
    assert bench.open == ["A", "C"]


async def test_behind_a_failure_none_is_begun(bench: Bench, store: Store) -> None:
    failing = whole("B", b"fail")
    answers = await bench.api.prepare_envelopes([whole("A", b"a"), failing, whole("C", b"c")])
    assert answers == [(True,), (None, FAILED, event_id(failing)), ()]
    assert "start C" not in store.calls
    assert bench.open == ["A"]
    # They may come again at once.
    assert await bench.api.prepare_envelopes([whole("C", b"c")]) == [(True,)]


async def test_a_commit_that_fails_has_none_behind_it_and_leaves_them_open_to_be_stopped(
    bench: Bench, store: Store
) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a"), whole("B", b"b"), whole("C", b"c")])
    store.commit_fails.add("B")
    answers: list[Any] = await bench.api.commit_envelopes(["A", "B", "C"])
    assert [answer[:2] for answer in answers] == [(True,), (None, FAILED), ()]
    assert "commit C" not in store.calls
    assert bench.open == ["B", "C"]
    await bench.api.stop_envelope("B")
    await bench.api.stop_envelope("C")
    assert store.calls[-2:] == ["rollback B", "rollback C"]
    assert bench.open == []


async def test_a_commit_of_what_is_not_open_commits_nothing(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a"), whole("B", b"b")])
    await bench.api.stop_envelope("B")
    with pytest.raises(Refused, match="not open here"):
        bench.api.commit_envelopes(["A", "B"])
    assert "commit A" not in store.calls
    assert bench.open == ["A"]


async def test_who_registers_anew_has_rolled_back_what_was_prepared(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a"), whole("B", b"b")])
    await bench.api.roll_back_all()
    assert store.calls[-2:] == ["rollback A", "rollback B"]
    assert bench.api.deliveries.is_idle


async def test_who_is_about_to_stop_ends_what_is_prepared_and_begins_nothing(bench: Bench) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    bench.api.deliveries.is_closing = True
    with pytest.raises(Failed, match="about to stop"):
        bench.api.prepare_envelopes([whole("B", b"b")])
    assert await bench.api.commit_envelopes(["A"]) == [(True,)]
    assert bench.api.deliveries.is_idle


# -- what follows a commit -------------------------------------------------------------------------------------------


async def test_the_next_are_prepared_in_the_call_that_commits(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    store.calls.clear()
    assert await bench.api.commit_envelopes(["A"], [whole("B", b"b"), whole("C", b"c")]) == [(True,)] * 3
    assert [call for call in store.calls if call[:4] != "item"] == ["commit A", "start B", "end B", "start C", "end C"]
    assert bench.open == ["B", "C"]
    assert await bench.api.commit_envelopes(["B", "C"]) == [(True,)] * 2
    assert bench.api.deliveries.is_idle


@pytest.mark.parametrize("item", [b"refuse", b"fail"])
async def test_a_next_one_that_does_not_go_well_is_rolled_back_and_the_commit_stays(
    bench: Bench, store: Store, item: bytes
) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    answers: list[Any] = await bench.api.commit_envelopes(["A"], [whole("B", item)])
    assert [answer[0] for answer in answers] == [True, False if item == b"refuse" else None]
    assert store.calls[-1] == "rollback B"
    assert bench.open == []


async def test_a_rollback_that_would_end_the_program_keeps_no_answer_back(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    store.rollback_fails.add("B")
    store.rollback_error = SystemExit(1)
    answers: list[Any] = await bench.api.commit_envelopes(["A"], [whole("B", b"refuse")])
    assert [answer[0] for answer in answers] == [True, False]
    assert bench.open == []


async def test_nothing_is_begun_behind_a_commit_that_failed(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a"), whole("B", b"b")])
    store.commit_fails.add("B")
    answers: list[Any] = await bench.api.commit_envelopes(["A", "B"], [whole("C", b"c"), whole("D", b"d")])
    assert [answer[:2] for answer in answers] == [(True,), (None, FAILED), (), ()]
    assert "start C" not in store.calls
    assert bench.open == ["B"]
    # They may come again at once.
    assert await bench.api.stop_envelope("B")
    assert await bench.api.prepare_envelopes([whole("C", b"c")]) == [(True,)]


async def test_who_is_about_to_stop_commits_and_begins_nothing(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    bench.api.deliveries.is_closing = True
    assert await bench.api.commit_envelopes(["A"], [whole("B", b"b")]) == [(True,), ()]
    assert "start B" not in store.calls
    assert bench.api.deliveries.is_idle


async def test_a_next_one_that_is_stopped_before_its_turn_is_not_begun(bench: Bench, store: Store) -> None:
    await bench.api.prepare_envelopes([whole("A", b"a")])
    answers = bench.api.commit_envelopes(["A"], [whole("B", b"wait"), whole("C", b"c")])
    await asyncio.to_thread(store.waits.wait, 60)
    stopped = bench.api.stop_envelope("C")
    store.may_go_on.set()
    assert [answer[0] for answer in await answers] == [True, True, None]
    await stopped
    assert "start C" not in store.calls
    assert bench.open == ["B"]


async def test_what_is_not_open_is_refused_with_all_that_follows(bench: Bench, store: Store) -> None:
    with pytest.raises(Refused, match="not open here"):
        bench.api.commit_envelopes(["A"], [whole("B", b"b")])
    assert bench.open == []
    assert store.calls == []


class Printer(Consumer):
    """Has nothing to commit."""

    def on_item(self, event: Event, item: Item) -> None:
        """Do nothing."""


class Several(Store):
    """Keeps a transaction for each envelope."""

    envelopes = 5


class Undoes(Printer):
    def rollback(self, envelope: Envelope) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("author", "prepares"), [(Printer, 128), (Several, 5), (Store, 1), (Undoes, 1), (Worker, None)]
)
async def test_who_may_leave_several_open_says_how_many(author: type[Recipient], prepares: int | None) -> None:
    bench = Bench(author())
    bench.desk.close()
    abilities = bench.api.get_metadata()["xbus"]
    assert (abilities.get("prepares"), "prepares_next" in abilities) == (prepares, prepares is not None)
