"""What no well-meaning client sends: each gets a clear answer, or none where it is no call, and changes nothing."""

import asyncio
import datetime
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiozmq.rpc
import msgpack  # type: ignore[import-untyped]
import pytest
import zmq

from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, close, connect
from tests.support.waiting import DEADLINE_SECONDS
from xbus.ids import keyed_envelope_id, numbered_event_id

MEANT_FOR_OTHERS = ["start_envelope", "start_event", "send_item", "end_event", "end_envelope", "cancel_envelope"]


@pytest.fixture
async def emitter(shared: Daemon) -> AsyncIterator[OldEmitter]:
    async with OldEmitter(shared.front) as emitter:
        yield emitter


@pytest.fixture
async def consumer(shared: Daemon) -> AsyncIterator[OldConsumer]:
    async with OldConsumer(shared.back, "c_1") as consumer:
        yield consumer


@pytest.fixture(params=["front", "back"])
def address(request: pytest.FixtureRequest, shared: Daemon) -> str:
    found: str = getattr(shared, request.param)
    return found


@pytest.fixture
def raw(address: str) -> Iterator["zmq.Socket[bytes]"]:
    """A bare socket, connected to the front or the back."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(address)
    yield dealer
    context.destroy(linger=0)


@pytest.fixture(autouse=True)
def all_is_well_afterwards(shared: Daemon) -> Iterator[None]:
    """Whatever a test sends, the broker lives on, and nothing of it is taken for an error of its own."""
    yield
    assert shared.process.runs
    assert "internal_error" not in shared.log
    assert "Traceback" not in shared.log


# -- calls that are none of the verbs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nothing", "", "Login", "login.login", "xbus.nothing", "__init__", "é", "x" * 10_000])
async def test_an_unknown_method(name: str, address: str) -> None:
    client = await connect(address)
    with pytest.raises(aiozmq.rpc.NotFoundError):
        await _call(client, name)
    await close(client)


@pytest.mark.parametrize("name", [*MEANT_FOR_OTHERS, "get_consumers"])
async def test_the_back_takes_no_items(name: str, shared: Daemon) -> None:
    client = await connect(shared.back)
    with pytest.raises(aiozmq.rpc.NotFoundError):
        await _call(client, name, "token", "envelope", "event", b"data")
    await close(client)


async def _call(client: Any, name: str, *args: Any) -> Any:
    return await client._proto.call(name, args, {})


# -- arguments ---------------------------------------------------------------------------------------------------------


async def test_a_wrong_number_of_arguments(emitter: OldEmitter, consumer: OldConsumer) -> None:
    envelope_id, event_id = await emitter.start()
    token = emitter.token
    front: dict[str, tuple[Any, ...]] = {
        "login": ("a", "b"),
        "logout": (token,),
        "start_envelope": (token,),
        "start_event": (token, envelope_id, "test_event", 0),
        "send_item": (token, envelope_id, event_id, b"x"),
        "end_event": (token, envelope_id, event_id),
        "end_envelope": (token, envelope_id),
        "cancel_envelope": (token, envelope_id),
    }
    for name, args in front.items():
        await _refuses(emitter, name, *args, "one more")
        await _refuses(emitter, name, *args[:-1])
        await _refuses(emitter, name)
        with pytest.raises(aiozmq.rpc.ParametersError):
            await getattr(emitter.call, name)(*args, more=1)
    back: dict[str, tuple[Any, ...]] = {
        "login": ("a", "b"),
        "logout": (consumer.token,),
        "register_node": (consumer.token, consumer.uri),
        "ready": (consumer.token,),
    }
    for name, args in back.items():
        await _refuses(consumer, name, *args, "one more")
        await _refuses(consumer, name, *args[:-1])
    # Nothing of it had an effect: the event is empty, the envelope open, the consumer registered.
    await emitter.end(envelope_id, event_id)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == []


async def test_arguments_of_a_wrong_type(emitter: OldEmitter, consumer: OldConsumer) -> None:
    envelope_id, event_id = await emitter.start()
    token = emitter.token
    wrong: Any
    for wrong in (None, 1, 1.5, True, b"bytes", [], {}, [token]):
        await _refuses(emitter, "start_envelope", wrong)
        await _refuses(emitter, "login", wrong, "password")
        await _refuses(emitter, "start_event", token, wrong, "test_event", 0)
        await _refuses(emitter, "start_event", token, envelope_id, wrong, 0)
        await _refuses(emitter, "end_event", token, envelope_id, wrong)
        await _refuses(emitter, "cancel_envelope", token, wrong)
        await _refuses(consumer, "register_node", consumer.token, wrong)
    for wrong in (None, "text", True, 1.5, b"1"):
        await _refuses(emitter, "start_event", token, envelope_id, "test_event", wrong)
    # 50 MB of zeros, this once was.
    for wrong in (50_000_000, "text", None, [b"x"], True, 1.5):
        await _refuses(emitter, "send_item", token, envelope_id, event_id, wrong)
    await emitter.end(envelope_id, event_id)
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == []


async def _refuses(client: Any, name: str, *args: Any) -> None:
    with pytest.raises(aiozmq.rpc.ParametersError):
        await getattr(client.call, name)(*args)


async def test_keyword_arguments_are_taken_where_they_fit(emitter: OldEmitter) -> None:
    envelope_id = await emitter.call.start_envelope(token=emitter.token)
    assert envelope_id
    assert await emitter.call.cancel_envelope(emitter.token, envelope_id=envelope_id) is True


# -- what is not the protocol ------------------------------------------------------------------------------------------


class Boom:
    """Unpickled, it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("code", [123, 124, 125, 126, 127, 0, 1, 42])
