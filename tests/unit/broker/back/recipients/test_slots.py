"""Slots: all or nothing, in order of arrival, never more than there are."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.back.recipients.slots import Absent, AnyOf, Slots, This, Want


async def waiting(slots: Slots[int], *wants: Want) -> "asyncio.Task[list[int]]":
    """Somebody who has asked, and may have been served at once."""
    task = asyncio.ensure_future(slots.take(wants))
    await settle()
    return task


async def settle() -> None:
    """Let all go on that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_free_role_is_taken_at_once() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    assert await slots.take([This(1)]) == [1]
    assert not slots.is_free(1)


async def test_capacity_is_not_exceeded() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 2)
    await slots.take([This(1)])
    await slots.take([This(1)])
    third = await waiting(slots, This(1))
    assert not third.done()
    slots.free(1)
    assert await third == [1]


async def test_all_or_nothing() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    slots.add(2, "audit", 1)
    await slots.take([This(2)])
    both = await waiting(slots, This(1), This(2))
    assert not both.done()
    assert slots.is_free(1)
    slots.free(2)
    assert await both == [1, 2]


async def test_first_come_first_served() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    first, second = await waiting(slots, This(1)), await waiting(slots, This(1))
    slots.free(1)
    await settle()
    assert [first.done(), second.done()] == [True, False]
    slots.free(1)
    assert await second == [1]


async def test_who_waits_for_two_is_not_starved_by_those_who_want_one() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    slots.add(2, "audit", 1)
    await slots.take([This(2)])
    both = await waiting(slots, This(1), This(2))
    late = await waiting(slots, This(1))
    assert not late.done()
    slots.free(2)
    assert await both == [1, 2]
    slots.free(1)
    assert await late == [1]


async def test_who_wants_something_else_does_not_wait() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    slots.add(2, "audit", 1)
    await slots.take([This(1)])
    await waiting(slots, This(1))
    assert await slots.take([This(2)]) == [2]


async def test_work_goes_to_the_one_that_was_idle_longest() -> None:
    slots: Slots[int] = Slots()
    for role_id in (1, 2, 3):
        slots.add(role_id, "names", 2)
    taken = [(await slots.take([AnyOf("names")]))[0] for _ in range(6)]
    assert taken == [1, 2, 3, 1, 2, 3]


async def test_two_of_one_service_are_two_slots() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "names", 1)
    slots.add(2, "names", 1)
    assert sorted(await slots.take([AnyOf("names"), AnyOf("names")])) == [1, 2]


@pytest.mark.parametrize("want", [This(7), AnyOf("nobody")])
async def test_who_wants_somebody_absent_is_told(want: Want) -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    with pytest.raises(Absent) as caught:
        await slots.take([This(1), want])
    assert caught.value.want == want
    assert slots.is_free(1)


async def test_who_waits_for_one_that_leaves_is_told() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    waiter = await waiting(slots, This(1))
    slots.remove(1)
    with pytest.raises(Absent):
        await waiter


async def test_who_waits_for_a_service_goes_on_waiting_while_another_is_there() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "names", 1)
    slots.add(2, "names", 1)
    await slots.take([AnyOf("names"), AnyOf("names")])
    waiter = await waiting(slots, AnyOf("names"))
    slots.remove(1)
    await settle()
    assert not waiter.done()
    slots.free(2)
    assert await waiter == [2]


async def test_who_gives_up_leaves_its_place_to_the_next() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    slots.add(2, "audit", 1)
    await slots.take([This(2)])
    impatient = await waiting(slots, This(1), This(2))
    patient = await waiting(slots, This(1))
    impatient.cancel()
    assert await patient == [1]


async def test_who_gives_up_when_just_served_gives_back() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    waiter = await waiting(slots, This(1))
    slots.free(1)  # served, and not yet told
    waiter.cancel()
    await settle()
    assert waiter.cancelled()
    assert slots.is_free(1)


async def test_what_a_recipient_that_has_gone_gives_back_is_nobodys() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    slots.remove(1)
    slots.free(1)
    assert not slots.is_present(This(1))


async def test_waiting_for_anyone_to_be_free() -> None:
    slots: Slots[int] = Slots()
    for role_id in (1, 2):
        slots.add(role_id, "store", 1)
        await slots.take([This(role_id)])
    waiter = asyncio.ensure_future(slots.any_free([1, 2]))
    await settle()
    assert not waiter.done()
    slots.free(2)
    await waiter


