"""Aligned columns."""

from xbus.admin.table import table


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
    assert [*table(("A",), [("two\nlines \x1b[2J",)])] == ["A", "two lines \ufffd[2J"]
