"""The last arguments of calls to recipients: notes and headers, for those that want them and for no others."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.recipients import BUNDLES, OLD, Cast
from xbus.broker.back.log import DeliveryNote, FirstWords, RunBatch, SmallEnvelope
from xbus.broker.back.recipients import RecipientProxy
from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.envelope import EnvelopeHead
from xbus.headers import EventTags
from xbus.rpc.codec import pack, pack_items, unpack

BATCH = RunBatch(0, 1, pack_items([b"a"]))
ON_WIRE = [0, 1, BATCH.data, None]
TAGGED = LogEvent(uuid.UUID(int=1).bytes, "notes", 1, 1, tags=EventTags(b"headers", "client 7"))
KEYED = LogEvent(uuid.UUID(int=2).bytes, "notes", 1, 1, tags=EventTags(None, "client 8"))
PLAIN = LogEvent(uuid.UUID(int=3).bytes, "notes", 1, 1)
EVENTS = (TAGGED, KEYED, PLAIN)
SEALED_AT = datetime(2030, 1, 1, tzinfo=UTC)
ENVELOPE = LogEnvelope(
    uuid.UUID(int=7).bytes,
    *(5, EVENTS, (1, 1, 1), None),
    EnvelopeHead(headers=b"of the envelope"),
    emitter_id=9,
    sealed_at=SEALED_AT,
)
NOTE = DeliveryNote.of(ENVELOPE, "north", 1)
WORDS = FirstWords(NOTE, b"of the envelope")
TOLD = list(NOTE)
FIRST = {"envelope_headers": b"of the envelope", "headers": b"headers", "partition_key": "client 7"}

WANTS: dict[str, Abilities] = {
    "neither": BUNDLES,
    "notes": replace(BUNDLES, notes=True),
    "headers": replace(BUNDLES, headers=True),
    "both": replace(BUNDLES, notes=True, headers=True),
}


@pytest.fixture
def cast() -> Cast:
    return Cast()


def consumer(cast: Cast, wants: str) -> RecipientProxy:
    recipient = cast.consumer("c", WANTS[wants])
    recipient.accompany(ENVELOPE.envelope_id, WORDS)
    return recipient


def more(cast: Cast, usual: int) -> list[Any]:
    """What the calls have beyond their usual arguments, as it comes over the wire."""
    return [unpack(pack(call.args[usual:])) for call in cast.script.calls]


@pytest.mark.parametrize(
    ("wants", "wanted"),
    [
        ("neither", [[], [], []]),
        ("notes", [[TOLD], [], []]),
        ("headers", [[None, FIRST], [None, {"partition_key": "client 8"}], []]),
        ("both", [[TOLD, FIRST], [None, {"partition_key": "client 8"}], []]),
    ],
)
async def test_of_events_that_come_one_by_one(cast: Cast, wants: str, wanted: list[Any]) -> None:
    recipient = consumer(cast, wants)
    for event in ENVELOPE.events:
        await recipient.start_event(ENVELOPE.envelope_id, event)
    assert more(cast, 3) == wanted
    cast.script.calls.clear()
    recipient.accompany(ENVELOPE.envelope_id, WORDS)
    for event in ENVELOPE.events:
        await recipient.take_event(ENVELOPE.envelope_id, event, [BATCH], commit=False)
    assert more(cast, 5) == wanted


@pytest.mark.parametrize(
    ("wants", "events", "note"),
    [
        ("neither", [[], [], []], []),
        ("notes", [[], [], []], [TOLD]),
        ("headers", [[FIRST], [{"partition_key": "client 8"}], []], []),
        ("both", [[FIRST], [{"partition_key": "client 8"}], []], [TOLD]),
    ],
)
async def test_of_envelopes_in_a_bundle(cast: Cast, wants: str, events: list[Any], note: list[Any]) -> None:
    recipient = consumer(cast, wants)
    await recipient.take_envelopes([SmallEnvelope(ENVELOPE, [[BATCH]] * 3, 1)], {9: "north"})
    entries = [
        [str(event.event_id), "notes", [ON_WIRE], *told] for event, told in zip(ENVELOPE.events, events, strict=True)
    ]
    assert more(cast, 0) == [[[[str(ENVELOPE.envelope_id), entries, *note]]]]


async def test_of_the_first_event_that_has_none_of_its_own(cast: Cast) -> None:
    recipient = consumer(cast, "headers")
    await recipient.start_event(ENVELOPE.envelope_id, PLAIN)
    assert more(cast, 3) == [[None, {"envelope_headers": b"of the envelope"}]]


async def test_without_headers_nothing_is_told(cast: Cast) -> None:
    recipient = cast.consumer("c", WANTS["both"])
    recipient.accompany(ENVELOPE.envelope_id, FirstWords(NOTE))
    await recipient.start_event(ENVELOPE.envelope_id, PLAIN)
    await recipient.take_event(ENVELOPE.envelope_id, PLAIN._replace(id=uuid.UUID(int=4).bytes), [BATCH], commit=True)
    assert [call.args[3:] for call in cast.script.calls] == [(NOTE,), ([BATCH.on_wire()], True)]


async def test_an_old_recipient_gets_none(cast: Cast) -> None:
    recipient = cast.consumer("c", OLD)
    recipient.accompany(ENVELOPE.envelope_id, WORDS)
    await recipient.start_event(ENVELOPE.envelope_id, TAGGED)
    assert more(cast, 3) == [[]]


def test_an_ability_is_announced_by_true_alone() -> None:
    for said, wanted in [(True, True), (False, False), (None, False), (1, False), ("yes", False)]:
        metadata: Any = {"xbus": {"batches": 1, "envelopes": 1, "headers": said}}
        assert Abilities.of_metadata(metadata).headers is wanted
    assert not Abilities.of_metadata({"xbus": {"headers": True}}).headers
