"""The long way with old programs: three workers in a chain, two services of two consumers each, ten thousand items."""

import pytest

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.support.bus import add_bus
from tests.support.showing import progress
from tests.support.waiting import wait_until

GRAPH = {"test_event": {"a": ["b"], "b": ["z"], "z": ["c", "d"], "c": [], "d": []}}
ITEMS = 10_000
LONG_SECONDS = 300.0


@pytest.mark.parametrize("old", [("3.6", "3.8")], indirect=True, ids=["3.6-3.8"])
@pytest.mark.parametrize("envelopes", [1, 100])
def test_one_absent_and_one_killed_half_way_get_everything_once(
    envelopes: int, old: Old, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, GRAPH, {"c": 2, "d": 2})
    daemon = start_daemon(sqlite_url)
    workers = [old.worker(daemon, role) for role in ("a_1", "b_1", "z_1")]
    present = [old.consumer(daemon, "c_1"), old.consumer(daemon, "d_1")]
    killed = old.consumer(daemon, "c_2", die_at=ITEMS // 2 + 7)
    items = ITEMS // envelopes
    sent = old.emits(daemon, envelopes=envelopes, items=items, in_flight=100)
    expected = {
        envelope_id: [f"{number}.{item} a_1 b_1 z_1" for item in range(items)]
        for number, envelope_id in enumerate(sent)
    }

    assert killed.process.wait(LONG_SECONDS) == 1
    for role in ("c_1", "d_1"):
        _wait_until_done(sqlite_url, sent, role)
    # What a crash of the broker leaves undone comes again; of what was done nothing may.
    daemon.kill()
    daemon.start()
    returning, late = old.consumer(daemon, "c_2"), old.consumer(daemon, "d_2")
    for role in ("c_2", "d_2"):
        _wait_until_done(sqlite_url, sent, role)

    for consumer in (*present, late):
        assert consumer.kept() == expected
    before, after = killed.kept(), returning.kept()
    assert before.keys().isdisjoint(after)
    assert before | after == expected
    assert len(before) == envelopes // 2
    assert late.committed == sent
    for recipient in (*workers, *present, returning, late):
        assert recipient.process.runs
        assert "Cannot unpack" not in recipient.process.text, f"{recipient.name} was sent what is no call"


def _wait_until_done(url: str, envelope_ids: list[str], role: str) -> None:
    for envelope_id in envelope_ids:
        wait_until(lambda: progress(url, envelope_id)[role].state == "done", f"{role} is done", LONG_SECONDS)  # noqa: B023
