"""Holds emitters to their limits: what goes beyond is refused for now, with the seconds to wait."""

from collections.abc import Callable

from xbus.broker.configuration import Configuration
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes import SendingLimits
from xbus.errors import Failed

SLOW_DOWN = "slow_down"

ENVELOPE_SECONDS = 1.0
"""Seconds after which an emitter may ask again whether one of its envelopes has ended. Fewer cost more refusals."""

LEAST_SECONDS = 0.02
"""The least seconds to wait, and those for calls in flight, which are answered soon. Fewer cost more refusals."""

BURST_SECONDS = 1.0
"""A bucket holds what may come in so many seconds. More let an emitter that was silent send more at once."""


class TokenBucket:
    """Bounds a rate; pure.

    An amount that is larger than the bucket passes when that is full; what follows waits for longer.

    Args:
        rate: per second.
        now: the moment at which the full bucket is made, in seconds.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._most = rate * BURST_SECONDS
        self._level = self._most
        self._at = now

    def change(self, rate: int) -> None:
        """Go on at another rate."""
        self._rate, self._most = rate, rate * BURST_SECONDS

    def wait(self, amount: int, now: float) -> float:
        """Compute the seconds until an amount passes; 0 if it passes now."""
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (min(amount, self._most) - self._level) / self._rate)

    def take(self, amount: int) -> None:
        """Take an amount that passes."""
        self._level -= amount


class _Usage:
    """The use that one emitter makes of the bus."""

    def __init__(self) -> None:
        self.buckets: dict[str, TokenBucket] = {}
        self.calls = 0
        self.call_bytes = 0


class Throttle:
    """Refuses calls of emitters that go beyond their limits.

    Args:
        configuration: has the limits; a change is in force at once.
        now: the time in seconds.
    """

    def __init__(self, configuration: Configuration, now: Callable[[], float]) -> None:
        self._configuration = configuration
        self._now = now
        self._usage: dict[int, _Usage] = {}
        self._seen: Catalog | None = None
        self._bounds_calls = False

    def limits(self, emitter_id: int) -> SendingLimits | None:
        """Give the limits of an emitter; None where it has none."""
        emitter = self._configuration.catalog.emitters.get(emitter_id)
        return None if emitter is None else emitter.limits

    def charge(self, emitter_id: int, items: int, data_bytes: int) -> None:
        """Let items pass that come in now.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        if limits is None:
            return
        now = self._now()
        usage = self._use(emitter_id)
        charged = []
        for what, rate, amount in (
            ("items", limits.items_per_second, items),
            ("bytes", limits.bytes_per_second, data_bytes),
        ):
            if rate is None:
                usage.buckets.pop(what, None)
                continue
            bucket = usage.buckets.get(what)
            if bucket is None:
                bucket = usage.buckets[what] = TokenBucket(rate, now)
            bucket.change(rate)
            if (seconds := bucket.wait(amount, now)) > 0:
                raise _slow_down(f"the emitter sends more than {rate} {what} a second", seconds)
            charged.append((bucket, amount))
        for bucket, amount in charged:
            bucket.take(amount)

    def check_open(self, emitter_id: int, count: Callable[[int], int]) -> None:
        """Let an emitter open an envelope.

        Args:
            count: counts its open envelopes.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        most = None if limits is None else limits.open_envelopes
        if most is not None and count(emitter_id) >= most:
            raise _slow_down(f"the emitter has {most} open envelopes, and may have no more", ENVELOPE_SECONDS)

    def begin_call(self, emitter_id: int, size: int) -> None:
        """Let a call pass that ``end_call`` ends; one may always be in flight, however large.

        Raises:
            Failed: slow_down.
        """
        limits = self.limits(emitter_id)
        usage = self._use(emitter_id)
        if limits is not None and usage.calls:
            if limits.calls_in_flight is not None and usage.calls >= limits.calls_in_flight:
                cause = f"{usage.calls} calls of the emitter are in flight, the most that it may have"
                raise _slow_down(cause, LEAST_SECONDS)
            if limits.bytes_in_flight is not None and usage.call_bytes + size > limits.bytes_in_flight:
                cause = f"calls with {usage.call_bytes} bytes are in flight, and it may have {limits.bytes_in_flight}"
                raise _slow_down(cause, LEAST_SECONDS)
        usage.calls += 1
        usage.call_bytes += size

    def end_call(self, emitter_id: int, size: int) -> None:
        """Note the answer to a call."""
        usage = self._use(emitter_id)
        usage.calls -= 1
        usage.call_bytes -= size

    @property
    def bounds_calls(self) -> bool:
        """Check whether the calls in flight of any emitter are limited."""
        catalog = self._configuration.catalog
        if catalog is not self._seen:
            self._seen = catalog
            self._bounds_calls = any(map(self.counts_calls, catalog.emitters))
        return self._bounds_calls

    def counts_calls(self, emitter_id: int) -> bool:
        """Check whether the calls of an emitter in flight are limited."""
        limits = self.limits(emitter_id)
        return limits is not None and not (limits.calls_in_flight is None and limits.bytes_in_flight is None)

    def _use(self, emitter_id: int) -> _Usage:
        usage = self._usage.get(emitter_id)
        if usage is None:
            usage = self._usage[emitter_id] = _Usage()
        return usage


def _slow_down(cause: str, seconds: float) -> Failed:
    seconds = max(round(seconds, 3), LEAST_SECONDS)
    return Failed(cause, f"repeat the call in {seconds:g} s", code=SLOW_DOWN, details={"seconds": seconds})
