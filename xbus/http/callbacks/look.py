"""Looks at how subscriptions are, seldom enough that it costs the bus nothing, however often somebody asks."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from xbus.clock import Clock
from xbus.errors import CallError
from xbus.http.figures import Gauge, RoutemasterCounters, gauges
from xbus.rpc.messages.subscriptions import SubscriptionHealthMap

log = logging.getLogger(__name__)

FRESH_SECONDS = 5.0
"""Seconds for which a look is good enough. Less shows newer figures, and costs looks."""

PAUSE_SHARE = 100
"""The pause after a look, as a multiple of its time."""


Measure: TypeAlias = Callable[[], Awaitable[Sequence[SubscriptionHealthMap]]]


class SubscriptionLook:
    """The newest gauges of subscriptions; there are none while this gateway calls nobody.

    Args:
        counters: hear of what subscriptions were made to do without.
        clock: tells how old a look is.
    """

    def __init__(self, counters: RoutemasterCounters, clock: Clock) -> None:
        self._measure: Measure | None = None
        self._counters = counters
        self._clock = clock
        self._found: Sequence[Gauge] = ()
        self._next_at = 0.0

    @contextmanager
    def measuring(self, measure: Measure) -> Iterator[None]:
        """Look for as long as the block lasts.

        Args:
            measure: asks the back how subscriptions are.
        """
        self._measure = measure
        try:
            yield
        finally:
            self._measure, self._found = None, ()

    async def gauges(self) -> Sequence[Gauge]:
        """Give the gauges of this moment, or of a short while ago; none while the back does not answer."""
        began = self._clock.monotonic()
        if self._measure is None or began < self._next_at:
            return self._found
        self._next_at = began + FRESH_SECONDS
        try:
            found = await self._measure()
        except CallError as error:
            self._found = ()
            extra = {"action": "subscriptions_not_measured", "code": error.code}
            log.info("subscriptions not measured: %s", error, extra=extra)
            return self._found
        for each in found:
            self._counters.dropped(each["name"], each["dropped"])
        self._found = [*gauges(found)]
        ended = self._clock.monotonic()
        self._next_at = ended + max(FRESH_SECONDS, PAUSE_SHARE * (ended - began))
        return self._found
