"""Callers with long work rest behind each piece of it, while somebody calls who has none."""

import pytest

from xbus.rpc.rests import CALLING_SECONDS, LONG_SECONDS, MOST_SECONDS, Rests

MANY_BYTES = 100 * 1024 * 1024


class Callers:
    """Callers, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rests = Rests(lambda: self.now)

    def short(self, *whose: str) -> None:
        for who in whose:
            self.rests.note_short(who, f"connection of {who}")

    def rest_of(self, who: str, took: float, size: int = 0) -> float:
        """The seconds that somebody rests behind a piece of work that took so long."""
        self.rests.note_long(who)
        return self.rests.seconds(who, self.now - took, size)


@pytest.fixture
def callers() -> Callers:
    return Callers()


def test_who_calls_alone_never_rests(callers: Callers) -> None:
    for _ in range(3):
        assert callers.rest_of("deep", 0.2) == 0
        callers.short("deep")


def test_callers_that_all_have_long_work_don_t_rest_for_each_other(callers: Callers) -> None:
    assert [callers.rest_of(who, 0.2) for who in ("deep", "other", "deep")] == [0, 0, 0]


def test_beside_a_short_call_one_rests_for_as_long_as_its_work_took(callers: Callers) -> None:
    callers.rests.note_long("deep")
    callers.short("honest")
    assert callers.rest_of("deep", 0.2) == pytest.approx(0.2)


def test_two_short_callers_are_known_before_the_first_long_call(callers: Callers) -> None:
    callers.short("honest", "deep")
    assert callers.rest_of("deep", 0.2) == pytest.approx(0.2)


def test_when_the_other_calls_no_more_nobody_rests(callers: Callers) -> None:
    callers.rests.note_long("deep")
    callers.short("honest")
    callers.now += CALLING_SECONDS
    assert not callers.rests.are_due
    assert callers.rest_of("deep", 0.2) == 0


def test_nobody_rests_for_short_calls_of_its_own(callers: Callers) -> None:
    callers.rests.note_long("deep", "another name of deep")
    callers.rests.note_short("deep", "connection")
    callers.rests.note_short("third name", "another name of deep")
    assert callers.rest_of("deep", 0.2) == 0


def test_one_that_has_no_long_work_any_more_is_as_the_others(callers: Callers) -> None:
    callers.rests.note_long("reformed")
    callers.now += LONG_SECONDS
    callers.rests.note_long("deep")
    callers.short("reformed")
    assert callers.rest_of("deep", 0.2) == pytest.approx(0.2)


def test_who_sends_many_bytes_rests_for_up_to_three_times_as_long(callers: Callers) -> None:
    callers.rests.note_long("deep")
    callers.short("honest")
    rests = [callers.rest_of("deep", 0.1, size) for size in (0, 512 * 1024, 1024 * 1024, MANY_BYTES)]
    assert rests == pytest.approx([0.1, 0.15, 0.2, 0.3])


def test_several_that_flood_share_the_half_of_the_time(callers: Callers) -> None:
    callers.rests.note_long("deep")
    callers.short("honest")
    callers.rest_of("deep", 0.1)
    assert [callers.rest_of(who, 0.1) for who in ("second", "deep", "third")] == pytest.approx([0.2, 0.2, 0.3])
    callers.now += LONG_SECONDS
    callers.short("honest")
    assert callers.rest_of("deep", 0.1) == pytest.approx(0.1)


def test_no_rest_is_longer_than_a_second(callers: Callers) -> None:
    callers.rests.note_long("deep")
    callers.short("honest")
    assert callers.rest_of("deep", 3600.0, MANY_BYTES) == MOST_SECONDS


def test_those_that_have_gone_are_forgotten(callers: Callers) -> None:
    for number in range(100):
        callers.rests.note_long(number)
        callers.now += LONG_SECONDS / 10
    assert len(callers.rests.long) <= 11
