"""Logging what peers do wrong without letting them fill the log; pure."""

from xbus.clock import Clock

SECONDS_BETWEEN = 60.0
SOURCES_AT_ONCE = 100
"""Above that many sources within a minute all others are logged as one."""

_OTHERS = "others"


class LogThrottle:
    """Counts faults by source and says when to log them: the first at once, then once a minute at most.

    A source is the address of a machine, not a connection: who connects anew for each fault stays the same source.

    Args:
        clock: measures the minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: dict[str, tuple[float, int]] = {}
        """The moment of each source's last line, and its faults since then."""
        self.total = 0

    def note(self, source: str) -> int:
        """Count a fault of a source; the number of its faults to log now, 0 for none."""
        self.total += 1
        now = self._clock.monotonic()
        if source not in self._sources and self._is_full():
            self._forget_before(now - SECONDS_BETWEEN)
            if self._is_full():
                source = _OTHERS
        logged_at, since = self._sources.get(source, (now - SECONDS_BETWEEN, 0))
        if now - logged_at < SECONDS_BETWEEN:
            self._sources[source] = (logged_at, since + 1)
            return 0
        self._sources[source] = (now, 0)
        return since + 1

    def _is_full(self) -> bool:
        return len(self._sources) >= SOURCES_AT_ONCE

    def _forget_before(self, moment: float) -> None:
        """Make room; what was not logged of those who are forgotten counts as that of others."""
        old = {source for source, (logged_at, _) in self._sources.items() if logged_at <= moment}
        unlogged = sum(self._sources.pop(source)[1] for source in old)
        if unlogged:
            logged_at, since = self._sources.get(_OTHERS, (moment, 0))
            self._sources[_OTHERS] = (logged_at, since + unlogged)
