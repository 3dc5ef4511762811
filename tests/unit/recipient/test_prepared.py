"""Bundles that several consumers decide about: each envelope stays open until it is committed or stopped."""

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
    assert bench.api.get_metadata()["xbus"].get("prepares") == prepares
