"""Every verb of both sockets as an old client calls it: its answer, and its refusals."""

import re
from uuid import UUID

import pytest

from tests.conftest import StartDaemon
from tests.old.conftest import Old
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon

UNKNOWN = "0b9d6a0e-6c0f-4a8e-9a3f-3d9f6f1c2a11"


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"test_event": {"c": []}, "forbidden_event": {"c": []}})
    return start_daemon(sqlite_url)


def ref(name: str) -> dict[str, str]:
    """An earlier answer as an argument."""
    return {"$": name}


def data(text: str) -> dict[str, str]:
    return {"bytes": text}


def test_the_front(old_client: Old, daemon: Daemon) -> None:
    token, envelope, event = ref("token"), ref("envelope"), ref("event")
    consumer = old_client.consumer(daemon, "c_1")
    told = old_client.calls(
        daemon.front,
        ["wrong password", "login", "emitter_1", "no"],
        ["wrong login", "login", "c_1", PASSWORD],
        ["token", "login", "emitter_1", PASSWORD],
        ["second token", "login", "emitter_1", PASSWORD],
        ["other token", "login", "emitter_2", PASSWORD],
        ["no session", "start_envelope", "nothing"],
        ["envelope", "start_envelope", token],
        ["unknown type", "start_event", token, envelope, "nothing", 0],
        ["forbidden type", "start_event", token, envelope, "forbidden_event", 0],
        ["unknown envelope", "start_event", token, UNKNOWN, "test_event", 0],
        ["other's envelope", "start_event", ref("other token"), envelope, "test_event", 0],
        ["event", "start_event", token, envelope, "test_event", 1],
        ["item", "send_item", token, envelope, event, data("a\0\xff")],
        ["item of another session", "send_item", ref("second token"), envelope, event, data("b")],
        ["item of another emitter", "send_item", ref("other token"), envelope, event, data("c")],
        ["item of no event", "send_item", token, envelope, UNKNOWN, data("c")],
        ["open event", "end_envelope", token, envelope],
        ["end of no event", "end_event", token, envelope, UNKNOWN],
        ["end of event", "end_event", token, envelope, event],
        ["end of event again", "end_event", token, envelope, event],
        ["late item", "send_item", token, envelope, event, data("c")],
        ["end of another's", "end_envelope", ref("other token"), envelope],
        ["end", "end_envelope", token, envelope],
        ["end again", "end_envelope", token, envelope],
        ["cancel what is sealed", "cancel_envelope", token, envelope],
        ["late event", "start_event", token, envelope, "test_event", 0],
        ["second envelope", "start_envelope", token],
        ["cancel", "cancel_envelope", token, ref("second envelope")],
        ["cancel nothing", "cancel_envelope", token, UNKNOWN],
        ["end what is cancelled", "end_envelope", token, ref("second envelope")],
        ["logout", "logout", token],
        ["logout again", "logout", token],
        ["after logout", "start_envelope", token],
        ["other session", "start_envelope", ref("second token")],
    )
    for name in ("token", "second token", "other token", "envelope", "event", "second envelope", "other session"):
        assert told.pop(name), name
    assert told == {
        "wrong password": "",
        "wrong login": "",
        "no session": "",
        "unknown type": "",
        "forbidden type": "",
        "unknown envelope": "",
        "other's envelope": "",
        "item": True,
        "item of another session": True,
        "item of another emitter": False,
        "item of no event": False,
        "open event": False,
        "end of no event": [False, None],
        "end of event": [True, None],
        "end of event again": [True, None],
        "late item": False,
        "end of another's": False,
        "end": True,
        "end again": True,
        "cancel what is sealed": False,
        "late event": "",
        "cancel": True,
        "cancel nothing": False,
        "end what is cancelled": False,
        "logout": True,
        "logout again": False,
        "after logout": "",
    }
    consumer.wait_for(lambda: consumer.committed, "gets the one envelope")
    assert consumer.items() == ["a\0\xff", "b"]


