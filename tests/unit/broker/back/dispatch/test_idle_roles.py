"""Roles that are owed nothing, or not yet settled: their cursors follow the lane, and never pass what is owed."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker.back.dispatch.test_lanes import Bench, bench, until
from xbus.broker.back.progress.consumer_role import Lane
from xbus.broker.back.recipients.served import ServedRole
from xbus.states import ConsumerState


def settle(made: Bench, recipient: ServedRole, *positions: int) -> None:
    made.ledger.settle(recipient.role.id, *positions)


async def pause() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_the_cursor_of_one_that_is_owed_nothing_follows() -> None:
    async with bench(head=5) as made:
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.cursor(made.stranger).position == 5)
        await made.log.grow(9)
        await until(lambda: made.cursor(made.stranger).position == 9)


async def test_a_cursor_stands_before_what_is_owed_and_not_settled() -> None:
    async with bench(head=5) as made:
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4, 5])
        await pause()
        assert made.cursor(made.store).position == 0
        settle(made, made.store, 1, 3)
        await pause()
        assert made.cursor(made.store).position == 1
        settle(made, made.store, 2, 4, 5)
        assert made.cursor(made.store).position == 5


async def test_the_one_under_way_is_not_passed_as_its_role_leaves() -> None:
    async with bench(head=3) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.noted.of("store") == [1])
        made.leave(made.store)
        made.leave(made.stranger)
        assert made.cursor(made.store).position == made.cursor(made.stranger).position == 0
        made.noted.may_go_on.set()
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store")[-1] == 3)
        assert made.noted.of("store") == [1, 1, 2, 3]


async def test_one_that_leaves_takes_along_how_far_its_lane_had_come() -> None:
    async with bench(head=4) as made:
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4])
        await pause()
        made.leave(made.stranger)
        assert made.cursor(made.stranger).position == 4


async def test_a_split_leaves_the_cursor_at_what_was_passed() -> None:
    async with bench(head=4) as made:
        made.noted.may_go_on.clear()
        made.events.arrived.publish(made.store)
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.noted.of("store") == [1])
        made.events.slow.publish(made.stranger)
        await until(lambda: made.cursor(made.stranger).position == 4)
        assert made.cursor(made.store).position == 0
        made.noted.may_go_on.set()
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4])


async def test_who_has_merged_is_passed_on_together() -> None:
    async with bench(head=4) as made:
        made.events.arrived.publish(made.store)
        await until(lambda: made.noted.of("store") == [1, 2, 3, 4])
        settle(made, made.store, 1, 2, 3, 4)
        made.events.arrived.publish(made.stranger)
        await until(lambda: made.cursor(made.stranger).position == 4)
        await made.log.grow(6)
        await until(lambda: made.cursor(made.stranger).position == 6)
        assert made.cursor(made.store).position == 4


async def test_of_many_a_part_is_moved_at_each_look() -> None:
    async with bench(head=2) as made:
        lane = Lane(0)
        recipients = [made.store, made.audit, made.stranger]
        for recipient in recipients:
            lane.add(recipient)
        assert lane.next_ones(2) == recipients[:2]
        assert lane.next_ones(2) == [made.stranger, made.store]
        assert sorted(each.role.id for each in lane.next_ones(9)) == sorted(each.role.id for each in recipients)
        lane.remove(made.store)
        assert made.store not in lane
        assert made.store not in lane.next_ones(9)


STEPS = st.lists(
    st.tuples(st.sampled_from(["grow", "settle", "leave", "arrive", "split", "pause"]), st.integers(0, 99)),
    max_size=30,
)


@settings(max_examples=40)
@given(STEPS)
def test_no_cursor_passes_what_is_owed_and_not_settled(steps: list[tuple[str, int]]) -> None:
    """Whatever comes, leaves, is split off and settled in any order; in the end everything was handed out."""

    async def carry_out() -> None:
        async with bench() as made:
            owed = [made.store, made.audit]
            settled: dict[ServedRole, set[int]] = {recipient: set() for recipient in owed}
            there: set[ServedRole] = set()

            def check() -> None:
                for recipient in owed:
                    least = next(n for n in range(1, made.log.head + 2) if n not in settled[recipient])
                    assert made.cursor(recipient).position < least
                assert made.cursor(made.stranger).position <= made.log.head
                for role in made.roles.values():
                    is_read = role.state in (ConsumerState.READING, ConsumerState.SLOW)
                    assert (role.lane is not None) == is_read
                    assert (role.state is ConsumerState.SLOW) == (role.lane is not None and role.lane.of_slow)

            for step, number in steps:
                recipient = [*owed, made.stranger][number % 3]
                if step == "grow":
                    await made.log.grow(made.log.head + 1 + number % 4)
                elif step == "arrive" and recipient not in there:
                    there.add(recipient)
                    made.events.arrived.publish(recipient)
                elif step == "leave" and recipient in there:
                    there.remove(recipient)
                    made.leave(recipient)
                elif step == "split":
                    made.events.slow.publish(recipient)
                elif step == "settle" and recipient in settled:
                    open_ones = sorted(set(made.noted.of(recipient.role.login)) - settled[recipient])
                    if open_ones:
                        position = open_ones[number % len(open_ones)]
                        settled[recipient].add(position)
                        settle(made, recipient, position)
                else:
                    await pause()
                check()
            for recipient in {*owed, made.stranger} - there:
                made.events.arrived.publish(recipient)
            everything = set(range(1, made.log.head + 1))
            for recipient in owed:

                def has_all(recipient: ServedRole = recipient) -> bool:
                    return settled[recipient] | set(made.noted.of(recipient.role.login)) == everything

                await until(has_all)
                settle(made, recipient, *everything)
            await until(lambda: all(made.cursor(each).position == made.log.head for each in (*owed, made.stranger)))

    asyncio.run(carry_out())
