"""The front's verbs at their edges: what callers write where an id or an event should be."""

import uuid
from typing import Any

import pytest

from tests.support.clock import StandingClock
from tests.support.groups import LIMITS
from tests.unit.broker.front.conftest import REPLY_SECONDS, Desk
from xbus.broker.front.front import Front
from xbus.broker.front.verbs.batches import FrontBatchVerbs
from xbus.broker.front.verbs.emitters import FrontVerbs
from xbus.broker.sessions import Sessions
from xbus.errors import Failed, Refused
from xbus.ids import Ids
from xbus.rpc.codec import pack_items


class OneOwner(Sessions):
    """Sessions in which the token ``"token"`` is one emitter's."""

    def __init__(self, owner_id: int) -> None:
        self._owner_id = owner_id

    def owner(self, token: str) -> int:
        if token != "token":
            raise Refused("the session is unknown", "log in", code="session_unknown")
        return self._owner_id


@pytest.fixture
def old(front: Front, north: Desk) -> FrontVerbs:
    return FrontVerbs(front, OneOwner(north.emitter_id), Ids(StandingClock()))


@pytest.fixture
def batches(front: Front, north: Desk) -> FrontBatchVerbs:
    return FrontBatchVerbs(front, OneOwner(north.emitter_id), LIMITS, 60, REPLY_SECONDS)


async def answered(outcome: Any) -> Any:
    return await outcome if hasattr(outcome, "__await__") else outcome


async def code_of(call: Any, *args: Any) -> str:
    with pytest.raises(Refused) as caught:
        await answered(call(*args))
    return caught.value.code


# -- as of old -------------------------------------------------------------------------------------------------------


async def test_an_envelope_in_old_words(old: FrontVerbs) -> None:
    envelope_id = await answered(old.start_envelope("token"))
    event_id = await answered(old.start_event("token", envelope_id, "notes", 2))
    assert await answered(old.send_item("token", envelope_id, event_id, b"a")) is True
    assert await answered(old.end_event("token", envelope_id, event_id)) == (True, None)
    assert await answered(old.end_envelope("token", envelope_id)) is True
    assert await answered(old.cancel_envelope("token", envelope_id)) is False


@pytest.mark.parametrize("token", ["", "another"])
async def test_without_a_session_nothing_goes(old: FrontVerbs, token: str) -> None:
    ids = str(uuid.uuid4()), str(uuid.uuid4())
    assert await answered(old.start_envelope(token)) == ""
    assert await answered(old.start_event(token, ids[0], "notes", 0)) == ""
    assert await answered(old.send_item(token, *ids, b"a")) is False
    assert await answered(old.end_event(token, *ids)) == (False, None)
    assert await answered(old.end_envelope(token, ids[0])) is False
    assert await answered(old.cancel_envelope(token, ids[0])) is False


@pytest.mark.parametrize("text", ["", "nonsense", "0" * 1000, "é"])
async def test_what_is_no_id_is_refused_in_old_words(old: FrontVerbs, text: str) -> None:
    envelope_id = await answered(old.start_envelope("token"))
    assert await answered(old.start_event("token", text, "notes", 0)) == ""
    assert await answered(old.send_item("token", envelope_id, text, b"a")) is False
    assert await answered(old.end_event("token", text, text)) == (False, None)
    assert await answered(old.end_envelope("token", text)) is False


async def test_old_refusals(old: FrontVerbs) -> None:
    envelope_id = await answered(old.start_envelope("token"))
    assert await answered(old.start_event("token", envelope_id, "nonsense", 0)) == ""
    event_id = await answered(old.start_event("token", envelope_id, "notes", 0))
    assert await answered(old.send_item("token", envelope_id, event_id, bytes(LIMITS.item_bytes + 1))) is False
    assert await answered(old.end_envelope("token", envelope_id)) is False
    assert await answered(old.cancel_envelope("token", envelope_id)) is True


# -- our own ---------------------------------------------------------------------------------------------------------


async def test_an_envelope_in_our_words(batches: FrontBatchVerbs) -> None:
    envelope_id, event_id = str(uuid.uuid4()), str(uuid.uuid4())
    assert await answered(batches.start_envelope("token", envelope_id)) == envelope_id
    assert await answered(batches.start_event("token", envelope_id, event_id, "notes", 2)) == event_id
    data = pack_items([b"a", b"b"])
    assert await answered(batches.send_items("token", envelope_id, event_id, 0, 2, data)) == 2
    assert await answered(batches.end_event("token", envelope_id, event_id, 2)) == {
        "items": 2,
        "reply": None,
        "replied": False,
    }
    receipt = await answered(batches.end_envelope("token", envelope_id, 1))
    assert {key: receipt[key] for key in ("envelope_id", "position", "events", "items")} == {
        "envelope_id": envelope_id,
        "position": 1,
        "events": 1,
        "items": 2,
    }
    assert len(receipt["hash"]) == 32


async def test_what_is_no_id_has_a_code(batches: FrontBatchVerbs) -> None:
    envelope_id = str(uuid.uuid4())
    assert await code_of(batches.start_envelope, "token", "nonsense") == "wrong_arguments"
    await answered(batches.start_envelope("token", envelope_id))
    assert await code_of(batches.start_event, "token", envelope_id, "nonsense", "notes", 0) == "wrong_arguments"
    assert await code_of(batches.send_items, "token", envelope_id, "nonsense", 0, 1, b"") == "event_unknown"
    assert await code_of(batches.send_items, "token", "nonsense", envelope_id, -1, 1, b"") == "wrong_arguments"
    assert await code_of(batches.end_envelope, "token", "nonsense", 0) == "envelope_unknown"
    assert await code_of(batches.renew, "another") == "session_unknown"


EVENT = str(uuid.uuid4())


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "event",
        [EVENT, "notes", 1],
        [EVENT, "notes", 1, "text"],
        [EVENT, "notes", -1, b""],
        [EVENT, "notes", True, b""],
        [EVENT, 7, 0, b""],
        ["nonsense", "notes", 0, b""],
        [EVENT, "notes", 0, b"", None],
    ],
)
async def test_a_whole_envelope_must_be_made_of_events(batches: FrontBatchVerbs, event: Any) -> None:
    assert await code_of(batches.put_envelope, "token", str(uuid.uuid4()), [event]) == "wrong_arguments"


async def test_events_keep_their_order_when_one_of_them_is_refused_for_now(batches: FrontBatchVerbs) -> None:
    """What was sent behind the refused one must not take its place before that is sent again."""
    envelope_id, first, second, third = (str(uuid.uuid4()) for _ in range(4))
    await answered(batches.start_envelope("token", envelope_id))

    async def start(event_id: str, number: int) -> Any:
        return await answered(batches.start_event("token", envelope_id, event_id, "notes", 0, {"number": number}))

    assert await start(first, 1) == first
    with pytest.raises(Failed) as caught:
        await start(third, 3)
    assert caught.value.code == "event_gap"
    assert [await start(second, 2), await start(third, 3), await start(second, 2)] == [second, third, second]
    for number, code in ((2, "content_differs"), (0, "wrong_arguments")):
        with pytest.raises(Refused) as refused:
            await start(str(uuid.uuid4()), number)
        assert refused.value.code == code