def test_pickles_are_refused_and_never_opened(code: int, raw: "zmq.Socket[bytes]", tmp_path: Path) -> None:
    import pickle

    trace = tmp_path / "trace"
    pickled = msgpack.ExtType(code, pickle.dumps(Boom(trace)))
    for args in ([pickled, pickled], [["deep", {"deeper": pickled}], "b"]):
        raw.send_multipart(_request(7, "login", msgpack.packb(args)))
        assert _error(raw, 7) == "aiozmq.rpc.base.ParametersError"
    raw.send_multipart(_request(8, "login", msgpack.packb(["a", "b"]), msgpack.packb({"password": pickled})))
    assert _error(raw, 8) == "aiozmq.rpc.base.ParametersError"
    assert not trace.exists()


async def test_dates_that_aiozmq_packs_are_refused(emitter: OldEmitter) -> None:
    for wrong in (
        datetime.date(2016, 1, 1),
        datetime.timedelta(1),
        datetime.time(1),
        datetime.datetime.now(datetime.UTC),
    ):
        with pytest.raises(aiozmq.rpc.ParametersError):
            await emitter.call.start_envelope(wrong)


def _header(request_id: int) -> bytes:
    return struct.pack("=HHLd", 1, 2, request_id, time.time())


def _request(request_id: int, method: str, args: bytes, kwargs: bytes = b"\x80") -> list[bytes]:
    return [_header(request_id), method.encode(), args, kwargs]


def _receive(raw: "zmq.Socket[bytes]") -> tuple[int, bool, Any]:
    assert raw.poll(int(DEADLINE_SECONDS * 1000)), "no answer"
    header, answer = raw.recv_multipart()
    _, _, request_id, _, is_error = struct.unpack("=HHLd?", header)
    return request_id, is_error, msgpack.unpackb(answer)


def _error(raw: "zmq.Socket[bytes]", request_id: int) -> str:
    """The type of the error that a request is answered with."""
    answered, is_error, answer = _receive(raw)
    assert (answered, is_error) == (request_id, True)
    kind: str = answer[0]
    return kind


NO_REQUESTS: dict[str, list[bytes]] = {
    "one empty frame": [b""],
    "one frame": [b"hello"],
    "two frames": [_header(1), b"login"],
    "three frames": [_header(1), b"login", b"\x90"],
    "five frames": [_header(1), b"login", b"\x90", b"\x80", b"more"],
    "ten frames": [b"x"] * 10,
    "a short header": [_header(1)[:-1], b"login", b"\x90", b"\x80"],
    "a long header": [_header(1) + b"\0", b"login", b"\x90", b"\x80"],
    "a method that is no UTF-8": [_header(1), b"\xff\xfe", b"\x90", b"\x80"],
    "arguments that are no msgpack": [_header(1), b"login", b"\xc1", b"\x80"],
    "arguments that end early": [_header(1), b"login", b"\x92\xa1a", b"\x80"],
    "arguments with more behind": [_header(1), b"login", b"\x92\xa1a\xa1b\x00", b"\x80"],
    "arguments that are no list": [_header(1), b"login", b"\x80", b"\x80"],
    "keywords that are no map": [_header(1), b"login", b"\x90", b"\x90"],
    "an array that claims 4 billion entries": [_header(1), b"login", b"\xdd\xff\xff\xff\xff", b"\x80"],
    "a text that claims 4 billion bytes": [_header(1), b"login", b"\x91\xdb\xff\xff\xff\xffabc", b"\x80"],
    "a nest of three thousand lists": [_header(1), b"login", b"\x91" * 3_000 + b"\x90", b"\x80"],
    "a key that can't be one": [_header(1), b"login", b"\x92\xa1a\xa1b", b"\x81\x90\x01"],
}


