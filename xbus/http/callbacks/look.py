"""Looks at how subscriptions are, seldom enough that it costs the bus nothing, however often somebody asks."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from xbus.clock import Clock
from xbus.errors import CallError
from xbus.http.counters import Gauge, RoutemasterCounters, gauges
from xbus.rpc.messages.subscriptions import SubscriptionHealthMap

log = logging.getLogger(__name__)

FRESH_SECONDS = 5.0
"""Seconds for which a look is good enough. Less shows newer figures, and costs looks."""

PAUSE_SHARE = 100
"""The pause after a look, as a multiple of its time."""


class SubscriptionLook:
    """The newest gauges of subscriptions; there are none while this gateway calls nobody.

    Args:
        counters: hear of what subscriptions were made to do without.
        clock: tells how old a look is.

    Attributes:
        measure: asks the back; None while there is no connection for it.
    """

    def __init__(self, counters: RoutemasterCounters, clock: Clock) -> None:
        self.measure: Callable[[], Awaitable[Sequence[SubscriptionHealthMap]]] | None = None
        self._counters = counters
        self._clock = clock
        self._found: Sequence[Gauge] = ()
        self._next_at = 0.0

    async def gauges(self) -> Sequence[Gauge]:
        """Give the gauges of this moment, or of a short while ago; none while the back does not answer."""
        began = self._clock.monotonic()
        if self.measure is None or began < self._next_at:
            return self._found
        self._next_at = began + FRESH_SECONDS
        try:
            found = await self.measure()
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
