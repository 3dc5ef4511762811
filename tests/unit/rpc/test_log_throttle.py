"""What a peer does wrong is logged once a minute."""

from datetime import UTC, datetime

from xbus.rpc.log_throttle import PEERS_AT_ONCE, PEERS_OF_ADDRESS, LogThrottle


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


def test_the_first_fault_is_logged_and_the_next_after_a_minute() -> None:
    clock = HandClock()
    complaints = LogThrottle(clock)
    assert [complaints.note(b"a") for _ in range(5)] == [1, 0, 0, 0, 0]
    clock.seconds = 59.9
    assert complaints.note(b"a") == 0
    clock.seconds = 60.0
    assert complaints.note(b"a") == 6
    assert complaints.total == 7


def test_each_peer_has_its_own_minute() -> None:
    complaints = LogThrottle(HandClock())
    assert [complaints.note(peer) for peer in (b"a", b"b", b"a", b"b")] == [1, 1, 0, 0]


def test_who_connects_again_and_again_is_logged_as_one() -> None:
    clock = HandClock()
    complaints = LogThrottle(clock)
    logged = [complaints.note(str(number).encode(), "192.0.2.7") for number in range(3 * PEERS_OF_ADDRESS)]
    assert sum(map(bool, logged)) == PEERS_OF_ADDRESS + 1
    assert complaints.note(b"other", "192.0.2.8") == 1
    clock.seconds = 61.0
    assert complaints.note(b"new", "192.0.2.7") == 1


def test_a_flood_of_peers_is_logged_as_one_and_forgotten() -> None:
    clock = HandClock()
    complaints = LogThrottle(clock)
    logged = [complaints.note(str(number).encode()) for number in range(3 * PEERS_AT_ONCE)]
    assert sum(map(bool, logged)) == PEERS_AT_ONCE + 1
    clock.seconds = 61.0
    assert complaints.note(b"new") == 1
