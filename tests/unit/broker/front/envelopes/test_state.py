"""What an emitter does with an envelope while it is open, and with one that is over: repeats, gaps, limits, others'."""

import asyncio
import uuid

import pytest

from tests.support.groups import LIMITS
from tests.unit.broker.front.conftest import Desk, Rings
from xbus.broker.front.front import Front
from xbus.broker.journal.log.segments import content_hash
from xbus.broker.journal.writes import SealReceipt
from xbus.errors import Refused
from xbus.rpc.codec import pack_items
from xbus.rpc.deferred import awaited
from xbus.states import EnvelopeState


async def refused(answer: object, code: str) -> None:
    """The call is refused with this code."""
    with pytest.raises(Refused) as caught:
        await answer  # type: ignore[misc]
    assert caught.value.code == code
    assert caught.value.next_step


async def sent(desk: Desk, *items: bytes) -> tuple[uuid.UUID, uuid.UUID]:
    """An open envelope with an open event that holds items."""
    envelope_id = await desk.start_envelope()
    event_id = await desk.start_event(envelope_id)
    if items:
        await desk.append(envelope_id, event_id, 0, items)
    return envelope_id, event_id


async def sealed(desk: Desk, *items: bytes) -> tuple[uuid.UUID, uuid.UUID, SealReceipt]:
    """A sealed envelope with one event."""
    envelope_id, event_id = await sent(desk, *items)
    await desk.end_event(envelope_id, event_id, len(items))
    return envelope_id, event_id, await desk.seal(envelope_id, 1)


# -- the way it should go --------------------------------------------------------------------------------------------


async def test_an_envelope_comes_in_and_is_sealed(north: Desk, rings: Rings) -> None:
    envelope_id, event_id = await sent(north, b"a", b"b")
    assert await north.append(envelope_id, event_id, 2, [b"c"]) == 3
    assert await north.append(envelope_id, event_id, None, [b"d"]) == 4
    assert await north.end_event(envelope_id, event_id, 4) == 4
    assert rings.count == 0
    receipt = await north.seal(envelope_id, 1)
    assert (receipt.envelope_id, receipt.position, receipt.events, receipt.items) == (envelope_id, 1, 1, 4)
    assert rings.count == 1


async def test_an_answer_says_what_is_durable(north: Desk) -> None:
    envelope_id, event_id = await sent(north)
    assert await north.append(envelope_id, event_id, 0, [b"a", b"b"]) == 2
    stored = await north.stored(envelope_id)
    assert stored is not None
    assert stored.events[0].items == 2


async def test_calls_may_be_sent_without_waiting_for_answers(north: Desk) -> None:
    envelope_id, event_id = await sent(north)
    answers = [north.append_soon(envelope_id, event_id, index, [b"x"]) for index in range(50)]
    assert [await answer for answer in answers] == list(range(1, 51))


async def test_old_calls_are_taken_in_order_of_arrival(north: Desk) -> None:
    envelope_id, event_id = await sent(north)
    answers = [north.append_soon(envelope_id, event_id, None, [b"x"]) for _ in range(50)]
    assert [await answer for answer in answers] == list(range(1, 51))


async def test_events_may_be_sent_side_by_side(north: Desk) -> None:
    envelope_id = await north.start_envelope()
    first, second = await north.start_event(envelope_id), await north.start_event(envelope_id)
    await north.append(envelope_id, first, 0, [b"a"])
    await north.append(envelope_id, second, 0, [b"b", b"c"])
    await north.append(envelope_id, first, 1, [b"d"])
    for event_id in (second, first):
        await north.end_event(envelope_id, event_id, 2)
    assert (await north.seal(envelope_id, 2)).items == 4


async def test_an_envelope_may_be_empty(north: Desk) -> None:
    envelope_id = await north.start_envelope()
    receipt = await north.seal(envelope_id, 0)
    assert (receipt.events, receipt.items, receipt.hash) == (0, 0, content_hash([]))


async def test_a_cancelled_envelope_is_told_to_who_may_hold_it_open(north: Desk, rings: Rings) -> None:
    envelope_id, _ = await sent(north, b"a")
    assert await north.cancel(envelope_id)
    stored = await north.stored(envelope_id)
    assert stored is not None
    assert stored.state is EnvelopeState.CANCELLED
    assert rings.count == 1


# -- repeats ---------------------------------------------------------------------------------------------------------


