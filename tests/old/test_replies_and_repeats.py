"""What old programs could ask for beyond delivery: replies, who is there, envelopes that come again, data clearing."""

import pytest

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.support.bus import PASSWORD, Nodes, add_bus
from tests.support.daemon import Daemon

TYPES: dict[str, Nodes] = {"question": {"w": ["c"], "c": []}, "both": {"d": []}, "note": {"c": []}}


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, TYPES, {"d": 2}, immediate=["question", "both"])
    return start_daemon(sqlite_url, {"front": {"immediate_reply_timeout": 600}})


@pytest.fixture
def hasty(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    """A broker in which emitters don't wait long for replies."""
    add_bus(sqlite_url, TYPES, {"d": 2}, immediate=["question", "both"])
    return start_daemon(sqlite_url, {"front": {"immediate_reply_timeout": 3}})


def test_an_immediate_reply_comes_through_a_worker(old: Old, daemon: Daemon) -> None:
    old.worker(daemon, "w_1")
    consumer = old.consumer(daemon, "c_1", replies_to="question", reply="an answer")
    told = old.emitter(daemon, type="question", envelopes=3, items=2).ended()
    answers = [(line["ended"], line["reply"], line["sealed"]) for line in told[:-1]]
    assert answers == [(True, "an answer", True)] * 3
    sent = [line["envelope"] for line in told[:-1]]
    consumer.wait_for_envelopes(sent)
    for number, envelope_id in enumerate(sent):
        assert consumer.verbs(envelope_id) == ["start_event", "send_item", "send_item", "end_event", "end_envelope"]
        assert consumer.items(envelope_id) == [f"{number}.0 w_1", f"{number}.1 w_1"]


def test_no_reply_is_told_and_the_envelope_may_be_cancelled(old_client: Old, hasty: Daemon) -> None:
    """Nobody there until the deadline, two who could reply, and one who never said that it would."""
    token, envelope = {"$": "token"}, {"$": "envelope"}
    old_client.worker(hasty, "w_1")
    for role in ("d_1", "d_2"):
        old_client.consumer(hasty, role, replies_to="both")
    told = old_client.calls(
        hasty.front,
        ["token", "login", "emitter_1", PASSWORD],
        ["envelope", "start_envelope", token],
        ["event", "start_event", token, envelope, "question", 0],
        ["ambiguous", "start_event", token, envelope, "both", 0],
        ["nobody there", "end_event", token, envelope, {"$": "event"}],
        ["two there", "end_event", token, envelope, {"$": "ambiguous"}],
        ["still open", "end_envelope", token, envelope],
        ["cancel", "cancel_envelope", token, envelope],
    )
    assert told["nobody there"] == told["two there"] == [False, None]
    assert told["still open"] is False
    assert told["cancel"] is True
    old_client.consumer(hasty, "c_1")
    (line, _) = old_client.emitter(hasty, type="question").ended()
    assert (line["ended"], line["reply"], line["sealed"]) == (False, None, False)


def test_who_consumes_and_what_comes_again(old_client: Old, daemon: Daemon) -> None:
    token, envelope, event = {"$": "token"}, {"$": "envelope"}, {"$": "event"}
    refusing = old_client.consumer(daemon, "c_1", refuse="send_item", replies_to="question")
    told = old_client.calls(
        daemon.front,
        ["token", "login", "emitter_1", PASSWORD],
        ["consumers", "get_consumers", token],
        ["no session", "get_consumers", "nothing"],
        ["envelope", "start_envelope", token],
        ["event", "start_event", token, envelope, "note", 0],
        ["item", "send_item", token, envelope, event, {"bytes": "x"}],
        ["too early", "retry_event", token, event],
        ["end of event", "end_event", token, envelope, event],
        ["end", "end_envelope", token, envelope],
    )
    ((metadata, features),) = told["consumers"]
    assert metadata["name"] == "c_1"
    assert features == {"clearing": [False, None], "immediate_reply": [True, ["question"]]}
    assert (told["no session"], told["too early"], told["end"]) == ([], "", True)
    refusing.wait_for(lambda: refusing.got("stop_envelope"), "it is stopped")
    refusing.process.kill()

    consumer = old_client.consumer(daemon, "c_1")
    again = old_client.calls(
        daemon.front,
        ["token", "login", "emitter_1", PASSWORD],
        ["other token", "login", "emitter_2", PASSWORD],
        ["another's event", "retry_event", {"$": "other token"}, told["event"]],
        ["another's envelope", "replay_envelope", {"$": "other token"}, told["envelope"]],
        ["retry", "retry_event", token, told["event"]],
        ["replay", "replay_envelope", token, told["envelope"]],
    )
    assert again["another's event"] == again["another's envelope"] == ""
    assert again["retry"] not in ("", told["event"])
    consumer.wait_for(lambda: len(consumer.committed) == 2, "gets both")
    assert consumer.got("start_event")[0][1] == again["retry"]
    assert consumer.committed[1] == again["replay"]
    assert consumer.items() == ["x", "x"]
