"""Acts bear the name of the person for whom a program acts."""

import asyncio
import socket
from contextvars import copy_context
from datetime import UTC, datetime

import pytest

from xbus.admin.signatures import decision_of
from xbus.broker.journal.audit import act_here, acting_as, acting_person, person
from xbus.clock import SystemClock

NOON = datetime(2020, 2, 29, 12, tzinfo=UTC)


def author() -> tuple[str, str]:
    act = act_here(NOON, "dropped", "envelope 1")
    return act.who, act.origin


def test_an_act_is_of_who_runs_the_process() -> None:
    assert author() == (person(), socket.gethostname())
    assert acting_person() is None


def test_within_acting_as_an_act_is_of_the_person() -> None:
    with acting_as("ada", "10.0.0.1"):
        assert author() == ("ada", "10.0.0.1")
        assert decision_of(SystemClock(), "too late").who == "ada"
    assert author() == (person(), socket.gethostname())


def test_acting_as_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), acting_as("ada", "10.0.0.1"):
        raise ZeroDivisionError
    assert acting_person() is None


def test_an_inner_person_comes_before_the_outer_one() -> None:
    with acting_as("ada", "10.0.0.1"):
        with acting_as("bob", "10.0.0.2"):
            assert author() == ("bob", "10.0.0.2")
        assert author() == ("ada", "10.0.0.1")


def test_a_name_that_the_caller_knows_comes_first() -> None:
    with acting_as("ada", "10.0.0.1"):
        act = act_here(NOON, "resumed", 'role "names"', who="the broker")
    assert (act.who, act.origin) == ("the broker", socket.gethostname())


async def test_each_task_acts_for_its_own_person() -> None:
    both_act = asyncio.Barrier(2)

    async def act_as(who: str) -> str | None:
        with acting_as(who, ""):
            await both_act.wait()
            return await asyncio.to_thread(acting_person)

    first, second = await asyncio.gather(act_as("ada"), act_as("bob"))
    assert (first, second) == ("ada", "bob")
    assert acting_person() is None


def test_a_copy_of_the_context_keeps_the_person() -> None:
    with acting_as("ada", ""):
        context = copy_context()
    assert context.run(acting_person) == "ada"
