"""Every call gets an answer: whatever a handler returns or raises, and whatever the texts of its errors hold."""

import ast
import asyncio
import logging
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.sources import modules_with
from xbus import errors
from xbus.bots import work
from xbus.broker.back.recipients.failures import own_fault
from xbus.clock import SystemClock
from xbus.errors import CallError, Failed, ProtocolError, Refused, WentBack, XbusError
from xbus.http.problems import problem
from xbus.recipient import BulkWorker, Consumer, Event, Handover, Item, Made, Refusal
from xbus.recipient.api import RecipientApi
from xbus.recipient.bulk import BulkJobs
from xbus.recipient.calls import AuthorThread, Calls
from xbus.rpc.answering import Answering, Call
from xbus.rpc.codec import Value, pack, pack_items, unpack
from xbus.rpc.dispatch import Dispatch, verb
from xbus.rpc.frames import Reply, decode_reply, encode_request
from xbus.supervision.health import Health
from xbus.texts import MOST_CHARACTERS, fault, plain

LONE = "caf\udce9"
"""The name of a file in Latin-1, as Python reads it from a folder."""


class Mute(Exception):
    """Has no text at all."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Bare(Failed):
    """An author's class of errors that lacks all that the root of the tree sets."""

    def __init__(self) -> None:
        Exception.__init__(self, LONE)


class Loose(Refused):
    """An author's class of errors whose texts are set later, and are no texts."""

    def __init__(self) -> None:
        super().__init__("a", code="loose")
        self.cause, self.next_step = LONE + "\0", [LONE]  # type: ignore[assignment]
        self.details = {LONE: 2**70, "seconds": 1.5}


RAISED: list[BaseException] = [
    ValueError(LONE),
    FileNotFoundError(2, "gone", LONE),
    Refused(LONE, LONE, code=LONE),
    Failed("x" * 1_000_000),
    Failed(ValueError(LONE)),  # type: ignore[arg-type]
    Refusal(LONE, [1, 2**70, "a"]),  # type: ignore[list-item]
    Mute(),
    Bare(),
    Loose(),
    SystemExit(LONE),
]
EXCEPTIONS = [error for error in RAISED if isinstance(error, Exception)]
RETURNED: list[Any] = [LONE, {1, 2}, 2**70, object(), {LONE: b""}]


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """Log nothing, as the processes of a test run can't send each other a captured log with such texts."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def unreadable(_: Call, error: ProtocolError) -> None:
    raise error


async def answers(dispatch: Dispatch, method: str, *arguments: object) -> Reply:
    """What comes back for a call."""
    sent: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    def send(call: Call, frames: list[bytes]) -> bool:
        sent.set_result([*call.frames, *frames])
        return True

    answering = Answering(dispatch, name="test", send=send, unreadable=unreadable)
    answering.take(Call(b"peer", [b"peer", *map(bytes, encode_request(b"1234", 7, 0.0, method, arguments))], 0))
    return decode_reply((await sent)[1:])


class Handlers:
    """Verbs that raise or return what they are made for, at once and later.

    Args:
        outcome: raises or returns.
    """

    def __init__(self, outcome: Callable[[], object]) -> None:
        self._outcome = outcome

    @verb("at_once")
    def at_once(self) -> object:
        return self._outcome()

    @verb("coroutine")
    async def coroutine(self) -> object:
        return self._outcome()

    @verb("future")
    def future(self) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._outcome())
        except BaseException as error:
            future.set_exception(error)
        return future


def raising(error: BaseException) -> Callable[[], object]:
    def outcome() -> object:
        raise error

    return outcome


@pytest.mark.parametrize("method", ["at_once", "coroutine", "future"])
@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda it: type(it).__name__)
async def test_a_handler_that_raises_is_answered(method: str, error: Exception) -> None:
    reply = await answers(Dispatch(Handlers(raising(error))), method)
    assert reply.error is not None
    assert len(reply.error.cause) <= MOST_CHARACTERS
    if isinstance(error, CallError) and not isinstance(error, Bare):
        assert isinstance(reply.error, Refused) is isinstance(error, Refused)


@pytest.mark.parametrize("method", ["at_once", "coroutine", "future"])
@pytest.mark.parametrize("answer", RETURNED, ids=lambda it: type(it).__name__)
async def test_a_handler_that_returns_what_no_wire_takes_is_answered(method: str, answer: object) -> None:
    reply = await answers(Dispatch(Handlers(lambda: answer)), method)
    assert reply.error is not None
    assert reply.error.code == "internal_error"


async def test_an_answer_has_the_form_of_aiozmq_behind_the_route_of_its_call() -> None:
    sent: list[list[bytes]] = []

    def send(call: Call, frames: list[bytes]) -> bool:
        sent.append([*call.frames, *frames])
        return True

    answering = Answering(Dispatch(Handlers(lambda: (True, None))), name="test", send=send, unreadable=unreadable)
    request = [*map(bytes, encode_request(b"1234", 7, 0.0, "at_once", ()))]
    answering.take(Call(b"proxy", [b"proxy", b"peer", *request], 0))
    ((*route, header, answer),) = sent
    assert route == [b"proxy", b"peer"]
    pid, _, request_id, at, is_error = struct.unpack("=HHLd?", header)
    assert (pid, request_id, is_error) == (os.getpid() % 65536, 7, False)
    assert abs(at - time.time()) < 60
    assert unpack(answer) == [True, None]


async def test_a_call_whose_text_is_no_utf_8_is_answered() -> None:
    frames = [b"peer", *map(bytes, encode_request(b"1234", 7, 0.0, "at_once", ()))]
    frames[3] = b"\x91\xa1\xe9"
    sent: list[list[bytes]] = []

    def send(call: Call, frames: list[bytes]) -> bool:
        sent.append([*call.frames, *frames])
        return True

    answering = Answering(Dispatch(Handlers(lambda: None)), name="test", send=send, unreadable=unreadable)
    answering.take(Call(b"peer", frames, 0))
    error = decode_reply(sent[0][1:]).error
    assert error is not None
    assert (error.code, "UTF-8" in error.cause) == ("wrong_arguments", True)


# -- recipients ------------------------------------------------------------------------------------------------------


class Raising(Consumer):
    """Raises at each item."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_item(self, event: Event, item: Item) -> None:
        raise self.error


