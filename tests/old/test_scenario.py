"""The long way with old programs: three workers in a chain, two services of two consumers each, ten thousand items."""

from functools import partial

import pytest

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.old.running import Recipient
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.showing import progress
from tests.support.waiting import wait_until

GRAPH = {"test_event": {"a": ["b"], "b": ["z"], "z": ["c", "d"], "c": [], "d": []}}
ITEMS = 10_000
HALF_WAY = ITEMS // 2 + 7
LONG_SECONDS = 300.0
MIXED = pytest.mark.parametrize("old", [("3.6", "3.8")], indirect=True, ids=["3.6-3.8"])


@pytest.fixture(params=[(1, "sqlite_url"), (100, "postgres_url")], ids=["one-sqlite", "hundred-postgresql"])
def envelopes_and_url(request: pytest.FixtureRequest) -> tuple[int, str]:
    """How many envelopes the items are in, and the database."""
    envelopes, database = request.param
    return envelopes, request.getfixturevalue(database)


@MIXED
def test_one_consumer_absent_and_one_killed_half_way_get_everything_once(
    old: Old, envelopes_and_url: tuple[int, str], start_daemon: StartDaemon
) -> None:
    envelopes, url = envelopes_and_url
    add_bus(url, GRAPH, {"c": 2, "d": 2})
    # What is set aside for want of a worker is overtaken, and the workers have to be found again after the crash.
    daemon = start_daemon(url, {"back": {"worker_grace": 600}})
    workers = [old.worker(daemon, role) for role in ("a_1", "b_1", "z_1")]
    present = [old.consumer(daemon, "c_1"), old.consumer(daemon, "d_1")]
    killed = old.consumer(daemon, "c_2", die_at=HALF_WAY)
    sent, expected = _emit(old, daemon, envelopes)

    assert killed.process.wait(LONG_SECONDS) == 1
    _wait_until_done(url, sent, "c_1", "d_1")
    # What a crash of the broker leaves undone comes again; of what was done nothing may.
    daemon.kill()
    daemon.start()
    returning, late = old.consumer(daemon, "c_2"), old.consumer(daemon, "d_2")
    _wait_until_done(url, sent, "c_2", "d_2")

    for consumer in (*present, late):
        assert consumer.kept() == expected
    before, after = killed.kept(), returning.kept()
    assert before.keys().isdisjoint(after)
    assert before | after == expected
    assert len(before) == envelopes // 2
    assert late.committed == sent
    _check_still_served(*workers, *present, returning, late)


@MIXED
def test_one_consumer_absent_and_a_worker_killed_half_way(old: Old, sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, GRAPH, {"c": 2, "d": 2})
    daemon = start_daemon(sqlite_url)
    workers = [old.worker(daemon, role) for role in ("a_1", "z_1")]
    killed = old.worker(daemon, "b_1", die_at=HALF_WAY)
    present = [old.consumer(daemon, role) for role in ("c_1", "c_2", "d_1")]
    sent, expected = _emit(old, daemon, 100)

    assert killed.process.wait(LONG_SECONDS) == 1
    workers.append(old.worker(daemon, "b_1"))
    _wait_until_done(sqlite_url, sent, "c_1", "c_2", "d_1")
    late = old.consumer(daemon, "d_2")
    _wait_until_done(sqlite_url, sent, "d_2")

    for consumer in (*present, late):
        assert consumer.kept() == expected
        # The one that the worker was at, and perhaps the next, which found no worker.
        assert len({args[0] for args in consumer.got("stop_envelope")}) <= 2
    _check_still_served(*workers, *present, late)


def _emit(old: Old, daemon: Daemon, envelopes: int) -> tuple[list[str], dict[str, list[str]]]:
    """Send all items; the ids of their envelopes in order, and what each consumer must get of each."""
    items = ITEMS // envelopes
    sent = old.emits(daemon, envelopes=envelopes, items=items, in_flight=100)
    return sent, {
        envelope_id: [f"{number}.{item} a_1 b_1 z_1" for item in range(items)]
        for number, envelope_id in enumerate(sent)
    }


def _wait_until_done(url: str, envelope_ids: list[str], *roles: str) -> None:
    for role in roles:
        for envelope_id in envelope_ids:
            done = partial(_is_done, url, envelope_id, role)
            wait_until(done, f"{role} is done with {envelope_id}", LONG_SECONDS)


def _is_done(url: str, envelope_id: str, role: str) -> bool:
    return progress(url, envelope_id)[role].state == "done"


def _check_still_served(*recipients: Recipient) -> None:
    for recipient in recipients:
        assert recipient.process.runs
        assert "Cannot unpack" not in recipient.process.text, f"{recipient.name} was sent what is no call"
