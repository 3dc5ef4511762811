"""Logging what a peer does wrong without letting it fill the log; pure."""

from xbus.clock import Clock

SECONDS_BETWEEN = 60.0
PEERS_AT_ONCE = 1000
"""Above that many peers within a minute all others are logged as one."""

_OTHERS = b"others"


class LogThrottle:
    """Counts faults per peer and says when to log them: the first at once, then once a minute at most.

    Args:
        clock: measures the minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: dict[bytes, tuple[float, int]] = {}
        self.total = 0

    def note(self, peer: bytes) -> int:
        """Count a fault of ``peer``; the number of its faults to log now, 0 for none."""
        self.total += 1
        now = self._clock.monotonic()
        if peer not in self._peers and len(self._peers) >= PEERS_AT_ONCE:
            self._forget_before(now - SECONDS_BETWEEN)
            peer = peer if len(self._peers) < PEERS_AT_ONCE else _OTHERS
        logged_at, since = self._peers.get(peer, (now - SECONDS_BETWEEN, 0))
        if now - logged_at < SECONDS_BETWEEN:
            self._peers[peer] = (logged_at, since + 1)
            return 0
        self._peers[peer] = (now, 0)
        return since + 1

    def _forget_before(self, moment: float) -> None:
        self._peers = {peer: (at, since) for peer, (at, since) in self._peers.items() if at > moment}
