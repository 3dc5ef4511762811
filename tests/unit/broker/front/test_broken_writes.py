"""When the journal fails: what an emitter is told then counts, and it may go on from what is durable."""

import asyncio
import uuid

import pytest

from tests.support.faults import Faults
from tests.support.waiting import DEADLINE_SECONDS
from tests.unit.broker.front.conftest import Desk
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.front.front import Front
from xbus.errors import EventIdTaken, JournalUnavailable, Refused
from xbus.rpc.codec import pack_items


async def test_items_that_were_not_kept_can_be_sent_again(north: Desk, faults: Faults) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    with faults.before_commit():
        with pytest.raises(JournalUnavailable):
            await north.append(envelope_id, event_id, 1, [b"b"])
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2
    assert await north.end_event(envelope_id, event_id, 2) == 2
    assert (await north.seal(envelope_id, 1)).items == 2


async def test_calls_behind_a_lost_one_are_not_kept_either(north: Desk, faults: Faults) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    with faults.before_commit() as happened:
        answers = [north.append_soon(envelope_id, event_id, 1, [b"b"])]
        await asyncio.sleep(0)  # the writer hands over when a turn of the loop is done
        assert happened.wait(DEADLINE_SECONDS)
        answers += [north.append_soon(envelope_id, event_id, index, [b"c"]) for index in (2, 3)]
        outcomes = [await _outcome(answer) for answer in answers]
    assert [type(outcome) for outcome in outcomes] == [JournalUnavailable] * 3
    with pytest.raises(Refused) as caught:
        await north.append(envelope_id, event_id, 2, [b"c"])
    assert caught.value.code == "index_gap"
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2


async def _outcome(answer: object) -> object:
    try:
        return await answer  # type: ignore[misc]
    except JournalUnavailable as error:
        return error


async def test_a_seal_that_was_not_kept_can_be_repeated(north: Desk, faults: Faults) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, 0, [b"a"])
    await north.end_event(envelope_id, event_id, 1)
    with faults.before_commit():
        with pytest.raises(JournalUnavailable):
            await north.seal(envelope_id, 1)
    assert (await north.seal(envelope_id, 1)).position == 1


async def test_a_seal_whose_confirmation_got_lost_gives_its_receipt(north: Desk, faults: Faults) -> None:
    envelope_id = await north.start_envelope()
    with faults.after_commit():
        receipt = await north.seal(envelope_id, 0)
    assert receipt.position == 1
    assert await north.seal(envelope_id, 0) == receipt


async def test_an_envelope_that_was_not_kept_is_unknown(front: Front, north: Desk, faults: Faults) -> None:
    envelope_id = uuid.uuid4()
    with faults.before_commit(skipped=1):  # the first is that of asking whether it is known
        await north.start_envelope(envelope_id)
        event_id = await north.start_event(envelope_id)
        with pytest.raises(JournalUnavailable):
            await north.append(envelope_id, event_id, 0, [b"a"])
    with pytest.raises(Refused) as caught:
        await north.append(envelope_id, event_id, 0, [b"a"])
    assert caught.value.code == "envelope_unknown"
    assert not front.has_open_envelope(north.emitter_id)


async def test_a_failed_write_leaves_nothing_behind(front: Front, north: Desk, faults: Faults) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    with faults.before_commit() as happened:
        first = north.append_soon(envelope_id, event_id, 0, [b"a"])
        await asyncio.sleep(0)  # the writer hands over when a turn of the loop is done
        assert happened.wait(DEADLINE_SECONDS)
        second = north.append_soon(envelope_id, event_id, 1, [b"b"])
        await asyncio.gather(_outcome(first), _outcome(second))
    await asyncio.sleep(0)
    assert front._envelopes._unsettled == {}
    assert front._envelopes._open == {}


async def test_an_event_with_the_id_of_another_is_told_so_at_what_comes_behind_it(north: Desk) -> None:
    event_id = await north.start_event(await north.start_envelope())
    envelope_id = await north.start_envelope()
    await north.start_event(envelope_id, event_id)
    with pytest.raises(EventIdTaken):
        await north.append(envelope_id, event_id, 0, [b"a"])
    assert await north.cancel(envelope_id)

    envelope_id = uuid.uuid4()
    for _ in range(2):
        with pytest.raises(EventIdTaken):
            await north.put(envelope_id, NewEvent(event_id, "notes", 1, pack_items([b"a"])))


async def test_the_journal_away_while_an_envelope_is_looked_up(north: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise JournalUnavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(north.journal, "read", away)
        with pytest.raises(JournalUnavailable):
            await north.start_envelope()
    await north.start_envelope()
