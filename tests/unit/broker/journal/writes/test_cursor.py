"""A cursor against the obvious way to keep the same: a set of positions."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from xbus.broker.journal.writes.cursor import Cursor

POSITIONS = st.integers(1, 80)


class CursorAgainstASet(RuleBasedStateMachine):
    """Any way of settling positions leaves the cursor at what the set says."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(role_id=1, from_position=1, until_position=None, position=0)
        self.settled: set[int] = set()

    @rule(position=POSITIONS)
    def settle(self, position: int) -> None:
        self.cursor.settle(position)
        self.settled.add(position)

    @rule(first=POSITIONS, length=st.integers(0, 30))
    def settle_range(self, first: int, length: int) -> None:
        self.cursor.settle_range(first, first + length - 1)
        self.settled.update(range(first, first + length))

    @rule(position=POSITIONS)
    def hand_over(self, position: int) -> None:
        self.cursor.handed_to = max(self.cursor.handed_to, position)

    @rule()
    def store(self) -> None:
        self.cursor.above = Cursor.from_bitmap(self.cursor.bitmap())

    @invariant()
    def same_positions(self) -> None:
        assert {position for position in range(1, 200) if self.cursor.is_settled(position)} == self.settled

    @invariant()
    def position_is_the_end_of_the_settled_start(self) -> None:
        expected = next(position for position in range(200) if position + 1 not in self.settled)
        assert self.cursor.position == expected

    @invariant()
    def unsettled_are_those_below_the_hand_over(self) -> None:
        handed_over = set(range(1, self.cursor.handed_to + 1))
        assert self.cursor.unsettled() == sorted(handed_over - self.settled)

    @invariant()
    def it_reaches_as_far_as_so_many_are_unsettled(self) -> None:
        reach = self.cursor.reach(80)
        assert len(set(range(1, reach + 1)) - self.settled) == 80
        assert reach == max(reach, *self.settled, 0)

    @invariant()
    def the_bitmap_holds_no_more_than_it_must(self) -> None:
        above = [position for position in self.settled if position > self.cursor.position]
        highest = max(above, default=self.cursor.position)
        assert len(self.cursor.bitmap()) == (highest - self.cursor.position + 7) // 8


CursorAgainstASet.TestCase.settings = settings(deadline=None)
TestCursorAgainstASet = CursorAgainstASet.TestCase


@given(st.integers(1, 50), st.one_of(st.none(), st.integers(1, 50)), st.integers(1, 50))
def test_a_role_is_owed_its_part_of_the_log(start: int, end: int | None, position: int) -> None:
    cursor = Cursor(1, start, end, start - 1)
    assert cursor.owes(position) == (position in range(start, 1000 if end is None else end))


def test_the_bitmap_is_little_endian() -> None:
    cursor = Cursor(1, 1, None, 0)
    cursor.settle(2)
    cursor.settle(10)
    assert cursor.bitmap() == bytes([0b0000_0010, 0b0000_0010])


def test_a_rare_type_leaves_its_few_envelopes_unsettled_among_millions() -> None:
    cursor = Cursor(role_id=1, from_position=1, until_position=None, position=4, handed_to=8_000_064)
    cursor.settle_range(6, 7_999_999)
    cursor.settle_range(8_000_001, 8_000_060)
    assert cursor.unsettled() == [5, 8_000_000, *range(8_000_061, 8_000_065)]
