"""The same world driven by hypothesis, which looks for a short story that breaks a promise, and makes it shorter."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.simulation.schedules import KEYS, TYPES, quiet
from tests.simulation.world import STORES, World

LOGINS = ("names_1", "prices_1", *STORES)
EXAMPLES = 15
STEPS = 10
LONG = st.sampled_from((0.0, 0.3, 2.0, 8.0))


class Bus(RuleBasedStateMachine):
    """One rule for each thing that may happen; a while passes after each."""

    world: World

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.world = World(seed)
        self._run(self.world.begin())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        with quiet():
            self.world.run(work)

    @rule(
        types=st.sampled_from(TYPES),
        items=st.sampled_from((0, 1, 7)),
        in_one_call=st.booleans(),
        cancel=st.booleans(),
        key=st.sampled_from(KEYS),
        refusing=st.sampled_from((None, *LOGINS)),
    )
    def emit(
        self, types: list[str], items: int, in_one_call: bool, cancel: bool, key: str, refusing: str | None
    ) -> None:
        async def begin() -> None:
            plan = self.world.emit(types, items, in_one_call=in_one_call, cancel=cancel, key=key)
            if refusing is not None:
                self.world.refuse(refusing, plan)

        self._run(begin())

    @rule(seconds=LONG)
    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    @rule(seconds=LONG)
    def kill_the_broker(self, seconds: float) -> None:
        self._run(self.world.kill_broker(seconds))

    @rule(login=st.sampled_from(LOGINS), seconds=LONG)
    def kill_a_recipient(self, login: str, seconds: float) -> None:
        self._run(self.world.kill_recipient(login, seconds))

    @rule(login=st.sampled_from(LOGINS), seconds=LONG)
    def stop_a_recipient(self, login: str, seconds: float) -> None:
        self._run(self.world.stop_recipient(login, seconds))

    @rule(login=st.sampled_from(LOGINS))
    def cut_a_connection(self, login: str) -> None:
        self._run(self.world.cut(login))

    @rule(login=st.sampled_from(LOGINS), seconds=LONG)
    def fail_at_a_recipient(self, login: str, seconds: float) -> None:
        self._run(self.world.fail_for_a_while(login, 0.5, seconds))

    @rule(seconds=LONG)
    def lose_the_database(self, seconds: float) -> None:
        self._run(self.world.lose_database(seconds))

    @rule(commits=st.integers(0, 15), seconds=LONG)
    def lose_the_answer_of_a_commit(self, commits: int, seconds: float) -> None:
        self._run(self.world.lose_commit(commits, seconds))

    def teardown(self) -> None:
        try:
            self._run(self.world.drain())
            self.world.check()
        finally:
            self.world.close()


def test_no_story_breaks_a_promise() -> None:
    run_state_machine_as_test(Bus, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None))
