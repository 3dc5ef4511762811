"""How many envelopes go together, and what waits: without a back around it."""

import asyncio
import uuid
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.dispatch.parties import (
    BUNDLE_SECONDS,
    FIRST_ENVELOPES,
    MAX_WAITING_BYTES,
    MOST_ENVELOPES,
    MOST_TOGETHER,
    MOST_WAITING,
    BundleParty,
    BundleSize,
    GroupCall,
    WorkerCall,
    positions_of,
)
from xbus.broker.back.log import PagePart, Part, SmallEnvelope
from xbus.broker.back.progress import ConsumerRole
from xbus.broker.back.recipients import BundleStatus, ServedRole
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.envelope import EnvelopeHead


def small(position: int, size: int = 10, key: str | None = None) -> SmallEnvelope:
    envelope = LogEnvelope(uuid.UUID(int=position).bytes, position, (), (), None, EnvelopeHead(key))
    return SmallEnvelope(envelope, [], size)


def filled(*positions: int, size: int = 10) -> BundleParty:
    party = BundleParty([], [])
    party.parts += [PagePart.of([small(position, size)]) for position in positions]
    return party


def positions(parts: Sequence[Part]) -> list[int]:
    return [position for part in parts for position in part.positions]


def chosen(parts: Sequence[Part], wanted: Sequence[int]) -> list[Part]:
    """The parts of some positions, as a call gives them back."""
    indexes = [[index for index, each in enumerate(part.positions) if each in wanted] for part in parts]
    return [part.chosen(found) for part, found in zip(parts, indexes, strict=True) if found]


# -- size ------------------------------------------------------------------------------------------------------------


def test_a_fast_recipient_gets_twice_as_many_each_time_up_to_the_most() -> None:
    size = BundleSize()
    found = []
    for _ in range(7):
        found.append(size.envelopes)
        size.learn(size.envelopes, 0.0, has_failed=False)
    assert found == [FIRST_ENVELOPES, 16, 32, 64, MOST_ENVELOPES, MOST_ENVELOPES, MOST_ENVELOPES]


def test_a_slow_one_gets_as_many_as_it_carries_out_in_time() -> None:
    size = BundleSize()
    size.learn(8, 4 * BUNDLE_SECONDS, has_failed=False)
    assert size.envelopes == 2
    size.learn(2, 10.0, has_failed=False)
    assert size.envelopes == 1


def test_after_a_failure_each_goes_alone_until_one_goes_well() -> None:
    size = BundleSize()
    size.learn(7, 0.0, has_failed=True)
    assert size.envelopes == 1
    size.learn(0, 0.0, has_failed=True)
    assert size.envelopes == 1
    size.learn(1, 0.0, has_failed=False)
    assert size.envelopes == 2


def test_where_none_was_committed_the_next_goes_alone() -> None:
    size = BundleSize()
    size.learn(0, 0.0, has_failed=False)
    assert size.envelopes == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, MOST_ENVELOPES), st.floats(0, 1e6, allow_nan=False, allow_infinity=False), st.booleans()
        )
    )
)
def test_a_size_stays_in_its_bounds(learned: list[tuple[int, float, bool]]) -> None:
    size = BundleSize()
    for committed, seconds, has_failed in learned:
        before = size.envelopes
        size.learn(committed, seconds, has_failed=has_failed)
        assert 1 <= size.envelopes <= min(2 * before, MOST_ENVELOPES)
        if has_failed:
            assert size.envelopes == 1


# -- what waits ------------------------------------------------------------------------------------------------------


