"""The connection that says least is closed first, and no machine takes all."""

import logging

import pytest

from tests.support.clock import StandingClock
from xbus.web.connections import ConnectionLimits, WebConnection, WebConnections

FAR = "192.0.2.%d"


class Crowd:
    """A table of connections, and the names of those that were cut."""

    def __init__(self, most: int, *proxies: str) -> None:
        self.table = WebConnections("server", ConnectionLimits(most, 30.0, 30.0, proxies), StandingClock())
        self.cut: list[str] = []

    def enter(self, name: str, address: str = "127.0.0.1") -> WebConnection | None:
        return self.table.enter(address, lambda: self.cut.append(name))

    def entered(self, name: str, address: str = "127.0.0.1") -> WebConnection:
        found = self.enter(name, address)
        assert found is not None
        return found


def test_the_oldest_silent_stranger_makes_room_and_then_who_is_known() -> None:
    crowd = Crowd(3)
    known = crowd.entered("known")
    known.is_known = True
    known.owes_a_request()
    crowd.entered("first")
    crowd.entered("second").is_answered()
    crowd.entered("third").is_answered()
    assert crowd.cut == ["first"]
    crowd.entered("fourth").is_answered()
    assert crowd.cut == ["first", "known"]
    assert crowd.enter("fifth") is None, "all of them are being answered"
    assert crowd.table.open == 3


def test_who_has_owed_a_request_for_longest_is_first() -> None:
    crowd = Crowd(2)
    first, _ = crowd.entered("first"), crowd.entered("second")
    first.is_answered()
    first.owes_a_request()
    crowd.entered("third")
    assert crowd.cut == ["second"]


def test_a_machine_takes_half_of_all_at_most_whatever_it_does() -> None:
    crowd = Crowd(10)
    for number in range(5):
        crowd.entered(f"busy {number}", FAR % 1).is_answered()
    assert crowd.enter("one more", FAR % 1) is None
    for number in range(20):
        crowd.entered(f"silent {number}", FAR % 2)
    assert crowd.cut == [f"silent {number}" for number in range(15)], "it loses connections of its own"
    crowd.entered("a third machine", FAR % 3)
    assert len(crowd.cut) == 16


@pytest.mark.parametrize("proxy", ["127.0.0.1", "::1", "192.0.2.1", "::ffff:192.0.2.1"])
def test_a_proxy_speaks_for_many(proxy: str) -> None:
    crowd = Crowd(10, "192.0.2.0/30")
    for number in range(10):
        crowd.entered(f"busy {number}", proxy).is_answered()
    assert crowd.cut == []


def test_the_addresses_of_a_network_of_ipv6_are_one_machine() -> None:
    crowd = Crowd(10)
    for number in range(20):
        crowd.entered(f"{number}", f"2001:db8::{number:x}")
    assert len(crowd.cut) == 15


def test_who_left_leaves_room_and_is_not_counted_twice() -> None:
    crowd = Crowd(1)
    first = crowd.entered("first")
    first.left()
    first.left()
    first.owes_a_request()
    crowd.entered("second")
    assert crowd.cut == []
    assert crowd.table.open == 1


def test_a_stranger_never_has_longer_for_a_head_than_who_is_known() -> None:
    assert ConnectionLimits(1, 2.0, 30.0).stranger_seconds == 2.0


def test_a_flood_of_cuts_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    crowd = Crowd(1)
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            crowd.entered(f"{number}").is_unreadable()
    assert len(caplog.records) == 2, "one for each reason"
