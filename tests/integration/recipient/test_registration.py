"""Being known to the broker: first registration, lost connections, a broker that forgets, and the end."""

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

from tests.integration.recipient.broker_double import LOGIN, SECONDS, BrokerDouble
from tests.integration.recipient.conftest import Serve
from tests.integration.recipient.notes import Notes
from tests.support.waiting import eventually
from xbus.errors import ConfigurationError, Failed, Refused
from xbus.recipient import Event, Item, run, serve
from xbus.recipient.service import ServiceWaits
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

only_by_a_port = pytest.mark.parametrize("bind", ["tcp://127.0.0.1:*"])


@only_by_a_port
async def test_it_registers_with_the_address_where_it_listens(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Notes())
    assert broker.calls[:2] == ["login", "register"]
    assert broker.uris[0].startswith("tcp://127.0.0.1:")
    assert "*" not in broker.uris[0]


@only_by_a_port
async def test_it_advertises_another_address(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Notes(), bind="tcp://0.0.0.0:*", advertise="tcp://localhost:{port}")
    assert broker.uris[0].startswith("tcp://localhost:")
    assert broker.uris[0].rpartition(":")[2].isdigit()


async def test_a_wrong_password_ends_it(broker: BrokerDouble) -> None:
    with pytest.raises(Refused) as refused:
        await serve(Notes(), broker.address, LOGIN, "wrong", asyncio.Event())
    assert refused.value.code == "login_refused"


async def test_an_address_that_is_taken_ends_it(broker: BrokerDouble) -> None:
    with pytest.raises(ConfigurationError) as taken:
        await serve(Notes(), broker.address, LOGIN, "password", asyncio.Event(), bind=broker.address)
    assert taken.value.code == "address_in_use"


async def test_an_address_for_the_broker_needs_one_to_listen_at(broker: BrokerDouble) -> None:
    with pytest.raises(ConfigurationError, match="does not listen"):
        await serve(Notes(), broker.address, LOGIN, "password", asyncio.Event(), advertise="tcp://me:9")


@pytest.mark.parametrize("bind", [""])
async def test_a_broker_that_is_too_old_ends_it(broker: BrokerDouble, serve_recipient: Serve) -> None:
    broker.faults["register"].append(Refused("there is no method 'xbus.serve'", code="unknown_method"))
    served = await serve_recipient(Notes())
    with pytest.raises(Refused, match="upgrade the broker, or let the recipient listen: bind=") as refused:
        await served.task
    assert refused.value.code == "unknown_method"


