"""What a source does wrong is logged once a minute."""

from datetime import UTC, datetime

from xbus.log_throttle import SOURCES_AT_ONCE, LogThrottle


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
    assert [complaints.note("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    clock.seconds = 59.9
    assert complaints.note("a") == 0
    clock.seconds = 60.0
    assert complaints.note("a") == 6
    assert complaints.total == 7


def test_each_source_has_its_own_minute() -> None:
    complaints = LogThrottle(HandClock())
    assert [complaints.note(source) for source in ("a", "b", "a", "b")] == [1, 1, 0, 0]


def test_a_flood_of_sources_is_logged_as_one_and_forgotten() -> None:
    clock = HandClock()
    complaints = LogThrottle(clock)
    logged = [complaints.note(str(number)) for number in range(3 * SOURCES_AT_ONCE)]
    assert sum(map(bool, logged)) == SOURCES_AT_ONCE + 1
    clock.seconds = 61.0
    assert complaints.note("new") == 1


def test_what_was_not_logged_of_a_forgotten_source_counts_as_that_of_others() -> None:
    clock = HandClock()
    complaints = LogThrottle(clock)
    for _ in range(5):
        complaints.note("gone")
    for number in range(SOURCES_AT_ONCE - 1):
        complaints.note(str(number))
    clock.seconds = 61.0
    counts = [complaints.note(f"new {number}") for number in range(SOURCES_AT_ONCE)]
    assert sum(counts) == SOURCES_AT_ONCE - 1 + 1 + 4
