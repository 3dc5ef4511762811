"""When a recipient counts as lost."""

from xbus.supervision.liveness import Liveness


def test_lost_after_so_many_misses_in_a_row() -> None:
    liveness = Liveness(misses=2)
    assert not liveness.is_lost
    liveness.missed()
    assert not liveness.is_lost
    liveness.missed()
    assert liveness.is_lost


def test_an_answer_makes_earlier_misses_count_no_more() -> None:
    liveness = Liveness(misses=2)
    liveness.missed()
    liveness.answered()
    liveness.missed()
    assert not liveness.is_lost
