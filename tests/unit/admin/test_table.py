"""Aligned columns, fitted to a width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.admin.output import Column, columns_of, table

SENTENCE = Column("CAUSE", narrows=10, breaks=True)


def test_columns_are_aligned() -> None:
    assert [
        *table(("NAME", "ITEMS", "NOTE"), [("a", 1234567, "x"), ("longer", None, None), ("b", 5, "long note")])
    ] == [
        "NAME        ITEMS  NOTE",
        "a       1,234,567  x",
        "longer          -  -",
        "b               5  long note",
    ]


def test_a_table_without_rows_is_its_heads() -> None:
    assert [*table(("A", "B"), [])] == ["A  B"]


def test_a_cell_is_one_line_that_a_terminal_only_shows() -> None:
    assert [*table(("A",), [("two\nlines \x1b[2J",)])] == ["A", "two lines \\x1b[2J"]


def test_an_identifier_is_aligned_as_a_number_and_has_no_separators() -> None:
    assert [*table((Column("POSITION", to_right=True), "N"), [("1234567", "x"), (None, "y")])] == [
        "POSITION  N",
        " 1234567  x",
        "       -  y",
    ]


def test_the_widest_column_is_cut_first() -> None:
    rows = [("a name that is long", "a cause that is longer than all", "id")]
    heads = (Column("NAME", narrows=6), SENTENCE, "ID")
    for width in range(24, 60):
        lines = [*table(heads, rows, width)]
        assert max(map(len, lines)) <= width
        assert all(line.endswith(("ID", "id")) for line in lines)
    assert [*table(heads, rows, 10)][1] == "a nam…  a cause t…  id"
    assert [*table(heads, rows)][1] == "a name that is long  a cause that is longer than all  id"


def test_sentences_go_on_in_further_lines() -> None:
    lines = [*table(("ROLE", SENTENCE, "ID"), [("store_1", "no such carrier at all", "7")], 27, wraps=True)]
    assert lines == ["ROLE     CAUSE           ID", "store_1  no such         7", "         carrier at all"]


def test_a_column_may_be_left_out() -> None:
    heads = ("A", Column("B", wide_only=True), Column("C", optional=True))
    assert [*table(heads, [("a", "b", None)], narrow=True)] == ["A", "a"]
    assert [*table(heads, [("a", "b", "c")], 80, narrow=True)] == ["A  C", "a  c"]
    assert [*table(heads, [("a", "b", "c")])] == ["A  B  C", "a  b  c"]


def test_only_painted_columns_get_colours_and_keep_their_width() -> None:
    heads = (Column("STATE", painted=True), "NOTE")
    lines = [*table(heads, [("done", "done")], 80, paint=lambda text: f"<{text}>")]
    assert lines == ["STATE  NOTE", "<done>   done"]


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("é", 1), ("e\u0301", 1), ("漢字", 4), ("…", 1)])
def test_a_text_takes_columns_of_a_terminal(text: str, columns: int) -> None:
    assert columns_of(text) == columns


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=200)), max_size=5), st.integers(20, 120))
def test_a_list_never_exceeds_the_width_that_it_may_have(rows: list[tuple[str, str]], width: int) -> None:
    heads = (Column("NAME", narrows=6), SENTENCE)
    assert all(columns_of(line) <= width for line in table(heads, rows, width))
