"""What is done once for all that one turn of the loop brings."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from xbus.loop_turn import LoopTurn, ThreadBell


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


async def rings(turn: LoopTurn, bell: ThreadBell, *acts: Callable[[], object]) -> None:
    """Have a thread tell of acts, and end."""

    def work() -> None:
        for act in acts:
            turn.told.append(act)
            bell.ring()
        bell.end()

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join)


@pytest.mark.parametrize("is_closed", [False, True], ids=["heard", "behind the end of hearing"])
async def test_what_a_thread_tells_is_done_in_its_order_whatever_fails(is_closed: bool) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    done: list[int] = []
    error = ValueError("an act failed")

    def fail() -> None:
        raise error

    turn = LoopTurn()
    bell = ThreadBell(turn)
    if is_closed:
        bell.close()
    await rings(turn, bell, lambda: done.append(1), fail, *[partial(done.append, number) for number in range(2, 10)])
    bell.close()
    await asyncio.sleep(0)
    assert (done, faults) == ([*range(1, 10)], [error])


async def test_more_rings_than_a_pipe_holds_hold_nobody_up() -> None:
    done: list[int] = []
    turn = LoopTurn()
    bell = ThreadBell(turn)
    number = 70_000
    for _ in range(number):
        turn.told.append(lambda: done.append(1))
        bell.ring()
    bell.end()
    bell.close()
    await asyncio.sleep(0)
    assert len(done) == number
