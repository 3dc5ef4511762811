"""The contract of the front: the double gives emitters the same answers as the real one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.emitter.front_double import FrontDouble
from xbus.emitter.session import FrontLimits
from xbus.errors import Refused
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context
from xbus.rpc.messages import EnvelopeReceipt, EventEnd, FrontLogin
from xbus.rpc.shapes import AnswerReader

SECONDS = 60.0
LOGIN = ("test_emitter", "password")
EMITTER_ID = 1
"""Of the only emitter of the demo rows."""

_LOGIN = AnswerReader("xbus.login", FrontLogin)
_END = AnswerReader("xbus.end_event", EventEnd)
_RECEIPT = AnswerReader("xbus.end_envelope", EnvelopeReceipt)


class Sender:
    """Calls the front's verbs as they are, with the token of a session."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.token = ""

    async def raw(self, verb: str, *arguments: Any) -> Any:
        """Call a verb without the token."""
        return await self._client.call(f"xbus.{verb}", *arguments, timeout=SECONDS)

    async def call(self, verb: str, *arguments: Any) -> Any:
        return await self.raw(verb, self.token, *arguments)

    async def log_in(self) -> FrontLogin:
        """Begin a session; the calls after it are made with that."""
        answer = _LOGIN.read(await self.raw("login", *LOGIN))
        self.token = answer["token"]
        return answer

    async def refused(self, code: str, verb: str, *arguments: Any) -> None:
        """See that a call is refused with a code."""
        with pytest.raises(Refused) as refusal:
            await self.call(verb, *arguments)
        assert refusal.value.code == code

    async def start(self) -> tuple[str, str]:
        """Begin an envelope with an event; the ids of both."""
        envelope_id, event_id = str(uuid4()), str(uuid4())
        assert await self.call("start_envelope", envelope_id) == envelope_id
        assert await self.call("start_event", envelope_id, event_id, "test_event", 0) == event_id
        return envelope_id, event_id

    async def send(self, envelope_id: str, event_id: str, first_index: int, *items: bytes) -> int:
        count: int = await self.call("send_items", envelope_id, event_id, first_index, len(items), pack_items(items))
        return count

    async def seal(self, *items: bytes) -> tuple[str, str]:
        """Send an envelope with one event; the ids of both."""
        envelope_id, event_id = await self.start()
        await self.send(envelope_id, event_id, 0, *items)
        await self.call("end_event", envelope_id, event_id, len(items))
        await self.call("end_envelope", envelope_id, 1)
        return envelope_id, event_id


def whole(*items: bytes) -> list[Any]:
    """Make an envelope for a group."""
    return [uuid4().bytes, uuid4().bytes, "test_event", len(items), pack_items(items), None, None]


@pytest.fixture(params=["double", "real"])
async def sender(request: pytest.FixtureRequest) -> AsyncIterator[Sender]:
    """A session at the double, then one at the front of a broker."""
    context = new_context()
    double = FrontDouble(context).start() if request.param == "double" else None
    address = request.getfixturevalue("demo_broker").front if double is None else double.address
    client = Client(context, name=address)
    client.connect(address)
    sender = Sender(client)
    await sender.log_in()
    yield sender
    client.close()
    if double is not None:
        double.stop()
    context.destroy(linger=0)


async def test_a_login_tells_the_limits(sender: Sender) -> None:
    answer = await sender.log_in()
    limits = FrontLimits.of(answer)
    assert (limits.session_seconds, limits.max_item_bytes, limits.max_batch_bytes) == (3600, 1000, 5000)


@pytest.mark.parametrize(("login", "password"), [("test_emitter", "wrong"), ("nobody", "password"), ("", "")])
async def test_a_wrong_login_is_refused(sender: Sender, login: str, password: str) -> None:
    with pytest.raises(Refused) as refusal:
        await sender.raw("login", login, password)
    assert refusal.value.code == "login_refused"


async def test_a_session_lasts_until_its_logout(sender: Sender) -> None:
    first = sender.token
    await sender.log_in()
    assert sender.token != first
    assert await sender.call("renew") is True
    assert await sender.call("logout") is True
    await sender.refused("session_unknown", "logout")
    sender.token = first
    assert await sender.call("renew") is True


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("renew", ()),
        ("logout", ()),
        ("start_envelope", ("{envelope}",)),
        ("start_event", ("{envelope}", "{event}", "test_event", 0)),
        ("send_items", ("{envelope}", "{event}", 0, 1, pack_items([b"x"]))),
        ("end_event", ("{envelope}", "{event}", 0)),
        ("end_envelope", ("{envelope}", 1)),
        ("cancel_envelope", ("{envelope}",)),
        ("put_envelopes", ([],)),
        ("get_consumers", ()),
        ("retry_event", ("{event}",)),
        ("replay_envelope", ("{envelope}", "{event}")),
    ],
)
async def test_an_unknown_session_is_refused_everywhere(sender: Sender, verb: str, arguments: tuple[Any, ...]) -> None:
    envelope_id, event_id = await sender.start()
    ids = {"{envelope}": envelope_id, "{event}": event_id}
    token, sender.token = sender.token, "nothing"
    await sender.refused("session_unknown", verb, *(ids.get(str(argument), argument) for argument in arguments))
    sender.token = token
    # The call had no effect.
    assert await sender.send(envelope_id, event_id, 0, b"x") == 1


