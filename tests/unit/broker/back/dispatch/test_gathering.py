"""Taking a slot of each consumer of a run."""

import asyncio

from tests.support.clock import StandingClock
from tests.support.delivering import consumer_roles
from tests.support.recipients import Cast
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.recipients import RecipientProxy, RoleEvents, ServedRole, Slots

MOST_QUESTIONS = 100


async def test_a_role_whose_programs_are_paused_is_waited_for_in_peace() -> None:
    """The role is served all the while: to ask again and again would leave the loop no turn."""
    slots: Slots[RecipientProxy] = Slots()
    gathering = ConsumerGathering(slots, consumer_roles(), StandingClock(), RoleEvents())
    program = Cast().consumer("store")
    store = ServedRole(program)
    slots.add(program, "store", 1, store, is_paused=True)
    questions = 0

    def may_go(recipient: ServedRole) -> bool:
        nonlocal questions
        questions += 1
        assert questions < MOST_QUESTIONS, "it is asked without end"
        return recipient is store

    taking = asyncio.ensure_future(gathering.take([store], may_go))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not taking.done()
    slots.resume(program)
    assert await taking == [program]
