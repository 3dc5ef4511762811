"""Operators cancel open envelopes in the journal, beside the writes of a broker; on every database."""

import uuid

import pytest

from tests.support.groups import a_front
from tests.support.journal import NOW, Scribe
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import read_envelope
from xbus.broker.journal.operations.envelopes.details import cancel_open
from xbus.broker.journal.writes import Cancel
from xbus.errors import EnvelopeCancelled, Refused
from xbus.rpc.deferred import awaited
from xbus.states import EnvelopeState

DECISION = (NOW, "ada: its emitter died")


async def test_a_cancelled_envelope_is_never_sealed(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [b"a"])
    await journal.run(cancel_open, envelope_id, *DECISION)
    # What the front had not heard of yet is written, and changes nothing.
    await scribe.append(envelope_id, event_id, 1, [b"b"])
    await scribe.end_event(envelope_id, event_id, 2)
    with pytest.raises(EnvelopeCancelled, match="by ada: its emitter died"):
        await scribe.seal(envelope_id, 1, 2)
    with pytest.raises(EnvelopeCancelled):
        await journal.write(Cancel(envelope_id, NOW, "its emitter cancels it, too"))
    stored = await journal.read(read_envelope, envelope_id)
    assert stored is not None
    assert (stored.state, stored.reason) == (EnvelopeState.CANCELLED, "by ada: its emitter died")


async def test_others_in_the_group_of_a_cancelled_one_are_sealed(journal: Journal, scribe: Scribe) -> None:
    cancelled, started = scribe.start_envelope()
    await started
    await journal.run(cancel_open, cancelled, *DECISION)
    other, _ = scribe.start_envelope()
    seals = [scribe.seal(cancelled, 0, 0), scribe.seal(other, 0, 0)]
    with pytest.raises(EnvelopeCancelled):
        await seals[0]
    assert (await seals[1]).position == 1


async def test_a_seal_of_known_content_is_told_why_it_was_cancelled_beside_others(
    journal: Journal, scribe: Scribe
) -> None:
    emitter_id = scribe.emitter_id()
    async with a_front(journal) as front:

        async def begun() -> tuple[uuid.UUID, uuid.UUID]:
            envelope_id, event_id = uuid.uuid4(), uuid.uuid4()
            front.start_envelope(emitter_id, envelope_id, is_new=True)
            front.start_event(emitter_id, envelope_id, event_id, "notes", 0)
            await awaited(front.append_item(emitter_id, envelope_id, event_id, b"a"))
            return envelope_id, event_id

        cancelled, other, unended = [await begun() for _ in range(3)]
        for envelope_id, event_id in (cancelled, other):
            await awaited(front.end_event(emitter_id, envelope_id, event_id, None))
        await journal.run(cancel_open, cancelled[0], *DECISION)
        # Both go in one transaction, which does not go through SQLAlchemy.
        sealed = front.end_envelope(emitter_id, cancelled[0], None)
        ended = front.end_event(emitter_id, *unended, None)
        with pytest.raises(Refused, match="by ada: its emitter died") as refusal:
            await awaited(sealed)
        assert refusal.value.code == "envelope_closed"
        assert (await awaited(ended)).items == 1
        assert (await awaited(front.end_envelope(emitter_id, other[0], None))).position == 1


async def test_what_is_not_open_is_refused(journal: Journal, scribe: Scribe) -> None:
    receipt = await scribe.put([b"a"])
    cancelled, started = scribe.start_envelope()
    await started
    await journal.run(cancel_open, cancelled, *DECISION)
    for envelope_id, code, cause in (
        (receipt.envelope_id, "envelope_sealed", "is sealed at position 1"),
        (cancelled, "envelope_closed", "by ada: its emitter died"),
        (uuid.uuid4(), "envelope_unknown", "there is no envelope"),
    ):
        with pytest.raises(Refused, match=cause) as refusal:
            await journal.run(cancel_open, envelope_id, *DECISION)
        assert refusal.value.code == code
    stored = await journal.read(read_envelope, receipt.envelope_id)
    assert stored is not None
    assert stored.receipt == receipt
