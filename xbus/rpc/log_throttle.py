"""Logging what a peer does wrong without letting it fill the log; pure."""

from collections import Counter

from xbus.clock import Clock

SECONDS_BETWEEN = 60.0
PEERS_AT_ONCE = 1000
"""Above that many peers within a minute all others are logged as one."""

PEERS_OF_ADDRESS = 100
"""Above that many peers of an address within a minute its others are logged as one: who connects anew is a new peer."""

_OTHERS = b"others"


class LogThrottle:
    """Counts faults per peer and says when to log them: the first at once, then once a minute at most.

    Args:
        clock: measures the minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._peers: dict[bytes, tuple[float, int, str]] = {}
        """The moment of each peer's last line, its faults since then, and its address."""
        self._of_address: Counter[str] = Counter()
        self.total = 0

    def note(self, peer: bytes, address: str = "") -> int:
        """Count a fault of ``peer``; the number of its faults to log now, 0 for none.

        Args:
            address: where the peer is, if that is known.
        """
        self.total += 1
        now = self._clock.monotonic()
        if peer not in self._peers and self._is_full(address):
            self._forget_before(now - SECONDS_BETWEEN)
            if self._is_full(address):
                peer = address.encode() if len(self._peers) < PEERS_AT_ONCE else _OTHERS
        if peer not in self._peers:
            self._of_address[address] += 1
        logged_at, since, _ = self._peers.get(peer, (now - SECONDS_BETWEEN, 0, ""))
        if now - logged_at < SECONDS_BETWEEN:
            self._peers[peer] = (logged_at, since + 1, address)
            return 0
        self._peers[peer] = (now, 0, address)
        return since + 1

    def _is_full(self, address: str) -> bool:
        of_address = self._of_address[address] if address else 0
        return len(self._peers) >= PEERS_AT_ONCE or of_address >= PEERS_OF_ADDRESS

    def _forget_before(self, moment: float) -> None:
        self._peers = {peer: noted for peer, noted in self._peers.items() if noted[0] > moment}
        self._of_address = Counter(address for _, _, address in self._peers.values())
