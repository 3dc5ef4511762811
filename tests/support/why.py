"""Questions of ``xbus why`` put to a journal of the tests, with a back that knows what a test says."""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stdout, suppress
from datetime import timedelta
from io import StringIO
from typing import Any, TypeVar, cast
from uuid import UUID

import click
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.journal import NOW, Scribe
from xbus.admin.address import Side
from xbus.admin.cli import main
from xbus.admin.why.findings import Code, Finding
from xbus.admin.why.inquiry import Inquiry
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.operations.why.envelopes import AskedPart
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, Failure, ProgressUpdate, SealReceipt
from xbus.rpc.messages import HealthProblem, HealthReport, Insight, RefusedCall, RoleInsight, SlowedEmitter
from xbus.states import DeliveryState

T = TypeVar("T")

LATER = NOW + timedelta(minutes=5)
"""When the questions are asked."""


def role_insight(role_id: int) -> RoleInsight:
    """A consumer that is there and has nothing to do."""
    return {
        "role": role_id,
        "state": "reading",
        "programs": 1,
        "is_free": True,
        "trouble_since": None,
        "probe_seconds": None,
        "lane_at": 0,
        "held_up_by": [],
        "in_flight": [],
        "is_settled": False,
    }


class ToldBroker:
    """A broker that answers what a test wants.

    Args:
        role_id: finds the id of a role by its login.
    """

    def __init__(self, role_id: Callable[[str], int]) -> None:
        self._role_id = role_id
        self.roles: dict[int, RoleInsight] = {}
        self.insight_of_all: Insight = {"roles": [], "in_hand": [], "graces": [], "busy": []}
        self.is_there = True
        self.unaware_of: set[str] = set()
        self.problems: list[str] = []
        self.refusals: dict[UUID, RefusedCall] = {}
        self.slowed_emitters: dict[int, SlowedEmitter] = {}

    def tell(self, login: str, **told: Any) -> None:
        """Have the back know this of a role."""
        role_id = self._role_id(login)
        self.roles[role_id] = {**role_insight(role_id), **told}  # type: ignore[typeddict-item]

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        if not self.is_there:
            return None
        known = set(role_ids).difference(map(self._role_id, self.unaware_of))
        return {**self.insight_of_all, "roles": [self.roles.get(each, role_insight(each)) for each in sorted(known)]}

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        return self.refusals.get(envelope_id)

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        return self.slowed_emitters.get(emitter_id)

    def health(self, side: Side) -> HealthReport | None:
        if not self.is_there:
            return None
        since = NOW.isoformat()
        problems: list[HealthProblem] = [
            {"code": code, "cause": "why", "since": since, "next_step": "do"} for code in self.problems
        ]
        return {"healthy": not problems, "name": "front", "since": since, "problems": problems}


class ReadFromThread:
    """Reads the journal from a thread beside its event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()

    def __call__(self, read: Callable[[sa.Connection], T]) -> T:
        return asyncio.run_coroutine_threadsafe(self._journal.read(read), self._loop).result()


class Questions:
    """A bus with questions to it.

    Args:
        journal: entered.
        scribe: writes into it.
    """

    def __init__(self, journal: Journal, scribe: Scribe) -> None:
        self.journal = journal
        self.scribe = scribe
        self.broker = ToldBroker(scribe.role_id)
        self.seen: set[Code] = set()
        self.clock = StandingClock()
        self.clock.go_on((LATER - NOW).total_seconds())

    async def ask(self, question: Callable[[Inquiry], list[Finding]]) -> list[Finding]:
        """The findings of a question."""
        inquiry = Inquiry(ReadFromThread(self.journal), self.broker, self.clock)
        found = await asyncio.to_thread(question, inquiry)
        self.seen |= {finding.code for finding in found}
        for finding in found:
            assert not finding.cause.endswith("."), finding
            if finding.next_step.startswith("xbus "):
                parse_command(finding.next_step)
        return found

    async def why(self, envelope_id: UUID, role: str | None = None, **part: int) -> list[Finding]:
        """The findings of an envelope, or of a part of it."""
        return await self.ask(lambda inquiry: inquiry.by_id(envelope_id.hex, AskedPart(role, **part)))

    async def code(self, receipt: SealReceipt, role: str = "store_1") -> Code:
        """The code of the answer about one role."""
        return (await self.why(receipt.envelope_id, role))[0].code

    async def row(
        self, receipt: SealReceipt, state: DeliveryState, code: str = "timed_out", login: str = "store_1", **more: Any
    ) -> None:
        """Give a role a delivery row, once handed over."""
        row = DeliveryRow(
            *(self.scribe.role_id(login), receipt.envelope_id, receipt.position, state),
            **{"attempts": 2, "code": code, "cause": "no answer", **more},
        )
        await self.journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row)]))

    async def fail(self, receipt: SealReceipt, login: str = "store_1") -> None:
        """Note a failed call."""
        failure = Failure(receipt.envelope_id, None, self.scribe.role_id(login), "send_item", "timed_out", "no answer")
        await self.journal.write(ProgressUpdate(NOW, failures=[failure]))

    async def settle(self, login: str, *positions: int) -> None:
        """Have a role be done with envelopes."""

        cursor = (await self.journal.read(read_cursors))[self.scribe.role_id(login)]
        for position in positions:
            cursor.settle(position)
        await self.journal.write(ProgressUpdate(NOW, [cursor]))

    async def change(self, *statements: Any) -> None:
        """Carry SQL out."""

        def carry_out(connection: sa.Connection) -> None:
            for statement in statements:
                connection.execute(statement)

        await self.journal.run(carry_out)


def parse_command(next_step: str) -> None:
    """Parse the command with which a next step begins, as the ``xbus`` program would; behind it prose may follow.

    Raises:
        UsageError: it is no command, or its arguments are wrong.
    """
    words = re.split(r",|;| shows | says ", next_step)[0].split()
    name, command = words.pop(0), cast(click.Command, main)
    context = click.Context(command)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None, next_step
        command, context = found, click.Context(found, parent=context)
    with suppress(click.exceptions.Exit), redirect_stdout(StringIO()):
        command.make_context(name, words)


def codes(findings: Sequence[Finding]) -> list[Code]:
    """The codes of findings, in their order."""
    return [finding.code for finding in findings]