async def test_a_repeat_while_it_is_open_gets_its_first_answer(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a", b"b")
    assert await north.start_envelope(envelope_id) == envelope_id
    assert await north.start_event(envelope_id, event_id) == event_id
    assert await north.append(envelope_id, event_id, 0, [b"a", b"b"]) == 2
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2
    assert await north.append(envelope_id, event_id, 0, [b"a"]) == 1
    await north.append(envelope_id, event_id, 2, [b"c"])
    assert await north.end_event(envelope_id, event_id, 3) == await north.end_event(envelope_id, event_id, 3) == 3
    assert (await north.seal(envelope_id, 1)).items == 3


async def test_a_repeat_after_the_seal_gets_its_first_answer(north: Desk) -> None:
    envelope_id, event_id, receipt = await sealed(north, b"a", b"b")
    assert await north.start_envelope(envelope_id) == envelope_id
    assert await north.start_event(envelope_id, event_id) == event_id
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2
    assert await north.end_event(envelope_id, event_id, 2) == 2
    assert await north.seal(envelope_id, 1) == receipt


async def test_a_repeat_may_lie_in_the_midst_of_what_was_gathered(north: Desk) -> None:
    """What came in many calls is one segment; each call may come again."""
    envelope_id, event_id = await sent(north)
    answers = [north.append_soon(envelope_id, event_id, 3 * call, [b"%d" % call] * 3) for call in range(10)]
    for answer in answers:
        await answer
    for call in range(10):
        assert await north.append(envelope_id, event_id, 3 * call, [b"%d" % call] * 3) == 3 * call + 3
    await refused(north.append(envelope_id, event_id, 12, [b"4", b"4", b"5"]), "content_differs")


async def test_a_repeated_cancel_and_a_repeated_seal(north: Desk) -> None:
    envelope_id, _ = await sent(north, b"a")
    assert all(await asyncio.gather(north.cancel(envelope_id), north.cancel(envelope_id)))
    assert await north.cancel(envelope_id)
    other_id, event_id = await sent(north, b"a")
    await north.end_event(other_id, event_id)
    first, second = await asyncio.gather(north.seal(other_id), north.seal(other_id))
    assert first == second == await north.seal(other_id)


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_other_content_is_no_repeat(north: Desk, is_sealed: bool) -> None:
    envelope_id, event_id = await sent(north, b"a", b"b")
    if is_sealed:
        await north.end_event(envelope_id, event_id)
        await north.seal(envelope_id)
    await refused(north.append(envelope_id, event_id, 0, [b"a", b"x"]), "content_differs")
    await refused(north.append(envelope_id, event_id, 1, [b"x"]), "content_differs")
    await refused(north.start_event(envelope_id, event_id, "flights"), "content_differs")


async def test_a_repeat_that_is_partly_new_is_none(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a", b"b")
    await refused(north.append(envelope_id, event_id, 1, [b"b", b"c"]), "content_differs")


async def test_other_counts_are_no_repeat(north: Desk) -> None:
    envelope_id, event_id, _ = await sealed(north, b"a")
    await refused(north.end_event(envelope_id, event_id, 2), "content_differs")
    await refused(north.seal(envelope_id, 2), "content_differs")


# -- gaps and counts -------------------------------------------------------------------------------------------------


async def test_a_gap_is_refused_and_changes_nothing(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await refused(north.append(envelope_id, event_id, 2, [b"c"]), "index_gap")
    assert await north.append(envelope_id, event_id, 1, [b"b"]) == 2


async def test_an_end_that_counts_otherwise_is_refused(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await refused(north.end_event(envelope_id, event_id, 2), "count_mismatch")
    assert await north.end_event(envelope_id, event_id, 1) == 1
    await refused(north.end_event(envelope_id, event_id, 2), "count_mismatch")
    await refused(north.seal(envelope_id, 2), "count_mismatch")
    assert (await north.seal(envelope_id, 1)).items == 1


# -- what may not be done --------------------------------------------------------------------------------------------


async def test_an_open_event_is_not_sealed(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await refused(north.seal(envelope_id), "event_open")
    await north.end_event(envelope_id, event_id)
    assert (await north.seal(envelope_id)).items == 1


async def test_an_ended_event_takes_nothing(north: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await north.end_event(envelope_id, event_id)
    await refused(north.append(envelope_id, event_id, 1, [b"b"]), "event_closed")
    await refused(north.append(envelope_id, event_id, None, [b"b"]), "event_closed")


@pytest.mark.parametrize("how", ["sealed", "being sealed", "cancelled", "being cancelled"])
async def test_an_envelope_that_is_over_takes_nothing(north: Desk, how: str) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await north.end_event(envelope_id, event_id)
    closing = asyncio.ensure_future(north.seal(envelope_id) if "sealed" in how else north.cancel(envelope_id))
    if "being" in how:
        await asyncio.sleep(0)
    else:
        await closing
    await refused(north.start_event(envelope_id), "envelope_closed")
    if "sealed" in how:
        await refused(north.cancel(envelope_id), "envelope_closed")
    else:
        await refused(north.seal(envelope_id), "envelope_closed")
    await closing


async def test_a_sealed_envelope_takes_no_items(north: Desk) -> None:
    envelope_id, event_id, _ = await sealed(north, b"a")
    await refused(north.append(envelope_id, event_id, 1, [b"b"]), "envelope_closed")
    await refused(north.append(envelope_id, event_id, None, [b"b"]), "envelope_closed")
    await refused(north.append(envelope_id, uuid.uuid4(), 0, [b"b"]), "event_unknown")


async def test_what_nobody_knows(north: Desk) -> None:
    envelope_id, _ = await sent(north)
    nobody = uuid.uuid4()
    await refused(north.start_event(nobody), "envelope_unknown")
    await refused(north.append(nobody, nobody, 0, [b"a"]), "envelope_unknown")
    await refused(north.end_event(nobody, nobody), "envelope_unknown")
    await refused(north.seal(nobody), "envelope_unknown")
    await refused(north.cancel(nobody), "envelope_unknown")
    await refused(north.append(envelope_id, nobody, 0, [b"a"]), "event_unknown")
    await refused(north.end_event(envelope_id, nobody), "event_unknown")


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_anothers_envelope_is_as_good_as_unknown(north: Desk, south: Desk, is_sealed: bool) -> None:
    envelope_id, event_id = await sent(north, b"a")
    await north.end_event(envelope_id, event_id)
    if is_sealed:
        await north.seal(envelope_id)
    await refused(south.start_envelope(envelope_id), "envelope_unknown")
    await refused(south.start_event(envelope_id), "envelope_unknown")
    await refused(south.append(envelope_id, event_id, 0, [b"a"]), "envelope_unknown")
    await refused(south.end_event(envelope_id, event_id), "envelope_unknown")
    await refused(south.cancel(envelope_id), "envelope_unknown")
    await refused(south.seal(envelope_id), "envelope_unknown")
    assert (await north.seal(envelope_id)).items == 1


async def test_types_that_an_emitter_may_not_send(north: Desk, south: Desk) -> None:
    await refused(north.start_event(await north.start_envelope(), type_name="nonsense"), "unknown_type")
    await refused(north.start_event(await north.start_envelope(), type_name="secrets"), "type_not_allowed")
    await refused(south.start_event(await south.start_envelope(), type_name="flights"), "type_not_allowed")


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_limits_of_items_and_batches(north: Desk) -> None:
    envelope_id, event_id = await sent(north)
    await refused(_append(north, envelope_id, event_id, [bytes(LIMITS.item_bytes + 1)]), "item_too_large")
    await refused(_append(north, envelope_id, event_id, [bytes(900)] * 6), "batch_too_large")
    assert await north.append(envelope_id, event_id, 0, [bytes(LIMITS.item_bytes)]) == 1


async def _append(desk: Desk, envelope_id: uuid.UUID, event_id: uuid.UUID, items: list[bytes]) -> int:
    return await desk.append(envelope_id, event_id, 0, items)


@pytest.mark.parametrize(
    ("items", "data"),
    [
        (1, b""),
        (0, b""),
        (2, pack_items([b"a"])),
        (1, pack_items([b"a", b"b"])),
        (1, b"\xa1a"),
        (1, b"\xc4\x05a"),
        (-1, b""),
    ],
)
async def test_data_that_is_no_items(north: Desk, items: int, data: bytes) -> None:
    envelope_id, event_id = await sent(north)

    async def append() -> None:
        await awaited(north.front.append(north.emitter_id, envelope_id, event_id, 0, items, data))

    await refused(append(), "bad_items")


async def test_limits_of_an_envelope_leave_it_as_it_was(north: Desk) -> None:
    envelope_id, event_id = await sent(north)
    await north.append(envelope_id, event_id, 0, [b"x"] * (LIMITS.envelope_items - 1))
    await refused(north.append(envelope_id, event_id, None, [b"x"] * 2), "envelope_too_large")
    assert await north.append(envelope_id, event_id, None, [b"x"]) == LIMITS.envelope_items
    await north.end_event(envelope_id, event_id, LIMITS.envelope_items)
    assert (await north.seal(envelope_id)).items == LIMITS.envelope_items


async def test_the_bytes_of_an_envelope_are_limited_over_all_its_events(north: Desk) -> None:
    envelope_id = await north.start_envelope()
    for _ in range(4):
        await north.append(envelope_id, await north.start_event(envelope_id), 0, [bytes(990)] * 5)
    await refused(
        north.append(envelope_id, await north.start_event(envelope_id), 0, [bytes(990)] * 5), "envelope_too_large"
    )


@pytest.mark.parametrize("estimate", [-1, 2**64 - 1])
async def test_any_estimate_will_do(north: Desk, estimate: int) -> None:
    envelope_id = await north.start_envelope()
    event_id = await north.start_event(envelope_id, estimate=estimate)
    await north.end_event(envelope_id, event_id, 0)
    assert (await north.seal(envelope_id)).events == 1


# -- who is in the midst of sending ----------------------------------------------------------------------------------


async def test_an_open_envelope_is_noticed_until_it_is_over(front: Front, north: Desk, south: Desk) -> None:
    envelope_id, event_id = await sent(north, b"a")
    assert front.has_open_envelope(north.emitter_id)
    assert not front.has_open_envelope(south.emitter_id)
    await north.end_event(envelope_id, event_id)
    await north.seal(envelope_id)
    assert not front.has_open_envelope(north.emitter_id)