@pytest.mark.parametrize("bind", [""])
async def test_a_lost_connection_is_mended_with_the_session_that_it_has(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    await serve_recipient(Notes(), heartbeat_seconds=3600)
    broker.stop()
    broker.registered.clear()
    broker.start_again()
    await eventually(lambda: broker.registered, "the recipient registers anew")
    assert broker.calls[:3] == ["login", "register", "register"]


async def test_it_waits_for_a_broker_that_comes_later(broker: BrokerDouble, serve_recipient: Serve) -> None:
    broker.stop()
    asyncio.get_running_loop().call_later(0.2, broker.start_again)
    await serve_recipient(Notes())
    assert broker.registered


async def test_it_tries_again_where_registering_fails(broker: BrokerDouble, serve_recipient: Serve) -> None:
    broker.faults["register"].append(Failed("no answer from there", code="timed_out"))
    broker.faults["login"].append(Failed("not yet", code="journal_unavailable"))
    await serve_recipient(Notes())
    assert broker.calls.count("register") == 2


async def test_it_registers_anew_with_a_broker_that_came_back(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Notes(), heartbeat_seconds=3600)
    broker.restart()
    await eventually(lambda: broker.registered, "the recipient registers anew, at once and not by its next heartbeat")


async def test_it_registers_anew_where_it_was_forgotten(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    await serve_recipient(notes)
    await broker.start_event("E", "e")
    broker.registered.clear()
    await eventually(lambda: broker.registered, "the recipient registers anew")
    # What was open before is given up by registering.
    assert notes.seen[-1] == ("rollback", "E")
    broker.tokens.clear()
    broker.registered.clear()
    await eventually(lambda: broker.registered, "also after its session was forgotten")


async def test_calls_by_an_earlier_connection_are_turned_away(broker: BrokerDouble, serve_recipient: Serve) -> None:
    """They may come late, when the next attempt has begun, and would be mixed with it."""
    notes = Notes()
    await serve_recipient(notes)
    await broker.start_event("E", "e")
    earlier, broker.recipient = broker.recipient, None
    assert earlier is not None
    broker.registered.clear()
    await eventually(lambda: broker.registered, "the recipient registers anew")

    await broker.start_event("E", "e")
    late_calls: list[tuple[Any, ...]] = [
        ("start_event", "E", "e", "test_event"),
        ("xbus.take_event", "E", "e", "test_event", [], True),
        ("xbus.send_items", "E", "e", 0, 1, b"\xc4\x01a", None),
        ("xbus.end_event", "E", "e"),
        ("end_envelope", "E"),
        ("stop_envelope", "E"),
    ]
    for late in late_calls:
        with pytest.raises(Failed) as caught:
            await earlier.call(*late, timeout=SECONDS)
        assert caught.value.code == "connection_superseded"
    await broker.send("E", "e", 0, b"x")
    await broker.end_event("E", "e")
    assert await broker.call("end_envelope", "E") == [True, None]
    assert notes.seen == [
        ("start", "E", "e", "test_event"),
        ("rollback", "E"),
        ("start", "E", "e", "test_event"),
        (0, b"x"),
        ("end", "e"),
        ("commit", "E"),
    ]
    earlier.close()


@only_by_a_port
async def test_a_broker_that_was_not_asked_for_takes_it_from_nobody(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    """As one on a copy of the journal, which holds the addresses of the live one's recipients."""
    notes = Notes()
    await serve_recipient(notes)
    context = new_context()
    copy = Client(context, name="copy")
    copy.connect(broker.uris[-1])
    with pytest.raises(Failed) as refused:
        await copy.call("get_metadata", timeout=SECONDS)
    assert refused.value.code == "not_asked_for"

    await broker.start_event("E", "e")
    with pytest.raises(Failed) as turned_away:
        await copy.call("start_event", "F", "f", "test_event", timeout=SECONDS)
    assert turned_away.value.code == "connection_superseded"
    assert await broker.send("E", "e", 0, b"x") == [True, None]
    assert notes.seen == [("start", "E", "e", "test_event"), (0, b"x")]
    copy.close()
    context.destroy(linger=0)


async def test_the_rest_of_an_envelope_does_not_pass_for_the_whole(
    broker: BrokerDouble, serve_recipient: Serve
) -> None:
    """A recipient that registers anew has rolled back what a broker that does not know of it yet goes on with."""
    notes = Notes()
    await serve_recipient(notes)
    await broker.start_event("E", "first")
    faults = broker.faults["register"]
    # So many that it is not registered anew before all is looked at.
    many = 10_000
    faults.extend([Failed("busy")] * many)
    broker.registered.clear()
    await eventually(lambda: len(faults) < many, "the recipient begins to register anew")

    calls: list[tuple[Any, ...]] = [
        ("xbus.take_event", "E", "second", "test_event", [], True),
        ("end_envelope", "E"),
    ]
    for call in calls:
        with pytest.raises(Failed) as caught:
            await broker.call(*call)
        assert caught.value.code == "connection_superseded"
    assert notes.seen == [("start", "E", "first", "test_event"), ("rollback", "E")]


async def test_a_heartbeat_without_answer_changes_nothing(broker: BrokerDouble, serve_recipient: Serve) -> None:
    await serve_recipient(Notes())
    broker.faults["heartbeat"].extend([Failed("busy"), Failed("busy")])
    beats = broker.calls.count("heartbeat")
    await eventually(lambda: broker.calls.count("heartbeat") > beats + 3, "heartbeats go on")
    assert broker.calls.count("login") == 1


async def until_turned_away(broker: BrokerDouble) -> Failed:
    """Start envelopes until one is refused, as a recipient does that has begun to stop."""
    while True:
        try:
            await broker.start_event("another", "e")
            await broker.call("stop_envelope", "another")
        except Failed as failed:
            return failed


async def test_it_finishes_the_open_envelope_before_it_stops(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    served = await serve_recipient(notes, stop_timeout=SECONDS)
    await broker.start_event("E", "e")
    served.tell_to_stop()
    assert (await until_turned_away(broker)).code == "recipient_stopping"
    assert await broker.send("E", "e", 0, b"x") == [True, None]
    assert await broker.call("end_envelope", "E") == [True, None]
    await served.stop()
    assert notes.seen[-1] == ("commit", "E")
    assert broker.calls[-1] == "logout"


async def test_it_rolls_back_what_does_not_come_to_its_end(broker: BrokerDouble, serve_recipient: Serve) -> None:
    notes = Notes()
    served = await serve_recipient(notes, stop_timeout=0.1)
    await broker.start_event("E", "e")
    await served.stop()
    assert notes.seen[-1] == ("rollback", "E")
    assert broker.calls[-1] == "logout"


async def test_code_that_never_returns_does_not_keep_it(broker: BrokerDouble, serve_recipient: Serve) -> None:
    let_go = threading.Event()

    class Hangs(Notes):
        def on_item(self, event: Event, item: Item) -> None:
            let_go.wait(2 * SECONDS)

    served = await serve_recipient(Hangs(), stop_timeout=0.1, waits=ServiceWaits(roll_back=0.1))
    await broker.start_event("E", "e")
    broker.send("E", "e", 0, b"x").add_done_callback(lambda future: future.exception())
    try:
        await served.stop()
    finally:
        let_go.set()


def test_a_signal_stops_it() -> None:
    """Nothing listens at the address: it waits for its broker until it is told to end."""

    class Signalling(Notes):
        def on_start(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    run(Signalling, "tcp://127.0.0.1:1", "role", "password")