def test_what_waits_is_taken_in_order_a_bundle_at_a_time() -> None:
    party = filled(*range(1, 12))
    assert positions(party.take()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert positions(party.take()) == [9, 10, 11]
    assert party.is_idle


def test_one_part_is_cut_where_it_is_larger_than_a_bundle() -> None:
    party = BundleParty([], [])
    party.parts.append(PagePart.of([small(position) for position in range(1, 12)]))
    assert positions(party.take()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert positions(party.take()) == [9, 10, 11]


@pytest.mark.parametrize(
    ("envelopes", "size"), [(2 * MOST_ENVELOPES, 1), (2, MAX_WAITING_BYTES)], ids=["many", "large"]
)
async def test_nobody_adds_to_a_full_party_before_some_was_taken(envelopes: int, size: int) -> None:
    party = filled(*range(1, envelopes + 1), size=size)
    waiting = asyncio.create_task(party.room())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    party.take()
    await waiting


async def test_there_is_room_in_an_empty_one() -> None:
    await BundleParty([], []).room()


@given(st.data())
def test_nothing_is_lost_or_turned_round(data: st.DataObject) -> None:
    """Whatever is added, taken and put back: what was begun is in order, each once, and the bytes add up."""
    party, added, begun = BundleParty([], []), 0, list[int]()
    for _ in range(data.draw(st.integers(0, 40))):
        if data.draw(st.booleans()):
            last = added + data.draw(st.integers(1, 3))
            party.parts.append(PagePart.of([small(position, position) for position in range(added + 1, last + 1)]))
            added = last
        elif party.parts:
            party.size.envelopes = data.draw(st.integers(1, 4))
            taken = positions(parts := party.take())
            keep = data.draw(st.integers(0, len(taken)))
            begun += taken[:keep]
            party.put_back(chosen(parts, taken[keep:]))
        assert party.waiting_bytes == sum(range(len(begun) + 1, added + 1))
        assert party.waiting == added - len(begun)
    assert begun + positions(party.take_all()) == list(range(1, added + 1))


@pytest.mark.parametrize(
    ("consumers", "programs", "most"),
    [(1, 1, MOST_ENVELOPES), (1, 3, 43), (2, 1, MOST_TOGETHER), (2, 2, 43)],
)
@pytest.mark.parametrize("keys_in_hand", [None, ()], ids=["plain", "ordered"])
def test_all_that_is_out_at_once_may_be_in_doubt(
    consumers: int, programs: int, most: int, keys_in_hand: tuple[str, ...] | None
) -> None:
    served = cast("ServedRole", SimpleNamespace(instances=[object()] * programs))
    party = BundleParty([served] * consumers, [cast("ConsumerRole", object())] * consumers)
    party.size.envelopes = MOST_ENVELOPES
    party.parts.append(PagePart.of([small(each, key=str(each)) for each in range(1, MOST_WAITING + 1)]))
    assert party.last_of_next(keys_in_hand) == most
    assert positions(party.take(keys_in_hand)) == [*range(1, most + 1)]


def test_a_bundle_ends_before_the_second_one_of_a_key() -> None:
    party = BundleParty([], [])
    envelopes = [small(position, key=key) for position, key in enumerate(["k", None, "l", "m", "k", None], start=1)]
    party.parts.append(PagePart.of(envelopes))
    assert positions(party.take(keys_in_hand=())) == [1, 2, 3, 4]
    assert positions(party.take(keys_in_hand=())) == [5, 6]


def test_envelopes_of_a_key_in_hand_stay_and_others_overtake_them() -> None:
    party = BundleParty([], [])
    party.parts.append(PagePart.of([small(position, key=key) for position, key in enumerate("klkm", start=1)]))
    assert positions(party.take(keys_in_hand={"k"})) == [2, 4]
    assert positions(party.take(keys_in_hand=())) == [1]
    assert positions(party.take(keys_in_hand=())) == [3]


@given(st.lists(st.integers(0, MAX_WAITING_BYTES)), st.lists(st.integers(0, MAX_WAITING_BYTES // 3)))
def test_there_is_room_for_as_many_as_could_be_added_one_by_one(before: list[int], after: list[int]) -> None:
    party = filled()
    party.parts += [PagePart.of([small(position, size)]) for position, size in enumerate(before)]
    found = party.room_for([small(position, size) for position, size in enumerate(after)])
    for place, size in enumerate(after[:found]):
        assert party.has_room
        party.parts.append(PagePart.of([small(place, size)]))
    assert found == len(after) or not party.has_room


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4), st.randoms())
def test_the_positions_of_parts_are_theirs_and_grow(steps: list[list[int]], random: Random) -> None:
    taken = list(accumulate(step for of_part in steps for step in of_part))
    parts = [PagePart.of([small(taken.pop(0)) for _ in of_part]) for of_part in steps]
    random.shuffle(parts)
    assert list(positions_of(parts)) == sorted(positions(parts))


def test_who_leaves_gets_nothing_of_what_is_brought_apart() -> None:
    one, other = [cast("ServedRole", object()) for _ in range(2)]
    party = BundleParty([one, other], [cast("ConsumerRole", object()) for _ in range(2)])
    party.apart = [(PagePart.of([small(2)]), [one, other]), (PagePart.of([small(3)]), [other])]
    call = GroupCall(party, {}, {}, [PagePart.of([small(1)])], 0.0)
    call.apart = [(PagePart.of([small(1)]), [other, one])]
    party.out.add(call)
    assert sorted(each.position for each in party.leave(one)) == [1, 2]
    assert [recipients for _, recipients in (*party.apart, *call.apart)] == [[other]] * 3


@pytest.mark.parametrize(("number", "size"), [(MOST_WAITING, 1), (2, MAX_WAITING_BYTES)], ids=["many", "large"])
def test_what_is_brought_apart_takes_room(number: int, size: int) -> None:
    party = BundleParty([], [])
    party.apart = [(PagePart.of([small(position, size)]), []) for position in range(1, number)]
    assert party.has_room
    party.apart.append((PagePart.of([small(number, size)]), []))
    assert not party.has_room


# -- workers ---------------------------------------------------------------------------------------------------------


def at_workers(*numbers: int) -> tuple[BundleParty, list[WorkerCall]]:
    """A party with two takers, of which workers have calls of so many envelopes each."""
    served = cast("ServedRole", SimpleNamespace(instances=[1, 2]))
    party = BundleParty([served], [cast("ConsumerRole", object())])
    party.by_workers = True
    party.worker_size.envelopes = numbers[0]
    for position in range(1, sum(numbers) + 1):
        party.add(PagePart.of([small(position)]))
    found = [party.next_to_workers() for _ in numbers]
    assert party.next_to_workers() is None
    return party, [call for call in found if call is not None]


def test_what_workers_made_waits_in_the_order_of_the_log() -> None:
    party, (first, second) = at_workers(2, 2)
    second.made = list(second.bundle)
    party.take_made()
    assert (positions(party.parts), party.waiting) == ([], 4)
    first.made = [first.bundle[0], BundleStatus.NOT_BEGUN]
    party.take_made()
    assert (positions(party.parts), party.waiting) == ([1], 4)
    first.made[1] = first.bundle[1]
    party.take_made()
    assert (positions(party.parts), party.at_workers) == ([1, 2, 3, 4], [])


def test_what_goes_alone_is_taken_without_others_in_its_turn() -> None:
    party, (call,) = at_workers(4)
    call.made = [call.bundle[0], BundleStatus.GOES_ALONE, *call.bundle[2:]]
    party.take_made()
    party.size.envelopes = MOST_ENVELOPES
    taken = [party.take(set() if is_ordered else None) for is_ordered in (False, True, False)]
    assert [[(each.positions, each.goes_alone) for each in parts] for parts in taken] == [
        [([1], False)],
        [([2], True)],
        [([3], False)],
    ]


def test_workers_rest_while_much_of_what_they_made_waits() -> None:
    """They may make large envelopes of small ones."""
    party, (call,) = at_workers(1)
    call.made = [small(1, MAX_WAITING_BYTES + 1)]
    party.take_made()
    party.add(PagePart.of([small(2)]))
    assert party.next_to_workers() is None
    party.take()
    assert party.next_to_workers() is not None


def test_all_that_waits_is_left_as_it_was_sent_or_made() -> None:
    party, (first, _) = at_workers(2, 1)
    party.add(PagePart.of([small(4)]))
    first.made[0] = first.bundle[0]
    party.take_made()
    assert (positions(party.parts), positions(party.unready())) == ([1], [2, 3, 4])
    assert positions(party.take_all()) == [1, 2, 3, 4]
    assert party.is_idle
