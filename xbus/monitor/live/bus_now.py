"""The bus at one moment, as a value: what the sampler found, and what pages and drawings are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from xbus.broker.journal.samples.attention import Attention
from xbus.broker.journal.samples.outline import BusOutline
from xbus.broker.journal.samples.readers import ReaderFigures
from xbus.broker.journal.samples.roles import RoleFigures
from xbus.broker.journal.samples.sample import Count, Delivered, Sample
from xbus.rpc.messages import HealthProblem


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """The health of the broker's processes.

    Args:
        problems: as they report them.
        silent: the sides of the broker that do not answer, ``front`` or ``back``.
    """

    problems: Sequence[HealthProblem] = ()
    silent: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BusNow:
    """The bus at one moment.

    Args:
        at: the moment.
        outline: who sends what, and where it goes.
        minute: what came in the last minute, as far as a monitor ran.
        roles: all in use, by login.
        attention: what waits for a person.
        readers: all in use, by name.
    """

    at: datetime
    outline: BusOutline
    minute: Sample | None
    roles: Sequence[RoleFigures]
    attention: Attention
    health: BrokerHealth
    readers: Sequence[ReaderFigures] = ()

    @property
    def event_rates(self) -> Mapping[tuple[int, int], float]:
        """The events each second by the ids of emitter and event type."""
        return {pair: rate for pair, (rate, _) in self.rates.items()}

    @property
    def rates(self) -> Mapping[tuple[int, int], tuple[float, float]]:
        """The events and items each second by the ids of emitter and event type."""
        if self.minute is None or not self.minute.observed:
            return {}
        seconds = self.minute.observed
        return {pair: _each_second(count, seconds) for pair, count in self.minute.traffic.items()}

    @property
    def delivered_rates(self) -> Mapping[int, tuple[float, float]]:
        """The envelopes and items that a role commits each second, by role id."""
        if self.minute is None or not self.minute.observed:
            return {}
        seconds = self.minute.observed
        return {role_id: _each_second(each, seconds) for role_id, each in self.minute.delivered.items()}


def _each_second(count: Count | Delivered, seconds: float) -> tuple[float, float]:
    number, items = count
    return number / seconds, items / seconds