BATCH = [0, 1, pack_items([b"x"]), None]
ENVELOPE = "11111111-1111-4111-8111-111111111111"
EVENT = "22222222-2222-4222-8222-222222222222"
BRINGING = {
    "xbus.take_event": (ENVELOPE, EVENT, "t", [BATCH], True),
    "xbus.take_envelopes": ([[ENVELOPE, [[EVENT, "t", [BATCH]]]]],),
    "xbus.prepare_envelopes": ([[ENVELOPE, [[EVENT, "t", [BATCH]]]]],),
    "xbus.commit_envelopes": ([], [[ENVELOPE, [[EVENT, "t", [BATCH]]]]]),
}
"""The calls that bring items to the author's code; each packs its errors in its own way."""


@pytest.mark.parametrize("method", BRINGING)
@pytest.mark.parametrize("error", RAISED, ids=lambda it: type(it).__name__)
async def test_a_recipient_answers_whatever_its_author_raises(method: str, error: BaseException) -> None:
    thread = AuthorThread("author")
    author = Raising(error)
    try:
        calls = Calls(author, thread)
        api = RecipientApi(author, calls, thread, SystemClock(), lambda: None)
        api.deliveries.way = SimpleNamespace(caller=b"one")
        reply = await answers(Dispatch(api), method, *BRINGING[method])
    finally:
        thread.close()
    if reply.error is not None:
        assert not isinstance(error, Refusal), "a refusal is an answer"
        assert reply.error.code in ("recipient_failed", "envelope_stopped")
        return
    answer = reply.answer
    assert isinstance(answer, list)
    if method != "xbus.take_event":
        (answer,) = answer
        assert isinstance(answer, list)
    assert answer[0] is (False if isinstance(error, Refusal) else None)
    if isinstance(error, Refusal):
        assert answer[1] == [[[1], "caf\\udce9"]]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda it: type(it).__name__)
async def test_a_bulk_worker_reports_whatever_its_author_raises(error: Exception) -> None:
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def call(name: str, *arguments: object) -> Value:
        told.set_result(unpack(pack([name, *arguments])))
        return {"accepted": True}

    class Bulk(BulkWorker):
        """Makes nothing."""

        async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
            raise error

    ids = [uuid.uuid4() for _ in range(4)]
    BulkJobs(Bulk(), call).take(Handover(ids[0], ids[1], "numbers", ids[2], "w", ids[3], False, 10), 1_000)
    match await told:
        case [str(name), _, {"class": kind, "message": str(message)}]:
            assert (name, bool(message)) == ("xbus.output_failed", True)
            assert (kind == "permanent") is not isinstance(error, Failed)
        case other:
            raise AssertionError(other)


# -- others that bring a text of an exception to the wire ------------------------------------------------------------


