"""A line of values: it stays in its field, ends at gaps, and each value has its words."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from xbus.monitor.drawings.plot import NUMBER, SECONDS, LinePlot, PlotValue, plot

BEGIN = datetime(2026, 2, 28, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def drawn(*values: float | None, about: str = "") -> LinePlot:
    """A plot of values, ten seconds each."""
    spans = [(BEGIN + 10 * number * SECOND, BEGIN + 10 * (number + 1) * SECOND) for number in range(len(values))]
    made = [PlotValue(*span, value, about) for span, value in zip(spans, values, strict=True)]
    return plot("some", "Some", NUMBER, made, BEGIN, BEGIN + 10 * max(len(values), 1) * SECOND)


def test_a_line_goes_from_value_to_value() -> None:
    drawing = drawn(0, 10, 5)
    assert len(drawing.lines) == len(drawing.areas) == 1
    assert [spot.y for spot in drawing.spots] == [drawing.bottom, drawing.top, (drawing.top + drawing.bottom) / 2]
    first, _, last = drawing.spots
    assert first.left == drawing.left
    assert round(last.left + last.width, 6) == drawing.right
    assert (first.is_late, last.is_late) == (False, True)


def test_the_line_ends_where_nobody_looked() -> None:
    drawing = drawn(1, 2, None, None, 3, 4, None, 5)
    assert len(drawing.lines) == 3
    assert len(drawing.areas) == 2
    assert len(drawing.spots) == 5


def test_a_value_says_when_and_what() -> None:
    (spot,) = drawn(1234, about="and <more>").spots
    assert spot.text == "1.23k"
    assert spot.about == "2026-02-28 12:00:00Z: 1.23k, and <more>"


def test_the_plot_in_a_sentence() -> None:
    assert drawn(1, 7, 3).summary == "Last 3 at 2026-02-28 12:00Z; at most 7 at 2026-02-28 12:00Z."
    for nothing in (drawn(), drawn(None, None)):
        assert nothing.summary == "No monitor ran in this time."
        assert (nothing.lines, nothing.spots) == ([], [])
        assert nothing.values


def test_an_axis_has_the_texts_of_its_unit() -> None:
    values = [PlotValue(BEGIN, BEGIN + SECOND, 120.0)]
    drawing = plot("late", "Late", SECONDS, values, BEGIN, BEGIN + SECOND)
    assert [tick.text for tick in drawing.values] == ["0 s", "30 s", "1 min", "1.5 min", "2 min"]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=50))
def test_nothing_leaves_the_field(values: list[float | None]) -> None:
    drawing = drawn(*values)
    for spot in drawing.spots:
        assert drawing.left <= spot.x <= drawing.right
        assert drawing.top - 0.1 <= spot.y <= drawing.bottom + 0.1