async def test_waiting_for_anyone_ends_when_one_leaves() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    waiter = asyncio.ensure_future(slots.any_free([1]))
    await settle()
    slots.remove(1)
    await waiter


SERVICES = {1: "names", 2: "names", 3: "store", 4: "audit"}
CAPACITIES = {1: 1, 2: 2, 3: 1, 4: 3}
WANTS = st.one_of(
    st.lists(st.sampled_from([1, 2, 3, 4]).map(This), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["names", "store", "audit"]).map(AnyOf), min_size=1, max_size=3, unique=True),
)
"""As runs want them: all consumers of an envelope, or a worker of each service of an event."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), WANTS),
        st.tuples(st.just("give back"), st.integers(0, 20)),
        st.tuples(st.just("give up"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_never_more_than_there_are_and_nobody_waits_for_nothing(steps: list[tuple[str, Sequence[Want] | int]]) -> None:
    asyncio.run(_many_steps(steps))


async def _many_steps(steps: list[tuple[str, Sequence[Want] | int]]) -> None:
    slots: Slots[int] = Slots()
    for role_id, service in SERVICES.items():
        slots.add(role_id, service, CAPACITIES[role_id])
    asked: list[asyncio.Task[list[int]]] = []
    given_back: set[int] = set()
    for step, what in steps:
        if step == "take":
            assert not isinstance(what, int)
            asked.append(await waiting(slots, *what))
        elif asked:
            assert isinstance(what, int)
            place = what % len(asked)
            if step == "give up":
                asked[place].cancel()
            elif _holds(asked[place]) and place not in given_back:
                given_back.add(place)
                for role_id in asked[place].result():
                    slots.free(role_id)
        await settle()
        holding = Counter(
            role_id
            for place, task in enumerate(asked)
            if _holds(task) and place not in given_back
            for role_id in task.result()
        )
        assert all(holding[role_id] <= CAPACITIES[role_id] for role_id in holding)
        assert [slots.is_free(role_id) for role_id in SERVICES] == [
            holding[role_id] < CAPACITIES[role_id] for role_id in SERVICES
        ]
    # When all is given back, everyone who can ever be served is served in turn.
    while open_tasks := [place for place, task in enumerate(asked) if _holds(task) and place not in given_back]:
        for place in open_tasks:
            given_back.add(place)
            for role_id in asked[place].result():
                slots.free(role_id)
        await settle()
    assert all(task.done() for task in asked)


def _holds(task: "asyncio.Task[list[int]]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def test_a_paused_role_is_as_absent_and_keeps_what_is_taken() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    asked = await waiting(slots, This(1))
    slots.pause(1)
    await settle()
    with pytest.raises(Absent):
        await asked
    assert not slots.is_present(AnyOf("store"))
    slots.resume(1)
    again = await waiting(slots, This(1))
    assert not again.done(), "the slot that was taken before the pause is taken still"
    slots.free(1)
    assert await again == [1]


async def test_work_that_has_begun_with_a_paused_role_goes_on() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "names", 1, is_paused=True)
    with pytest.raises(Absent):
        await slots.take([AnyOf("names")])
    assert await slots.take([AnyOf("names", engaged=[1])]) == [1]


async def test_work_follows_work_where_the_slots_are_until_somebody_waits_for_any() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    assert slots.may_go_on(1)
    asked = await waiting(slots, This(1))
    assert not slots.may_go_on(1)
    slots.free(1)
    assert await asked == [1]
    looking = asyncio.create_task(slots.any_free([1]))
    await settle()
    assert not slots.may_go_on(1)
    slots.free(1)
    await looking


async def test_no_work_follows_work_at_one_that_is_paused_limited_or_gone() -> None:
    slots: Slots[int] = Slots()
    slots.add(1, "store", 1)
    await slots.take([This(1)])
    slots.pause(1)
    assert not slots.may_go_on(1)
    slots.resume(1)
    assert slots.may_go_on(1)
    slots.limit(1, 0)
    assert not slots.may_go_on(1)
    slots.remove(1)
    assert not slots.may_go_on(1)