def test_a_text_that_is_no_utf_8_is_answered(raw: "zmq.Socket[bytes]") -> None:
    raw.send_multipart([_header(1), b"login", b"\x92\xa1\xff\xa1b", b"\x80"])
    number, is_error, answer = _receive(raw)
    assert (number, is_error) == (1, True)
    assert "UTF-8" in str(answer)


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_gets_no_reply_and_one_line_a_minute_in_the_log(
    name: str, raw: "zmq.Socket[bytes]", shared: Daemon
) -> None:
    """All of them come from one address, so that of many connections only the first is told of at once."""
    before = shared.log.count("action=unreadable_request")
    for _ in range(20):
        raw.send_multipart(NO_REQUESTS[name])
    # What comes behind on the same connection is answered.
    raw.send_multipart(_request(9, "logout", msgpack.packb(["no token"])))
    assert _receive(raw) == (9, False, False)
    lines = shared.log.count("action=unreadable_request")
    assert lines >= 1
    assert lines <= before + 1


def test_a_frame_that_is_too_long_ends_the_connection_and_costs_no_memory(address: str, shared: Daemon) -> None:
    before = _memory(shared.pid)
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(address)
    events = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    dealer.send_multipart(_request(1, "login", b"\xc6\x06\x00\x00\x00" + bytes(100_000_000)))
    assert events.poll(int(DEADLINE_SECONDS * 1000)), "the connection lives on"
    dealer.disable_monitor()
    events.close()
    context.destroy(linger=0)
    assert _memory(shared.pid) < before + 50_000_000


