"""When the journal fails: what an emitter is told then counts, and it may go on from what is durable."""

import asyncio
import uuid
from datetime import timedelta

import pytest

from tests.support.faults import Faults
from tests.support.journal import NOW
from tests.support.waiting import DEADLINE_SECONDS
from tests.unit.broker.front.conftest import Desk
from tests.unit.broker.front.envelopes.test_keyed import forget_all
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.broker.front.front import Front
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations import losses
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


# -- a journal that went back ------------------------------------------------------------------------------------------


async def begin(north: Desk) -> tuple[uuid.UUID, uuid.UUID]:
    """Begin an envelope as an old client does, which counts nothing."""
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id)
    await north.append(envelope_id, event_id, None, [b"a"])
    return envelope_id, event_id


async def go_back(front: Front, journal: Journal) -> None:
    """1. The journal loses items that were acknowledged. 2. The broker notices, and ends. 3. It starts again."""
    await journal.run(losses.add, losses.Loss(NOW, "broker", commits=5, known=79, found=66))
    forget_all(front)


async def test_an_old_client_does_not_end_what_lost_items_as_if_it_was_whole(
    front: Front, north: Desk, journal: Journal
) -> None:
    envelope_id, event_id = await begin(north)
    await go_back(front, journal)
    for call in (
        lambda: north.append(envelope_id, event_id, None, [b"b"]),
        lambda: north.end_event(envelope_id, event_id),
        lambda: north.seal(envelope_id),
    ):
        with pytest.raises(Refused) as caught:
            await call()
        assert caught.value.code == "envelope_broken"
    assert await north.cancel(envelope_id)


async def test_who_counts_goes_on_behind_what_a_journal_lost(front: Front, north: Desk, journal: Journal) -> None:
    envelope_id, event_id = await begin(north)
    await go_back(front, journal)
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2
    assert await north.end_event(envelope_id, event_id, 2) == 2
    assert (await north.seal(envelope_id, 1)).items == 2


async def test_what_an_old_client_begins_behind_a_loss_is_whole(front: Front, north: Desk, journal: Journal) -> None:
    await journal.run(losses.add, losses.Loss(NOW - timedelta(seconds=1), "broker", commits=5, known=79, found=66))
    envelope_id, event_id = await begin(north)
    forget_all(front)
    assert await north.end_event(envelope_id, event_id) == 1
    assert (await north.seal(envelope_id)).items == 1
