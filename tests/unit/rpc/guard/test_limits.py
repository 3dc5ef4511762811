"""The connections that go beyond the limits are cut off, and no others."""

from xbus.rpc.guard.connections import Connection
from xbus.rpc.guard.limits import ENDLESS, READ_AHEAD, UNREAD_ANSWERS, Traffic, TrafficLimits, judge

LIMITS = TrafficLimits(message=100, stranger=10, ahead=400, unsent=50)


def of(number: int, *, ahead: int = 0, endless: int = 0, unsent: int = 0, is_known: bool = True) -> Traffic:
    return Traffic(Connection(number, 0.0, is_known=is_known), ahead, endless, unsent)


def judged(*measured: Traffic) -> dict[int, str]:
    cut: dict[int, str] = {}
    judge(measured, LIMITS, lambda connection, reason: cut.update({connection.descriptor: reason}))
    return cut


def test_who_stays_within_the_limits_is_left_alone() -> None:
    assert judged(of(1, ahead=400, endless=100, unsent=50), of(2, ahead=10, endless=10, is_known=False)) == {}


def test_each_limit_has_its_reason() -> None:
    assert judged(of(1, unsent=51), of(2, ahead=401, is_known=False), of(3, ahead=101, endless=101)) == {
        1: UNREAD_ANSWERS,
        2: READ_AHEAD,
        3: ENDLESS,
    }
    assert judged(of(1, ahead=11, endless=11, is_known=False)) == {1: ENDLESS}


def test_the_largest_goes_where_all_together_take_too_much() -> None:
    many = [of(number, ahead=300) for number in range(10, 20)]
    assert judged(*many, of(9, ahead=399), of(20, ahead=2)) == {9: READ_AHEAD}
    assert judged(*(of(number, unsent=50) for number in range(8)), of(9, unsent=49)) == {0: UNREAD_ANSWERS}


def test_one_that_has_proven_who_calls_may_have_more_read_ahead() -> None:
    assert judged(of(1, ahead=1600)) == {}
    assert judged(of(1, ahead=1601)) == {1: READ_AHEAD}


def test_strangers_together_take_little_and_the_largest_goes() -> None:
    assert judged(*(of(number, ahead=number, endless=number, is_known=False) for number in range(5))) == {}
    assert judged(*(of(number, ahead=number, endless=number, is_known=False) for number in range(6))) == {5: ENDLESS}
