"""Log-ins are told to the audit one by one, and as sums where they are many."""

from datetime import timedelta

from tests.support.clock import StandingClock
from xbus.broker.logins.tally import MOST_REFUSED, QUIET_SECONDS, LoginTally


def test_the_first_log_in_is_told_at_once_and_the_next_ones_as_a_sum() -> None:
    clock = StandingClock()
    tally = LoginTally("emitter", clock)
    began = clock.now()
    tally.note("login_accepted", "north", "10.0.0.1")
    (first,) = tally.take_due()
    assert (first.at, first.who, first.origin, first.action) == (began, "north", "10.0.0.1", "login_accepted")
    assert (first.object, first.after) == ('emitter "north"', "")

    for _ in range(3):
        clock.go_on(10)
        tally.note("login_accepted", "north", "10.0.0.1")
    assert tally.take_due() == []
    clock.go_on(QUIET_SECONDS)
    (then,) = tally.take_due()
    last = began + timedelta(seconds=30)
    assert (then.at, then.after) == (began + timedelta(seconds=10), f"3 times until {last:%Y-%m-%d %H:%M:%SZ}")
    assert tally.take_due() == []


def test_outcomes_logins_and_addresses_are_told_apart() -> None:
    tally = LoginTally("role", StandingClock())
    tally.note("login_accepted", "store_1", "10.0.0.1")
    tally.note("login_refused", "store_1", "10.0.0.1")
    tally.note("login_refused", "store_1", "10.0.0.2")
    tally.note("login_refused", "store_2", "10.0.0.1")
    assert len(tally.take_due()) == 4


def test_a_flood_of_refusals_leaves_few_rows_and_every_one_is_counted() -> None:
    clock = StandingClock()
    tally = LoginTally("emitter", clock)
    for number in range(10_000):
        tally.note("login_refused", f"guess {number}" + "x" * 1000, f"10.0.{number % 200}.1")
    acts = tally.take_due()
    assert len(acts) == 2 * MOST_REFUSED + 1
    assert max(len(act.who) for act in acts) == 64
    counted = [1 if not act.after else int(act.after.split()[0]) for act in acts]
    assert sum(counted) == 10_000
    assert (acts[-1].who, acts[-1].origin, acts[-1].object) == ("others", "others", "emitters")
    # Who knows a password keeps a row of its own meanwhile.
    tally.note("login_accepted", "north", "10.0.0.1")
    (accepted,) = tally.take_due()
    assert accepted.who == "north"


def test_after_a_flood_refusals_are_told_one_by_one_again() -> None:
    clock = StandingClock()
    tally = LoginTally("emitter", clock)
    for number in range(100):
        tally.note("login_refused", f"guess {number}", "10.0.0.1")
    tally.take_due()
    clock.go_on(QUIET_SECONDS)
    assert tally.take_due() == []
    tally.note("login_refused", "north", "10.0.0.1")
    assert [act.who for act in tally.take_due()] == ["north"]


def test_the_end_tells_all_that_was_counted() -> None:
    tally = LoginTally("emitter", StandingClock())
    for _ in range(3):
        tally.note("login_refused", "north", "10.0.0.1")
        tally.take_due()
    (rest,) = tally.take_due(is_last=True)
    assert rest.after.startswith("2 times until")
