"""Pages are as large as they may be, and never empty."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.journal.database.paging import first_page, pages

ROWS = [("a", 3), ("b", 3), ("c", 9), ("d", 1), ("e", 4)]


def test_rows_are_added_until_they_would_be_too_large() -> None:
    assert [[name for name, _ in page] for page in pages(ROWS, 6)] == [["a", "b"], ["c"], ["d", "e"]]


def test_the_first_page_is_the_first_of_all() -> None:
    assert first_page(ROWS, 6) == ROWS[:2]
    assert first_page(ROWS, 1) == ROWS[:1]
    assert first_page(ROWS, 100) == ROWS
    assert not first_page([], 6)


@given(st.lists(st.integers(0, 20)), st.integers(0, 40))
def test_no_row_is_lost_and_no_page_has_room_for_the_next(sizes: list[int], max_bytes: int) -> None:
    rows = list(enumerate(sizes))
    found = list(pages(rows, max_bytes))

    assert [row for page in found for row in page] == rows
    assert all(len(page) == 1 or sum(size for _, size in page) <= max_bytes for page in found)
    assert all(sum(size for _, size in [*page, following[0]]) > max_bytes for page, following in pairwise(found))
