"""A consumer role: each event of its life is one legal move."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.clock import StandingClock
from tests.support.recipients import Cast
from xbus.broker.back.progress.consumer_role import ConsumerRole, ConsumerRoles
from xbus.broker.back.recipients.circuit_breaker import CircuitBreakers
from xbus.broker.back.recipients.served import ServedRole
from xbus.states import ConsumerState, IllegalMove

ABSENT, READING, SLOW, TRIPPED, PAUSED, LEAVING = ConsumerState


def roles() -> ConsumerRoles:
    return ConsumerRoles(CircuitBreakers(StandingClock(), after=1, probe_interval=30), behind_after=10)


def role() -> ConsumerRole:
    return roles()[1]


def states_of(made: ConsumerRole, *moves: Callable[[], None]) -> list[ConsumerState]:
    """The state of a role at first and after each of some moves."""
    states = [made.state]
    for move in moves:
        move()
        states.append(made.state)
    return states


def test_one_that_falls_behind_is_slow_until_it_has_caught_up() -> None:
    made = role()
    states = states_of(made, made.arrive, made.fall_behind, made.catch_up, made.leave, made.go)
    assert states == [ABSENT, READING, SLOW, READING, LEAVING, ABSENT]


def test_an_open_breaker_outlives_the_recipient() -> None:
    made = role()
    made.arrive()
    made.breaker.failed(position=1)
    assert states_of(made, made.trip, made.leave, made.go, made.arrive) == [READING, TRIPPED, LEAVING, ABSENT, TRIPPED]
    made.breaker.went_well()
    assert states_of(made, made.recover) == [TRIPPED, READING]


def test_one_that_is_resumed_reads_again_unless_its_breaker_tripped_meanwhile() -> None:
    made = role()
    states = states_of(made, made.arrive, made.pause, made.arrive, made.pause)
    assert states == [ABSENT, READING, PAUSED, READING, PAUSED]
    made.breaker.failed(position=1)
    assert states_of(made, made.arrive, made.pause, made.leave, made.go) == [PAUSED, TRIPPED, PAUSED, LEAVING, ABSENT]


def test_another_recipient_comes_only_after_the_last_one_has_gone() -> None:
    made = role()
    made.arrive()
    with pytest.raises(IllegalMove, match="from reading to reading"):
        made.arrive()
    made.leave()
    with pytest.raises(IllegalMove, match="from leaving to reading"):
        made.arrive()
    assert states_of(made, made.go, made.arrive) == [LEAVING, ABSENT, READING]


async def test_a_worker_has_no_such_state() -> None:
    made, worker = roles(), ServedRole(Cast().worker("names"))
    for happens in (made.arrived, made.paused, made.left, made.gone, made.recovered):
        happens(worker)
    assert list(made) == []


async def test_the_next_recipient_waits_for_all_that_was_brought_to_the_ones_before() -> None:
    made, cast = role(), Cast()
    first, second = ServedRole(cast.consumer("store_1")), ServedRole(cast.consumer("store_1"))
    made.served = first
    ends = [asyncio.Event() for _ in range(2)]
    tasks = [asyncio.create_task(ended(end)) for end in ends]
    for task in tasks:
        made.bring_by(task)
    await made.predecessors_over(first)
    waiting = asyncio.create_task(made.predecessors_over(second))
    for end, task in zip(reversed(ends), reversed(tasks), strict=True):
        await asyncio.sleep(0)
        assert not waiting.done()
        end.set()
        await task
    await waiting


async def ended(end: asyncio.Event) -> None:
    await end.wait()
