"""What the programs under torture write down is read back as it was, and what a kill has cut off is not."""

from pathlib import Path
from typing import Any

from tests.torture.brokers import Brokers, Reign
from tests.torture.database import Sqlite
from tests.torture.history import (
    Commit,
    CommittedEvent,
    Log,
    Sent,
    lines,
    read_commits,
    read_sent,
    runs_of,
)
from tests.torture.items import envelope_of, event_ref, make, mark, read


def test_a_line_that_a_kill_has_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(path)
    log.write(what="first")
    log.close()
    with path.open("ab") as file:
        file.write(b'{"what": "sec')
    assert [line["what"] for line in lines(path)] == ["first"]
    Log(path).write(what="third")
    assert [line["what"] for line in lines(path)] == ["first", "third"]


def test_an_emitter_is_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write(what="begin", ref="e-1", events=[("orders", 2)])
    log.write(what="sealing", ref="e-1", id=None)
    log.write(what="sealed", ref="e-1", id="A", position=3)
    log.write(what="begin", ref="e-2", events=[("orders", 1)], key="k", headed=True)
    log.write(what="given_up", ref="e-2", code="timed_out", cause="no answer")
    assert read_sent(lines(tmp_path / "log")) == {
        "e-1": Sent("e-1", (("orders", 2),), sealing=True, sealed=True, envelope_id="A", position=3),
        "e-2": Sent("e-2", (("orders", 1),), "k", headed=True),
    }


def test_a_consumer_is_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.write(id="A", begun=1.5, events=[("orders", "e-1/0", runs_of([0, 1, 3]), ["b'x'"], {"event": "e-1/0"})])
    (commit,) = read_commits(lines(tmp_path / "log"))
    event = CommittedEvent("orders", "e-1/0", ((0, 2), (3, 1)), ("b'x'",), {"event": "e-1/0"})
    assert commit == Commit("A", 1.5, commit.at, (event,))
    assert commit.ref == "e-1"


def test_a_commit_is_of_the_reign_in_which_its_program_registered_last() -> None:
    said: list[dict[str, Any]] = [
        {"id": "A", "at": 9, "begun": 8, "registered": registered, "events": []} for registered in (1, 4, 6)
    ]
    reigns: dict[float, int | None] = {1: 0, 4: 1, 6: None}
    assert [commit.reign for commit in read_commits(said, reigns.__getitem__)] == [0, 1, None]
    assert [commit.reign for commit in read_commits(said)] == [0, 0, 0]


def test_a_broker_answers_in_the_reign_that_began_with_its_last_start(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, Sqlite(tmp_path / "xbus.db"), {})
    # The second one stood by for a while, as did the first one when it was started again.
    brokers.reigns = [Reign("a", 1.0, 1.0, 1.0), Reign("b", 2.0, 5.0, 5.0), Reign("a", 6.0, 8.0, 8.0)]
    assert [brokers.reign_at("a", at) for at in (1.5, 5.5, 9.0)] == [0, 0, 2]
    assert brokers.reign_at("b", 9.0) == 1


def test_an_item_tells_where_it_comes_from_and_by_whom() -> None:
    event = event_ref("small_1-3", 0)
    item = mark(make(event, 17), "price")
    assert read(item, ["price"]) == (event, 17)
    assert envelope_of(event) == "small_1-3"
    assert read(item, []) is None
    assert read(make(event, 17)[:-1], []) is None
    assert read(b"rubbish", []) is None