def test_the_back(old_client: Old, daemon: Daemon) -> None:
    consumer = old_client.consumer(daemon, "c_1")
    token = ref("token")
    told = old_client.calls(
        daemon.back,
        ["wrong password", "login", "c_1", "no"],
        ["wrong login", "login", "emitter_1", PASSWORD],
        ["token", "login", "c_1", PASSWORD],
        ["not registered", "ready", token],
        ["nobody there", "register_node", token, "tcp://127.0.0.1:1"],
        ["no address", "register_node", token, "nonsense"],
        ["no session", "register_node", "nothing", "tcp://127.0.0.1:1"],
        ["logout", "logout", token],
        ["logout again", "logout", token],
        ["after logout", "ready", token],
        # Of 0.2.0's own front, and open to all.
        ["forged envelope", "start_envelope", UNKNOWN],
        ["forged event", "start_event", UNKNOWN, UNKNOWN, "test_event"],
        ["forged item", "send_item", UNKNOWN, UNKNOWN, [0], data("x")],
        ["forged end of event", "end_event", UNKNOWN, UNKNOWN],
        ["forged end", "end_envelope", UNKNOWN],
        ["forged cancel", "cancel_envelope", UNKNOWN],
        ["consumers", "get_consumers"],
    )
    assert told.pop("token")
    assert told == {
        "wrong password": "",
        "wrong login": "",
        "not registered": False,
        "nobody there": False,
        "no address": False,
        "no session": False,
        "logout": True,
        "logout again": False,
        "after logout": False,
        "forged envelope": "NotFoundError",
        "forged event": "NotFoundError",
        "forged item": "NotFoundError",
        "forged end of event": "NotFoundError",
        "forged end": "NotFoundError",
        "forged cancel": "NotFoundError",
        "consumers": "NotFoundError",
    }
    (sent,) = old_client.emits(daemon)
    consumer.wait_for_envelopes([sent])


def test_bad_arguments_and_what_aiozmq_pickles(old_client: Old, daemon: Daemon) -> None:
    consumer = old_client.consumer(daemon, "c_1")
    token, envelope, event = ref("token"), ref("envelope"), ref("event")
    pickled: list[dict[str, object]] = [
        {"date": "2016-01-01"},
        {"datetime": "2016-01-01 10:00"},
        {"time": "10:00"},
        {"days": 1},
    ]
    told = old_client.calls(
        daemon.front,
        ["token", "login", "emitter_1", PASSWORD],
        ["envelope", "start_envelope", token],
        ["event", "start_event", token, envelope, "test_event", 0],
        ["unknown method", "no_such_verb", token],
        ["unknown namespace", "no.such.verb", token],
        ["too few", "send_item", token, envelope, event],
        ["too many", "send_item", token, envelope, event, data("x"), 1],
        ["50 MB of zeros", "send_item", token, envelope, event, 50_000_000],
        ["text for bytes", "send_item", token, envelope, event, "text"],
        ["bytes for a token", "start_envelope", data("token")],
        *([f"pickled token {n}", "start_envelope", value] for n, value in enumerate(pickled)),
        *([f"pickled item {n}", "send_item", token, envelope, event, value] for n, value in enumerate(pickled)),
        *([f"deep {n}", "start_event", token, envelope, [[value]], 0] for n, value in enumerate(pickled)),
        *([f"estimate {n}", "start_event", token, envelope, "test_event", value] for n, value in enumerate(pickled)),
        ["good", "send_item", token, envelope, event, data("good")],
        ["end of event", "end_event", token, envelope, event],
        ["end", "end_envelope", token, envelope],
    )
    assert told.pop("good") is True
    assert told.pop("end of event") == [True, None]
    assert told.pop("end") is True
    for name in ("token", "envelope", "event"):
        assert re.fullmatch(r"\S{20,}", told[name])
    assert str(UUID(told["envelope"])) == told.pop("envelope")
    assert str(UUID(told["event"])) == told.pop("event")
    del told["token"]
    assert told.pop("unknown method") == told.pop("unknown namespace") == "NotFoundError"
    assert set(told.values()) == {"ParametersError"}
    assert len(told) == 21
    consumer.wait_for(lambda: consumer.committed, "gets the one envelope")
    assert consumer.items() == ["good"]
    assert daemon.process.runs