def _memory(pid: int) -> int:
    """What a process holds, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"\x16\x03\x01" + bytes(200), bytes(1000), b"\xff" * 1000]
)
def test_strangers_at_the_port_get_nothing(said: bytes, address: str) -> None:
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as stranger:
        heard = b""
        try:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            while more := stranger.recv(1000):
                heard += more
        except OSError:
            pass
    assert len(heard) < 100


async def test_a_client_that_leaves_without_its_answers_costs_nothing(shared: Daemon) -> None:
    """A hundred of them, each with calls under way."""
    context = zmq.Context()
    async with OldEmitter(shared.front) as emitter:
        envelope_id, event_id = await emitter.start()
        for _ in range(100):
            dealer = context.socket(zmq.DEALER)
            dealer.connect(shared.front)
            args = msgpack.packb([emitter.token, envelope_id, event_id, b"x" * 2000])
            dealer.send_multipart(_request(1, "send_item", args))
            dealer.close(linger=100)
        await emitter.end(envelope_id, event_id)
    await asyncio.to_thread(context.destroy)


PASSING = ["not refused", "internal_error"]
"""No answers to a call that can never be taken."""

# -- our own verbs: the same, with a code ------------------------------------------------------------------------------


@pytest.fixture
async def coded(shared: Daemon) -> AsyncIterator[tuple[Any, str, str, str]]:
    """A client, a token, and the ids of an open envelope and an open event that holds two items."""
    client = await connect(shared.front)
    token = (await client.call.xbus.login("emitter_1", "password"))["token"]
    envelope_id, event_id = str(uuid4()), str(uuid4())
    await client.call.xbus.start_envelope(token, envelope_id)
    await client.call.xbus.start_event(token, envelope_id, event_id, "test_event", 0)
    assert await client.call.xbus.send_items(token, envelope_id, event_id, 0, 2, _pack(b"0", b"1")) == 2
    yield client, token, envelope_id, event_id
    await client.call.xbus.cancel_envelope(token, envelope_id)
    await close(client)


def _pack(*items: bytes) -> bytes:
    return b"".join(msgpack.packb(item) for item in items)


async def code_of(call: Any) -> str:
    """The code that a call is refused with, which says the cause and the next step too."""
    try:
        await call
    except aiozmq.rpc.ParametersError:
        return "wrong_arguments"
    except aiozmq.rpc.GenericError as error:
        kind, (cause, next_step, code), _ = error.args
        assert kind in ("xbus.errors.Refused", "xbus.errors.Failed")
        assert cause
        assert next_step
        return str(code)
    return "not refused"


async def test_logins_are_refused_with_a_code(coded: tuple[Any, str, str, str]) -> None:
    verbs = coded[0].call.xbus
    assert await code_of(verbs.login("emitter_1", "wrong")) == "login_refused"
    assert await code_of(verbs.logout("nothing")) == "session_unknown"
    assert await code_of(verbs.renew("nothing")) == "session_unknown"
    assert await verbs.renew(coded[1]) is True


async def test_batches_are_refused_with_a_code(coded: tuple[Any, str, str, str]) -> None:
    client, token, envelope_id, event_id = coded
    send = client.call.xbus.send_items
    ids = (token, envelope_id, event_id)
    unknown = str(uuid4())
    assert await code_of(send("nothing", envelope_id, event_id, 2, 1, _pack(b"x"))) == "session_unknown"
    assert await code_of(send(token, unknown, event_id, 2, 1, _pack(b"x"))) == "envelope_unknown"
    assert await code_of(send(token, envelope_id, unknown, 2, 1, _pack(b"x"))) == "event_unknown"
    assert await code_of(send(*ids, 3, 1, _pack(b"x"))) == "index_gap"
    assert await code_of(send(*ids, -1, 1, _pack(b"x"))) == "wrong_arguments"
    for items, data in [
        (2, _pack(b"x")),
        (1, _pack(b"x", b"y")),
        (0, b""),
        (0, _pack(b"x")),
        (-1, b""),
        (1, b""),
        (1, b"\xc1"),
        (1, msgpack.packb("text")),
        (1, msgpack.packb([b"x"])),
        (1, b"\xc4\x05abc"),
        (2**40, _pack(b"x")),
        (1, b"\xc6\xff\xff\xff\xffabc"),
    ]:
        assert await code_of(send(*ids, 2, items, data)) == "bad_items", (items, data)
    assert await code_of(send(*ids, 2, 1, _pack(b"x" * 1001))) == "item_too_large"
    assert await code_of(send(*ids, 2, 19, _pack(*[b"x"] * 19))) == "envelope_too_large"
    assert await code_of(send(*ids, 2, 6, _pack(*[b"x" * 900] * 6))) == "envelope_too_large"
    # A repeat gets its first answer, other content does not.
    assert await send(*ids, 0, 2, _pack(b"0", b"1")) == 2
    assert await send(*ids, 1, 1, _pack(b"1")) == 2
    assert await code_of(send(*ids, 0, 2, _pack(b"0", b"2"))) == "content_differs"
    assert await code_of(send(*ids, 1, 2, _pack(b"1", b"2"))) == "content_differs"
    end = client.call.xbus.end_event
    assert await code_of(end(*ids, 3)) == "count_mismatch"
    assert await end(*ids, 2) == {"items": 2, "reply": None, "replied": False}
    assert await code_of(send(*ids, 2, 1, _pack(b"x"))) == "event_closed"
    assert await send(*ids, 0, 2, _pack(b"0", b"1")) == 2


async def test_envelopes_and_events_are_refused_with_a_code(coded: tuple[Any, str, str, str], shared: Daemon) -> None:
    client, token, envelope_id, event_id = coded
    verbs = client.call.xbus
    assert await code_of(verbs.start_envelope(token, "no uuid")) == "wrong_arguments"
    assert await code_of(verbs.start_event(token, envelope_id, "no uuid", "test_event", 0)) == "wrong_arguments"
    assert await code_of(verbs.start_event(token, envelope_id, str(uuid4()), "nothing", 0)) == "unknown_type"
    assert (
        await code_of(verbs.start_event(token, envelope_id, str(uuid4()), "forbidden_event", 0)) == "type_not_allowed"
    )
    assert await code_of(verbs.end_envelope(token, envelope_id, 1)) == "event_open"
    assert await code_of(verbs.end_envelope(token, envelope_id, 2)) == "count_mismatch"
    assert await code_of(verbs.end_envelope(token, str(uuid4()), 0)) == "envelope_unknown"
    assert await code_of(verbs.cancel_envelope(token, str(uuid4()))) == "envelope_unknown"
    other = (await verbs.login("emitter_2", "password"))["token"]
    assert await code_of(verbs.start_envelope(other, envelope_id)) == "envelope_unknown"
    assert await code_of(verbs.end_envelope(other, envelope_id, 1)) == "envelope_unknown"
    assert await code_of(verbs.put_envelope(other, envelope_id, [])) == "envelope_unknown"
    assert await verbs.cancel_envelope(token, envelope_id) is True
    assert await code_of(verbs.end_envelope(token, envelope_id, 1)) == "envelope_closed"
    assert await code_of(verbs.start_event(token, envelope_id, event_id + "0", "test_event", 0)) == "wrong_arguments"


async def test_nobody_takes_the_ids_that_the_keys_of_others_make(coded: tuple[Any, str, str, str]) -> None:
    client, token, _, _ = coded
    verbs = client.call.xbus
    foretold = keyed_envelope_id(2, "invoice 4711")
    event = [str(numbered_event_id(foretold, 1)), "test_event", 1, _pack(b"x")]
    own = [str(uuid4()), "test_event", 1, _pack(b"x")]
    assert await code_of(verbs.start_envelope(token, str(foretold))) == "wrong_arguments"
    assert await code_of(verbs.put_envelope(token, str(foretold), [own])) == "wrong_arguments"
    assert await code_of(verbs.put_envelope(token, str(uuid4()), [event])) == "wrong_arguments"
    assert await code_of(verbs.start_event(token, await verbs.start_envelope(token, str(uuid4())), *event[:2], 0)) == (
        "wrong_arguments"
    )
    other = (await verbs.login("emitter_2", "password"))["token"]
    receipt = await verbs.put_envelope(other, str(uuid4()), [event], {"key": "invoice 4711"})
    assert receipt["items"] == 1


async def test_an_envelope_of_too_many_events_is_refused(coded: tuple[Any, str, str, str]) -> None:
    client, token, _, _ = coded
    verbs = client.call.xbus
    envelope_id = str(uuid4())
    await verbs.start_envelope(token, envelope_id)
    for _ in range(30):
        event_id = str(uuid4())
        await verbs.start_event(token, envelope_id, event_id, "test_event", 0)
        await verbs.end_event(token, envelope_id, event_id, 0)
    assert await code_of(verbs.start_event(token, envelope_id, str(uuid4()), "test_event", 0)) == "envelope_too_large"
    assert (await verbs.end_envelope(token, envelope_id, 30))["events"] == 30


async def test_whole_envelopes_are_refused_with_a_code_and_leave_nothing(
    coded: tuple[Any, str, str, str], consumer: OldConsumer
) -> None:
    client, token, _, _ = coded
    put = client.call.xbus.put_envelope
    good = [str(uuid4()), "test_event", 1, _pack(b"good")]
    refused: list[tuple[Any, str]] = [
        ([str(uuid4()), "nothing", 1, _pack(b"x")], "unknown_type"),
        ([str(uuid4()), "forbidden_event", 1, _pack(b"x")], "type_not_allowed"),
        ([str(uuid4()), "test_event", 2, _pack(b"x")], "bad_items"),
        ([str(uuid4()), "test_event", 0, _pack(b"x")], "bad_items"),
        ([str(uuid4()), "test_event", 1, _pack(b"x" * 1001)], "item_too_large"),
        ([str(uuid4()), "test_event", 20, _pack(*[b"x"] * 20)], "envelope_too_large"),
        (["no uuid", "test_event", 1, _pack(b"x")], "wrong_arguments"),
        ([str(uuid4()), "test_event", True, _pack(b"x")], "wrong_arguments"),
        ([str(uuid4()), "test_event", 1], "wrong_arguments"),
        ([str(uuid4()), b"test_event", 1, _pack(b"x")], "wrong_arguments"),
        ("an event", "wrong_arguments"),
        (None, "wrong_arguments"),
    ]
    ids = [str(uuid4()) for _ in refused]
    for envelope_id, (event, code) in zip(ids, refused, strict=True):
        assert await code_of(put(token, envelope_id, [good, event])) == code, event
    with pytest.raises(aiozmq.rpc.ParametersError):
        await put(token, str(uuid4()), {"no": "list"})
    many = [[str(uuid4()), "test_event", 0, b""] for _ in range(31)]
    assert await code_of(put(token, str(uuid4()), many)) == "envelope_too_large"
    good[0], envelope_id = str(uuid4()), str(uuid4())
    first = await put(token, envelope_id, [good])
    assert await put(token, envelope_id, [good]) == first
    assert await code_of(put(token, envelope_id, [[good[0], "test_event", 1, _pack(b"evil")]])) == "content_differs"
    assert await code_of(put(token, envelope_id, [])) == "content_differs"
    assert await code_of(put(token, envelope_id, [[str(uuid4()), *good[1:]]])) == "envelope_closed"
    assert await code_of(put("nothing", envelope_id, [good])) == "session_unknown"
    await consumer.wait_for([envelope_id])
    assert not set(ids) & set(consumer.committed)
    assert consumer.items(envelope_id) == [b"good"]
    assert consumer.committed.count(envelope_id) == 1


@pytest.mark.parametrize("is_open", [True, False])
async def test_an_event_id_that_another_envelope_has_is_refused_and_leaves_that_alone(
    is_open: bool, shared: Daemon, coded: tuple[Any, str, str, str], emitter: OldEmitter, consumer: OldConsumer
) -> None:
    client, _, _, _ = coded
    verbs = client.call.xbus
    attacked, event_id = await emitter.start()
    if not is_open:
        await emitter.end(attacked, event_id)
    other = (await verbs.login("emitter_2", "password"))["token"]
    whole = str(uuid4())
    evil = [event_id, "test_event", 1, _pack(b"evil")]
    assert await code_of(verbs.put_envelope(other, whole, [evil])) not in PASSING
    envelope_id = str(uuid4())
    await verbs.start_envelope(other, envelope_id)
    calls = [
        verbs.start_event(other, envelope_id, event_id, "test_event", 0),
        verbs.send_items(other, envelope_id, event_id, 0, 1, _pack(b"evil")),
        verbs.end_event(other, envelope_id, event_id, 1),
        verbs.end_envelope(other, envelope_id, 1),
    ]
    codes = [await code_of(call) for call in calls]
    assert not set(PASSING) & set(codes[1:]), codes
    if is_open:
        await emitter.send(attacked, event_id, b"good")
        await emitter.end(attacked, event_id)
    await consumer.wait_for([attacked])
    assert consumer.items(attacked) == ([b"good"] if is_open else [])
    assert not {whole, envelope_id} & set(consumer.committed)


async def test_an_envelope_that_holds_an_event_twice_is_refused(coded: tuple[Any, str, str, str]) -> None:
    client, token, _, _ = coded
    put = client.call.xbus.put_envelope
    for second in (b"a", b"b"):
        event = [str(uuid4()), "test_event", 1, _pack(b"a")]
        envelope_id = str(uuid4())
        assert await code_of(put(token, envelope_id, [event, [*event[:3], _pack(second)]])) not in PASSING
        assert await code_of(client.call.xbus.cancel_envelope(token, envelope_id)) != "envelope_closed"


async def test_the_backs_verbs_are_refused_with_a_code(consumer: OldConsumer) -> None:
    verbs = consumer.call.xbus
    assert await code_of(verbs.login("c_1", "wrong")) == "login_refused"
    assert await code_of(verbs.login("emitter_1", "password")) == "login_refused"
    for verb in (verbs.logout, verbs.ready, verbs.heartbeat):
        assert await code_of(verb("nothing")) == "session_unknown"
    assert await code_of(verbs.register_node("nothing", consumer.uri)) == "session_unknown"
    assert await code_of(verbs.register_node(consumer.token, "nonsense")) == "bad_address"
    assert await code_of(verbs.register_node(consumer.token, "tcp://127.0.0.1:1")) == "recipient_unreachable"
    assert await verbs.heartbeat(consumer.token) == {"registered": True}


async def test_after_all_that_others_are_served_as_before(emitter: OldEmitter, consumer: OldConsumer) -> None:
    envelope_id = await emitter.emit(b"well")
    await consumer.wait_for([envelope_id])
    assert consumer.items(envelope_id) == [b"well"]
    assert b"evil" not in consumer.items()