@pytest.mark.parametrize("error", RAISED, ids=lambda it: type(it).__name__)
def test_all_that_say_an_exception_say_what_can_be_packed(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = work.failed(error)
    health = Health("back", SystemClock())
    health.trouble(plain(error, 20), fault(error), plain(error))
    said: list[object] = [fault(error), plain(error), outcome.line(), dict(health.report())]
    if isinstance(error, Exception):
        said += [own_fault(error).cause]
    if isinstance(error, XbusError) and not isinstance(error, Loose):
        said += [bytes(problem(error).body)]
    pack(said)


def _all_errors(cls: type[XbusError] = XbusError) -> Iterator[type[XbusError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _all_errors(sub)


def test_the_texts_of_every_error_of_the_bus_can_be_packed() -> None:
    for cls in _all_errors():
        if cls.__module__ == errors.__name__:
            error = WentBack(1, 2, 1) if cls is WentBack else cls(LONE, LONE, code=LONE)
            pack([error.cause, error.next_step, error.code, str(error), repr(error)])


PACKED = {
    ("xbus/rpc/frames.py", "encode_request"): "arguments: a caller learns at once that one can't be packed",
    ("xbus/rpc/frames.py", "encode_error"): "errors: their texts are made plain there",
    ("xbus/rpc/answering.py", "__init__"): "of _answer",
    ("xbus/rpc/answering.py", "_answer"): "answers: one that can't be packed becomes an error",
    ("xbus/rpc/answering.py", "send_early"): "receipts, as the journal has them",
    ("xbus/rpc/owed_calls.py", "__init__"): "of ask",
    ("xbus/rpc/owed_calls.py", "ask"): "arguments, by encode_request",
    ("xbus/rpc/owed_calls.py", "ask_first"): "no arguments, by encode_request",
    ("xbus/rpc/codec.py", "pack"): "the packer itself",
    ("xbus/rpc/codec.py", "_make"): "makes a packer",
    ("xbus/rpc/codec.py", "exact_packer"): "makes a packer",
    ("xbus/rpc/codec.py", "pack_items"): "bytes",
    ("xbus/rpc/codec.py", "pack_arguments"): "of encode_request",
    ("xbus/rpc/items.py", "_is_packable"): "a check",
    ("xbus/rpc/items.py", "item_bytes"): "an emitter's item, refused at once",
    ("xbus/rpc/items.py", "item_packer"): "the same",
    ("xbus/emitter/batch.py", "__init__"): "the same",
    ("xbus/headers/packing.py", ""): "of _packed",
    ("xbus/headers/packing.py", "_packed"): "an emitter's headers, refused at once",
    ("xbus/recipient/deliveries.py", "_answer_to"): "a check",
    ("xbus/recipient/calls.py", "_check_reply"): "a check",
    ("xbus/bots/job.py", "line"): "a run, as it came over the wire",
    ("xbus/files/file_items.py", "next_item"): "a file's name and hash",
    ("xbus/http/dialects/native.py", "_ask"): "a reply, as it came over the wire",
    ("xbus/http/batches.py", "_packed_event"): "events, as they came over the wire",
    ("xbus/http/batches.py", "_packed_map"): "the same",
    ("xbus/http/batches.py", "_packed_list"): "a number",
    ("xbus/broker/back/replies.py", "keep"): "a reply, as it came over the wire",
    ("xbus/broker/journal/database/table_rows.py", "_packer"): "no msgpack",
    ("xbus/broker/journal/database/table_rows.py", "read_rows"): "no msgpack",
    ("xbus/testing/broker.py", "put_envelopes"): "the simulated wire",
    ("xbus/testing/broker.py", "_give"): "the simulated wire",
    ("xbus/testing/pull/verbs.py", "answer"): "the simulated wire",
    ("xbus/testing/network.py", "call"): "the simulated wire",
    ("xbus/testing/network.py", "_send_answer"): "the simulated wire",
    ("spark_worker/items/packing.py", "packer"): "makes a packer",
    ("spark_worker/items/packing.py", "items_of"): "rows of a job, whose failure is reported",
}
"""Each function that packs by msgpack, and why no text of an error keeps it from that."""


def places_that_pack(module: ast.AST, function: str = "", own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Find the functions that pack by msgpack, or that take what packs; those inside others by their own names.

    Args:
        module: or a part of it.
        function: around that part.
        own: the parameters there, such as a function of the caller's that is called ``pack``.
    """
    for node in ast.iter_child_nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            taken = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            name = function if isinstance(node, ast.Lambda) else node.name
            yield from places_that_pack(node, name, own | taken)
            continue
        if _packs(node) and not (isinstance(node, ast.Name) and node.id in own):
            yield function
        yield from places_that_pack(node, function, own)


def _packs(node: ast.AST) -> bool:
    match node:
        case ast.Name("pack" | "pack_arguments" | "packb" | "packer" | "exact_packer" | "KeptPacker" | "Packer"):
            return isinstance(node.ctx, ast.Load)
        case ast.Attribute(ast.Name(name), "pack") if name == "struct" or name.isupper():
            return False  # numbers of a fixed size
        case ast.Attribute(_, "pack" | "packb" | "Packer"):
            return isinstance(node.ctx, ast.Load)
        case ast.alias("pack" | "packb" | "Packer" | "KeptPacker" | "exact_packer", str()):
            return True  # under another name
    return False


def test_every_place_that_packs_is_known() -> None:
    words = ("pack(", "pack_arguments", "packb", "packer", "Packer", "import pack")
    found = {
        (path, function)
        for path, module in modules_with(words, "xbus", "spark_worker")
        for function in places_that_pack(module)
    }
    assert found == set(PACKED)


@pytest.mark.parametrize(
    "line",
    [
        "send(pack(answer))",
        "send(pack_arguments((answer,)))",
        "send(msgpack.packb(answer))",
        "send(msgpack.Packer().pack(answer))",
        "send(self._packer.pack(answer))",
        "send(list(map(pack, answers)))",
        "send(map(lambda answer: pack(answer), answers))",
        "encode = exact_packer()",
        "from msgpack import packb as encode",
    ],
)
def test_a_planted_place_that_packs_is_found(line: str) -> None:
    assert "planted" in places_that_pack(ast.parse(f"class A:\n    def planted(self, answer):\n        {line}"))
