"""The order in which logins get their turns."""

import asyncio
from collections.abc import Iterable

import pytest

from tests.support.clock import StandingClock
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.broker.logins import LOGINS_AT_ONCE, Caller, LoginTurns, WrongGuesses
from xbus.broker.logins.turns import MOST_WAITING, TURNED_AWAY_SECONDS
from xbus.errors import Failed

CROWD = Caller(b"crowd", "10.0.0.1")
HONEST = Caller(b"honest", "10.0.0.1")


class Gate:
    """Logins that keep their turns until they are let go."""

    def __init__(self, guesses: WrongGuesses | None = None) -> None:
        self._turns = LoginTurns(guesses or WrongGuesses(StandingClock()))
        self._let_go = asyncio.Semaphore(0)
        self.served: list[str] = []

    async def log_in(self, login: str, caller: Caller, seconds: float = DEADLINE_SECONDS) -> None:
        async with self._turns.turn(login, caller, asyncio.get_running_loop().time() + seconds):
            self.served.append(login)
            await self._let_go.acquire()

    async def arrive(self, logins: Iterable[str], caller: Caller) -> "list[asyncio.Task[None]]":
        tasks = [asyncio.create_task(self.log_in(login, caller)) for login in logins]
        await asyncio.sleep(0)
        return tasks

    def let_one_go(self) -> None:
        self._let_go.release()

    async def serve(self, number: int) -> None:
        """Let the given number of logins end, and wait for the next ones."""
        served = len(self.served)
        for _ in range(number):
            self._let_go.release()
        await eventually(lambda: len(self.served) >= served + number, "the next logins have their turns")


async def end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_crowd_of_one_connection_delays_nobody_else() -> None:
    gate = Gate()
    crowd = await gate.arrive((f"crowd {number}" for number in range(100)), CROWD)
    honest = await gate.arrive(["honest"], HONEST)
    await gate.serve(1)
    assert gate.served[LOGINS_AT_ONCE:] == ["honest"]
    await end(crowd + honest)


async def test_a_crowd_of_one_login_delays_no_other_login() -> None:
    gate = Gate()
    tasks = []
    for number in range(20):
        tasks += await gate.arrive(["guessed"], Caller(b"%d" % number, "10.0.0.1"))
    await gate.serve(LOGINS_AT_ONCE)
    tasks += await gate.arrive(["honest"], HONEST)
    tasks += await gate.arrive(["guessed"], Caller(b"last", "10.0.0.1"))
    await gate.serve(1)
    assert gate.served[-1] == "honest"
    await end(tasks)


async def test_a_login_that_is_cancelled_as_its_turn_comes_takes_none() -> None:
    gate = Gate()
    running = [f"running {number}" for number in range(LOGINS_AT_ONCE)]
    first, *others, late = await gate.arrive([*running, "late"], CROWD)
    # The end of the first is on its way when the late one is cancelled.
    gate.let_one_go()
    late.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert first.done()
    assert first.exception() is None
    others += await gate.arrive(["next"], HONEST)
    assert gate.served == [*running, "next"]
    await end([late, *others])


async def test_a_full_queue_loses_the_newest_of_the_largest_crowd() -> None:
    gate = Gate()
    crowd = await gate.arrive(map(str, range(MOST_WAITING + LOGINS_AT_ONCE)), CROWD)
    honest = await gate.arrive(["honest"], HONEST)
    done, _ = await asyncio.wait(crowd, timeout=TURNED_AWAY_SECONDS + DEADLINE_SECONDS, return_when="FIRST_COMPLETED")
    assert done == {crowd[-1]}
    error = crowd[-1].exception()
    assert isinstance(error, Failed)
    assert error.code == "login_too_late"
    await gate.serve(1)
    assert gate.served[LOGINS_AT_ONCE:] == ["honest"]
    await end(crowd + honest)


async def test_a_pause_is_kept_and_ends() -> None:
    clock = StandingClock()
    guesses = WrongGuesses(clock)
    for _ in range(4):
        guesses.note("guessed", "10.0.0.2")
    gate = Gate(guesses)
    tasks = await gate.arrive(["guessed"], HONEST)
    tasks += await gate.arrive(["other"], HONEST)
    assert gate.served == ["other"]
    clock.go_on(10)
    await gate.serve(1)
    assert gate.served == ["other", "guessed"]
    await end(tasks)


async def test_who_gives_up_while_it_waits_takes_no_turn() -> None:
    gate = Gate()
    first = [f"first {number}" for number in range(LOGINS_AT_ONCE)]
    tasks = await gate.arrive(first, CROWD)
    with pytest.raises(Failed) as caught:
        await gate.log_in("late", HONEST, 0.01)
    assert caught.value.code == "login_too_late"
    tasks += await gate.arrive(["second"], HONEST)
    await gate.serve(1)
    assert gate.served == [*first, "second"]
    await end(tasks)