async def test_an_envelope_is_receipted(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    assert await sender.send(envelope_id, event_id, 0, b"a", b"b") == 2
    assert await sender.send(envelope_id, event_id, 2, b"c") == 3
    assert _END.read(await sender.call("end_event", envelope_id, event_id, 3))["items"] == 3
    receipt = _RECEIPT.read(await sender.call("end_envelope", envelope_id, 1))
    assert (receipt["envelope_id"], receipt["events"], receipt["items"]) == (envelope_id, 1, 3)
    assert receipt["position"] > 0


async def test_positions_follow_each_other(sender: Sender) -> None:
    positions = []
    for _ in range(2):
        envelope_id, _ = await sender.seal(b"x")
        positions.append(_RECEIPT.read(await sender.call("end_envelope", envelope_id, 1))["position"])
    assert positions[1] == positions[0] + 1


async def test_a_repeated_call_gets_the_same_answer(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    calls: list[tuple[Any, ...]] = [
        ("start_envelope", envelope_id),
        ("start_event", envelope_id, event_id, "test_event", 0),
        ("send_items", envelope_id, event_id, 0, 2, pack_items([b"a", b"b"])),
        ("end_event", envelope_id, event_id, 2),
        ("end_envelope", envelope_id, 1),
    ]
    answers = [await sender.call(*call) for call in calls]
    # Also when the envelope is sealed.
    assert [await sender.call(*call) for call in calls[1:]] == answers[1:]


async def test_items_must_follow_those_before(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    await sender.refused("index_gap", "send_items", envelope_id, event_id, 1, 1, pack_items([b"a"]))
    assert await sender.send(envelope_id, event_id, 0, b"a", b"b") == 2
    await sender.refused("content_differs", "send_items", envelope_id, event_id, 0, 2, pack_items([b"a", b"c"]))
    await sender.refused("bad_items", "send_items", envelope_id, event_id, 2, 2, pack_items([b"c"]))


async def test_sizes_are_limited(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    large, many = pack_items([bytes(1001)]), pack_items([bytes(600)] * 9)
    await sender.refused("item_too_large", "send_items", envelope_id, event_id, 0, 1, large)
    await sender.refused("batch_too_large", "send_items", envelope_id, event_id, 0, 9, many)
    assert await sender.send(envelope_id, event_id, 0, bytes(1000)) == 1


async def test_counts_are_checked(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    await sender.send(envelope_id, event_id, 0, b"a")
    await sender.refused("count_mismatch", "end_event", envelope_id, event_id, 2)
    await sender.refused("event_open", "end_envelope", envelope_id, 1)
    await sender.call("end_event", envelope_id, event_id, 1)
    await sender.refused("count_mismatch", "end_envelope", envelope_id, 2)
    assert await sender.call("end_envelope", envelope_id, 1)


async def test_what_is_unknown_is_refused(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    unknown = str(uuid4())
    await sender.refused("unknown_type", "start_event", envelope_id, str(uuid4()), "nothing", 0)
    for code, ids in [("envelope_unknown", (unknown, event_id)), ("event_unknown", (envelope_id, unknown))]:
        await sender.refused(code, "send_items", *ids, 0, 1, pack_items([b"a"]))
        await sender.refused(code, "end_event", *ids, 0)
    await sender.refused("envelope_unknown", "start_event", unknown, event_id, "test_event", 0)
    await sender.refused("envelope_unknown", "end_envelope", unknown, 1)
    await sender.refused("envelope_unknown", "cancel_envelope", unknown)


async def test_nothing_follows_the_end_of_an_event(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    await sender.call("end_event", envelope_id, event_id, 0)
    await sender.refused("event_closed", "send_items", envelope_id, event_id, 0, 1, pack_items([b"a"]))


async def test_a_sealed_envelope_never_changes(sender: Sender) -> None:
    envelope_id, event_id = await sender.seal(b"a")
    await sender.refused("envelope_closed", "start_event", envelope_id, str(uuid4()), "test_event", 0)
    await sender.refused("envelope_closed", "send_items", envelope_id, event_id, 1, 1, pack_items([b"b"]))
    await sender.refused("envelope_closed", "cancel_envelope", envelope_id)


async def test_a_cancelled_envelope_never_changes(sender: Sender) -> None:
    envelope_id, event_id = await sender.start()
    assert await sender.call("cancel_envelope", envelope_id) is True
    assert await sender.call("cancel_envelope", envelope_id) is True
    await sender.refused("envelope_closed", "send_items", envelope_id, event_id, 0, 1, pack_items([b"b"]))
    await sender.refused("envelope_closed", "end_envelope", envelope_id, 1)


async def test_an_envelope_in_one_call_is_receipted_once(sender: Sender) -> None:
    entry = whole(b"a", b"b")
    (receipt,) = await sender.call("put_envelopes", [entry])
    assert (receipt[0], receipt[1] > 0, len(receipt)) == (entry[0], True, 3)
    assert await sender.call("put_envelopes", [entry]) == [receipt]
    differs = [*entry[:4], pack_items([b"a", b"c"]), *entry[5:]]
    others = [differs, [entry[0], uuid4().bytes, *entry[2:]]]
    refusals = await sender.call("put_envelopes", others)
    assert [(told["refused"], told["code"]) for told in refusals] == [
        (True, "content_differs"),
        (True, "envelope_closed"),
    ]


async def test_an_envelope_in_one_call_has_the_id_of_its_key(sender: Sender) -> None:
    key = f"invoice {uuid4()}"
    entry = [None, None, *whole(b"a")[2:5], [None, key, None], None]
    for _ in range(2):
        ((envelope_id, _, _),) = await sender.call("put_envelopes", [entry])
        assert envelope_id == keyed_envelope_id(EMITTER_ID, key).bytes


async def test_a_refused_envelope_of_one_call_leaves_nothing_and_the_others_are_taken(sender: Sender) -> None:
    entry = whole()
    wrong = [uuid4().bytes, uuid4().bytes, "nothing", *entry[3:]]
    told, receipt = await sender.call("put_envelopes", [wrong, entry])
    assert (told["refused"], told["code"], receipt[0]) == (True, "unknown_type", entry[0])
    assert told.keys() == {"refused", "code", "cause", "next_step", "details"}
    await sender.refused("envelope_unknown", "end_envelope", str(UUID(bytes=wrong[0])), 1)


async def test_in_order_none_is_taken_behind_one_that_is_refused(sender: Sender) -> None:
    entries = [whole(b"a"), [*whole()[:2], "nothing", *whole()[3:]], whole(b"c")]
    receipt, told, behind = await sender.call("put_envelopes", entries, True)
    assert receipt[0] == entries[0][0]
    assert (told["refused"], told["code"], behind["refused"]) == (True, "unknown_type", False)


async def test_a_key_makes_the_id_and_the_last_session_has_the_envelope(sender: Sender) -> None:
    key = f"invoice {uuid4()}"
    made_id = str(keyed_envelope_id(EMITTER_ID, key))
    event_id = str(numbered_event_id(keyed_envelope_id(EMITTER_ID, key), 1))
    assert await sender.call("start_envelope", str(uuid4()), {"key": key}) == made_id
    assert await sender.call("start_event", made_id, event_id, "test_event", 0) == event_id
    first = sender.token
    await sender.log_in()
    assert await sender.call("start_envelope", str(uuid4()), {"key": key}) == made_id
    second, sender.token = sender.token, first
    await sender.refused("session_superseded", "send_items", made_id, event_id, 0, 1, pack_items([b"a"]))
    await sender.refused("session_superseded", "cancel_envelope", made_id)
    sender.token = second
    assert await sender.send(made_id, event_id, 0, b"a") == 1


async def test_a_sealed_envelope_is_replayed_under_a_new_id(sender: Sender) -> None:
    envelope_id, _ = await sender.seal(b"a")
    new_id = str(uuid4())
    assert await sender.call("replay_envelope", envelope_id, new_id) == new_id
    assert await sender.call("replay_envelope", envelope_id, new_id) == new_id
    await sender.refused("envelope_unknown", "replay_envelope", str(uuid4()), str(uuid4()))
    opened, event_id = await sender.start()
    await sender.send(opened, event_id, 0, b"a")  # opening alone promises nothing
    await sender.refused("envelope_open", "replay_envelope", opened, str(uuid4()))


async def test_what_nobody_failed_at_is_not_retried(sender: Sender) -> None:
    _, event_id = await sender.seal(b"a")
    await sender.refused("nothing_to_retry", "retry_event", event_id)
    await sender.refused("event_unknown", "retry_event", str(uuid4()))


async def test_calls_made_at_once_are_carried_out_in_order(sender: Sender) -> None:
    envelope_id, event_id = str(uuid4()), str(uuid4())
    answers = await asyncio.gather(
        sender.call("start_envelope", envelope_id),
        sender.call("start_event", envelope_id, event_id, "test_event", 0),
        *(sender.send(envelope_id, event_id, index, b"x") for index in range(20)),
        sender.call("end_event", envelope_id, event_id, 20),
    )
    assert answers[:-1] == [envelope_id, event_id, *range(1, 21)]
    assert _END.read(answers[-1])["items"] == 20
