"""What is done once for all that one turn of the loop brings."""

import asyncio

import pytest

from xbus.loop_turn import LoopTurn


def interrupt() -> None:
    raise KeyboardInterrupt


async def test_acts_behind_one_that_is_interrupted_are_done_in_the_next_turn() -> None:
    """As by Ctrl-C, after which a program may run its loop again to end in good order."""
    done: list[str] = []
    turn = LoopTurn()
    turn.acts += [lambda: done.append("before"), interrupt, lambda: done.append("behind")]
    with pytest.raises(KeyboardInterrupt):
        turn.end()
    assert (done, turn.is_busy) == (["before"], False)

    turn.at_end(lambda: done.append("later"))
    await asyncio.sleep(0)
    assert done == ["before", "behind", "later"]


async def test_those_who_are_told_go_on_and_their_acts_are_done_in_one_turn() -> None:
    turn = LoopTurn()
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done: list[str] = []

    async def go_on() -> None:
        await told
        turn.at_end(lambda: done.append("act"))

    def tell() -> None:
        told.set_result(None)
        turn.wakes = True

    going_on = asyncio.create_task(go_on())
    await asyncio.sleep(0)
    turn.run(tell)
    await asyncio.sleep(0)
    assert going_on.done()
    assert done == ["act"]


async def test_an_interrupt_inside_a_read_leaves_the_turn_at_work_for_nobody() -> None:
    done: list[str] = []
    turn = LoopTurn()
    turn.acts += [lambda: done.append("behind")]
    with pytest.raises(KeyboardInterrupt):
        turn.run(interrupt)
    assert (done, turn.is_busy) == (["behind"], False)


async def test_what_interrupted_acts_had_added_comes_behind_those_that_did_not_run() -> None:
    done: list[str] = []
    turn = LoopTurn()

    def add() -> None:
        turn.at_end(lambda: done.append("added"))

    turn.acts += [add, interrupt, lambda: done.append("behind")]
    with pytest.raises(KeyboardInterrupt):
        turn.end()
    await asyncio.sleep(0)
    assert done == ["behind", "added"]


def test_each_run_is_a_turn_of_its_own_and_one_within_it_is_not() -> None:
    turn = LoopTurn()
    numbers: list[int] = []
    turn.run(lambda: turn.run(lambda: numbers.append(turn.number)))
    turn.run(lambda: numbers.append(turn.number))
    assert numbers == [1, 2]
