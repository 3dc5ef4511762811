"""A runner of bots in virtual time, as ``xbus.bots.runner`` is one with processes."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from uuid import UUID

from xbus.bots.job import ANY, Allowed, Outcome, RunJob
from xbus.broker.journal.writes.bots import RunFailure
from xbus.envelope import EnvelopeHead
from xbus.errors import XbusError
from xbus.rpc.messages import BotRun
from xbus.testing.bots.functions import BotFunctions
from xbus.testing.bots.output import GatheredOutput
from xbus.testing.broker import VirtualBroker
from xbus.testing.probe import Crash
from xbus.testing.sending import InMemoryEmitter

WAIT_SECONDS = 30.0
AGAIN_SECONDS = 0.5
"""Seconds that a claim waits for a run, and between claims where the broker is away."""

RESTART_SECONDS = 1.0
"""Seconds until a runner that has crashed is started again."""


class VirtualRunner:
    """Runs what is due, one run after the other: a function takes no virtual time.

    Args:
        role_id: of its role.
        functions: call the authors' code.
        find_broker: gives the broker that runs now, or None.
        random: makes the ids of its programs.
    """

    def __init__(
        self, role_id: int, functions: BotFunctions, find_broker: Callable[[], VirtualBroker | None], random: Random
    ) -> None:
        self._role_id = role_id
        self._functions = functions
        self._find_broker = find_broker
        self._random = random

    async def serve(self) -> None:
        """For ever: be a program that runs what is due, and another one after each crash."""
        while True:
            try:
                await self._live(str(UUID(int=self._random.getrandbits(128), version=4)))
            except Crash:
                await asyncio.sleep(RESTART_SECONDS)

    async def _live(self, program: str) -> None:
        while True:
            broker = self._find_broker()
            if broker is None or not broker.serves:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            try:
                claim = broker.bots.claim(self._role_id, program, WAIT_SECONDS, lambda: True)
                claimed = await broker.unless_dead(claim)
                if (run := claimed["run"]) is not None:
                    await self._carry_out(broker, program, run)
            except XbusError:  # the lease ends, and the run is given out again
                await asyncio.sleep(AGAIN_SECONDS)

    async def _carry_out(self, broker: VirtualBroker, program: str, run: BotRun) -> None:
        output = GatheredOutput(run["key"], run["emits"])
        with ThreadPoolExecutor(1) as thread:  # of its own, as this one runs a loop, and the author's code may run one
            outcome = thread.submit(self._functions.call, RunJob(run, "", Allowed([ANY], [ANY])), output).result()
        self._functions.reach(run["bot"], "before_commit")
        if not outcome.code and output.events:
            outcome = await self._send(broker, run, output)
        self._functions.reach(run["bot"], "after_commit")
        failure = RunFailure(outcome.code, outcome.error) if outcome.code else None
        ended = broker.bots.end(self._role_id, program, run["run"], run["ticket"], failure, "")
        await broker.unless_dead(ended)

    async def _send(self, broker: VirtualBroker, run: BotRun, output: GatheredOutput) -> Outcome:
        emitter = InMemoryEmitter(broker, broker.emitter_id(run["login"]), self._random)
        options = EnvelopeHead(None, run["key"])
        try:
            await broker.unless_dead(emitter.send(output.events, options, lambda name: False))
        except XbusError as error:
            return Outcome(error.code, str(error))
        return Outcome()
