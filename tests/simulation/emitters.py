"""Emitters in virtual time: they repeat, as the SDK does, whatever got no answer."""

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.timing import WAY_SECONDS
from xbus.broker.front.envelopes.checks import NewEvent
from xbus.emitter.stream import FORGOTTEN
from xbus.envelope import EnvelopeHead
from xbus.errors import ConnectionLost, Failed, JournalUnavailable, XbusError
from xbus.rpc.codec import pack_items
from xbus.testing.broker import VirtualBroker

BATCH_ITEMS = 3


@dataclass(frozen=True)
class Plan:
    """An envelope that is to be sent: its events with their types and items.

    Args:
        key: its idempotency key; None without one.
        headers: of the envelope; None where they are not compared.
    """

    envelope_id: uuid.UUID
    events: tuple[tuple[uuid.UUID, str, tuple[bytes, ...]], ...]
    ordering_key: str | None
    in_one_call: bool
    is_cancelled: bool = False
    key: str | None = None
    headers: Mapping[str, str] | None = None


@dataclass
class Sent:
    """What emitters know of what they sent."""

    plans: dict[str, Plan] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    receipts: dict[str, tuple[bytes, int, bytes]] = field(default_factory=dict)
    """Id, position and hash of what was put in groups."""
    wrongs: list[str] = field(default_factory=list)
    """The answers that are wrong in themselves, each in a sentence."""


class SimulatedEmitter:
    """Sends one envelope, for as long as it takes.

    Args:
        broker: the one that runs now, or None.
        choices: gives the times that things take.
    """

    def __init__(
        self, emitter_id: int, broker: Callable[[], VirtualBroker | None], choices: random.Random, sent: Sent
    ) -> None:
        self._emitter_id = emitter_id
        self._broker = broker
        self._choices = choices
        self._sent = sent

    async def send(self, plan: Plan) -> None:
        """Send an envelope until it is acknowledged."""
        name = str(plan.envelope_id)
        self._sent.plans[name] = plan
        while True:
            try:
                if plan.in_one_call:
                    await self._put(plan)
                else:
                    await self._stream(plan)
            except (ConnectionLost, JournalUnavailable, Failed):
                await asyncio.sleep(self._choices.choice((0.1, 1.0)))
                continue
            except XbusError as refusal:
                if refusal.code in FORGOTTEN:
                    continue
                if not (plan.is_cancelled and refusal.code == "envelope_closed"):
                    self._sent.refused[name] = refusal.code
                    return
            (self._sent.cancelled if plan.is_cancelled else self._sent.acknowledged).add(name)
            return

    async def _put(self, plan: Plan) -> None:
        events = [
            NewEvent(event_id, type_name, len(items), pack_items(list(items)))
            for event_id, type_name, items in plan.events
        ]
        await self._call("put_envelope", plan.envelope_id, events, EnvelopeHead(plan.ordering_key))

    async def _stream(self, plan: Plan) -> None:
        envelope_id = plan.envelope_id
        options = EnvelopeHead(plan.ordering_key)
        await self._call("start_envelope", envelope_id, is_new=False, options=options)
        for event_id, type_name, items in plan.events:
            await self._call("start_event", envelope_id, event_id, type_name, len(items))
            for first in range(0, len(items), BATCH_ITEMS):
                batch = list(items[first : first + BATCH_ITEMS])
                await self._call("append", envelope_id, event_id, first, len(batch), pack_items(batch))
            await self._call("end_event", envelope_id, event_id, len(items))
        if plan.is_cancelled:
            await self._call("cancel_envelope", envelope_id)
        else:
            await self._call("end_envelope", envelope_id, len(plan.events))

    async def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        broker = self._broker()
        if broker is None or not broker.serves:
            raise ConnectionLost("no broker is there")
        outcome = broker.context.run(getattr(broker.front, verb), self._emitter_id, *args, **options)
        if hasattr(outcome, "__await__"):
            outcome = await broker.unless_dead(outcome)
        await asyncio.sleep(self._choices.choice(WAY_SECONDS))
        if broker.is_dead.is_set():
            raise ConnectionLost("the broker went down before its answer was on its way")
        return outcome
