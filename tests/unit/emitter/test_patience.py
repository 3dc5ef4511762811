"""How long to insist."""

from datetime import UTC, datetime

from xbus.emitter.patience import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, EmitterPatience, told_seconds
from xbus.errors import ConnectionLost, Failed, TimedOut


class HandClock:
    """A clock that is set by hand."""

    seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


def test_delays_grow_up_to_a_limit() -> None:
    patience = EmitterPatience(1000, HandClock())
    delays = [patience.failed() for _ in range(8)]
    assert delays[:3] == [FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS, 4 * FIRST_DELAY_SECONDS]
    assert delays[-1] == LONGEST_DELAY_SECONDS


def test_it_ends_after_the_time_since_the_first_failure() -> None:
    clock = HandClock()
    patience = EmitterPatience(30, clock)
    patience.failed()
    clock.seconds = 29.99
    last = patience.failed()
    assert last is not None
    assert last < 0.01, "it leaves time for another try"
    clock.seconds = 30
    assert patience.failed() is None


def test_a_success_begins_anew() -> None:
    clock = HandClock()
    patience = EmitterPatience(30, clock)
    patience.failed()
    patience.succeeded()
    clock.seconds = 40
    assert patience.failed() == FIRST_DELAY_SECONDS


def test_a_row_that_was_begun_counts_from_its_beginning() -> None:
    clock = HandClock()
    patience = EmitterPatience(30, clock)
    assert patience.left == 30
    patience.begin()
    clock.seconds = 29
    patience.begin()
    assert (patience.left, patience.limit(5), patience.failed()) == (1, 1, FIRST_DELAY_SECONDS)
    clock.seconds = 31
    assert (patience.left, patience.failed()) == (0, None)


def test_a_pause_is_no_failure_and_may_last_longer() -> None:
    clock = HandClock()
    patience = EmitterPatience(1, clock, pause_seconds=3600)
    paused = Failed("paused by bob", "resume it", code="paused")
    for second in range(0, 3600, 30):
        clock.seconds = second
        assert patience.paused()
        assert 0 < patience.delay_after(paused) <= 0.5, "it asks again within its second"
    clock.seconds = 3600
    assert not patience.paused()


def test_it_waits_as_long_as_the_bus_asks_within_its_time() -> None:
    clock = HandClock()
    patience = EmitterPatience(30, clock)
    asked = Failed("too fast", code="slow_down", details={"seconds": 12.5})
    assert patience.failed(told_seconds(asked)) == 12.5
    clock.seconds = 20
    assert patience.failed(told_seconds(asked)) is None
    assert patience.failed(told_seconds(Failed("away", code="journal_unavailable"))) is not None


def test_without_repeats_no_time_out_is_shortened() -> None:
    patience = EmitterPatience(0, HandClock())
    patience.begin()
    assert patience.limit(5) == 5


def test_an_error_given_up_on_keeps_class_code_and_gets_a_next_step() -> None:
    patience = EmitterPatience(30, HandClock())
    error = patience.given_up(TimedOut("no answer"))
    assert isinstance(error, TimedOut)
    assert (error.code, bool(error.next_step)) == ("timed_out", True)
    assert patience.given_up(ConnectionLost("gone", "look there")).next_step == "look there"


def test_an_error_names_the_time_only_where_it_was_insisted() -> None:
    assert "within 30 s" in str(EmitterPatience(30, HandClock()).given_up(TimedOut("no answer")))
    assert "within" not in str(EmitterPatience(0, HandClock()).given_up(TimedOut("no answer")))
