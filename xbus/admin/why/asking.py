"""Asks the running broker, by calls that need no login."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

from xbus.admin.address import broker_address
from xbus.broker.journal.samples.sample import Delivered
from xbus.errors import Failed, Refused
from xbus.rpc.client import Client
from xbus.rpc.codec import Value
from xbus.rpc.context import new_context
from xbus.rpc.messages import HealthReport
from xbus.rpc.messages.insight import MOST_ROLES_TOLD, DeliveredSoFar, Insight, RefusedCall, SlowedEmitter
from xbus.rpc.shapes import AnswerReader

ANSWER_SECONDS = 3.0
"""Seconds to wait for an answer. Fewer may take a busy broker for one that is away."""

Side: TypeAlias = Literal["front", "back"]

_INSIGHT = AnswerReader("xbus.why", Insight)
_REFUSED = AnswerReader("xbus.refused", RefusedCall)
_SLOWED = AnswerReader("xbus.slowed", SlowedEmitter)
_DELIVERED = AnswerReader("xbus.delivered", DeliveredSoFar)
_HEALTH = AnswerReader("xbus.health", HealthReport)


class RunningBroker:
    """The broker of a configuration.

    Args:
        config_path: the configuration, which names its addresses.
    """

    def __init__(self, config_path: Path | None) -> None:
        self._config_path = config_path

    def insight(self, role_ids: Collection[int], envelope_id: UUID | None, position: int | None) -> Insight | None:
        """Ask the back for its memory; None if it can't be reached.

        Raises:
            Refused: it is older than this command (``unknown_method``).
        """
        told = None if envelope_id is None else str(envelope_id)
        answer = self._ask("back", "xbus.why", [*role_ids], told, position)
        return None if answer is None else _INSIGHT.read(answer)

    def delivered(self, role_ids: Collection[int]) -> Mapping[int, Delivered] | None:
        """Ask an up-to-date back how much each role has committed since it began; None without an answer."""
        found: dict[int, Delivered] = {}
        asked: list[Value] = [*role_ids]
        for first in range(0, len(asked), MOST_ROLES_TOLD):
            try:
                answer = self._ask("back", "xbus.delivered", asked[first : first + MOST_ROLES_TOLD])
            except Refused:
                return None
            if answer is None:
                return None
            roles = _DELIVERED.read(answer)["roles"]
            found |= {role["role"]: Delivered(role["envelopes"], role["items"]) for role in roles}
        return found

    def refused(self, envelope_id: UUID) -> RefusedCall | None:
        """Ask the front for the last call about an envelope that it refused; None also if it can't be reached."""
        answer = self._ask("front", "xbus.refused", str(envelope_id))
        return None if answer is None else _REFUSED.read(answer)

    def slowed(self, emitter_id: int) -> SlowedEmitter | None:
        """Ask the front how it slows an emitter down; None if it does not, or can't be reached."""
        answer = self._ask("front", "xbus.slowed", emitter_id)
        return None if answer is None else _SLOWED.read(answer)

    def front_health(self) -> HealthReport | None:
        """Ask the front how it is; None if it can't be reached."""
        return self.health("front")

    def health(self, side: Side) -> HealthReport | None:
        """Ask a side how it is; None if it can't be reached."""
        return asyncio.run(self._health(side))

    async def health_of_both(self) -> tuple[HealthReport | None, HealthReport | None]:
        """Ask front and back at once for their health, without a waiting thread; None for one without an answer."""
        front, back = await asyncio.gather(self._health("front"), self._health("back"))
        return front, back

    async def _health(self, side: Side) -> HealthReport | None:
        answer = await self._call(side, "xbus.health")
        return None if answer is None else _HEALTH.read(answer)

    def _ask(self, side: Side, verb: str, *args: Value) -> Value | None:
        return asyncio.run(self._call(side, verb, *args))

    async def _call(self, side: Side, verb: str, *args: Value) -> Value | None:
        try:
            return await _call(broker_address(side, None, self._config_path), verb, *args)
        except Failed:
            return None


async def _call(address: str, verb: str, *args: Value) -> Value:
    context = new_context()
    try:
        client = Client(context, name=address)
        try:
            client.connect(address)
            return await client.call(verb, *args, timeout=ANSWER_SECONDS)
        finally:
            client.close()
    finally:
        context.destroy(linger=0)
