"""Counts what emitters have sent, for metrics; pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from xbus.broker.counts import CountsBy
from xbus.broker.journal.writes import SealedGroup, SealReceipt


class TakenEvent(Protocol):
    """An event of a sealed envelope."""

    @property
    def type_name(self) -> str:
        """The name of its event type."""

    @property
    def items(self) -> int:
        """The number of its items."""


@dataclass(slots=True)
class EmitterIntake:
    """The counts of an emitter; ``data_bytes`` are those of the items."""

    envelopes: int = 0
    data_bytes: int = 0


@dataclass(slots=True)
class TypeIntake:
    """The counts of an event type."""

    events: int = 0
    items: int = 0


class Intake:
    """Counts the envelopes that this process has sealed for emitters; repeats of calls count once."""

    def __init__(self) -> None:
        self.by_emitter: CountsBy[int, EmitterIntake] = CountsBy(EmitterIntake)
        """By the id of the emitter."""
        self.by_type: CountsBy[str, TypeIntake] = CountsBy(TypeIntake)
        """By the name of the event type."""

    def take(self, emitter_id: int, receipt: SealReceipt, events: Iterable[TakenEvent]) -> None:
        """Count an envelope that was just sealed."""
        of_emitter = self.by_emitter[emitter_id]
        of_emitter.envelopes += 1
        of_emitter.data_bytes += receipt.data_bytes
        for event in events:
            of_type = self.by_type[event.type_name]
            of_type.events += 1
            of_type.items += event.items

    def take_group(self, sealed: SealedGroup) -> None:
        """Count the envelopes of a group that was just sealed."""
        group = sealed.group
        of_emitter = self.by_emitter[group.emitter_id]
        of_emitter.envelopes += len(group)
        of_emitter.data_bytes += sum(map(len, group.data))
        for event_type, events in Counter(group.types).items():
            of_type = self.by_type[event_type.name]
            of_type.events += events
            of_type.items += sum(
                [items for items, each in zip(group.items, group.types, strict=True) if each is event_type]
            )
