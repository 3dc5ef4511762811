"""Rows of CSV are those of the library's reader, where that loses nothing."""

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.files.csv_items import CsvForm, CsvItems, Row, RowReader
from xbus.files.text_lines import LineDecoder, TextDecoder, TextLine


def lines_of(text: str) -> list[TextLine]:
    decoder = LineDecoder(TextDecoder(), is_universal=True)
    return [*decoder.take(text.encode()), *decoder.take(b"", is_last=True)]


def rows_of(text: str, reader: RowReader) -> list[Row]:
    return [*(row for line in lines_of(text) for row in reader.take(line)), *reader.finish()]


def rows_of_the_library(text: str, escape: str) -> Sequence[Sequence[str]] | None:
    """The rows of the library; None for a text with a fault."""
    left = len(lines_of(text))

    def lines() -> Iterator[str]:
        nonlocal left
        for line in lines_of(text):
            left -= 1
            yield line.text
        left -= 1

    form = {"escapechar": escape} if escape else {"strict": True}
    rows = []
    reader = csv.reader(lines(), **form)
    while left > 0:
        try:
            rows.append(next(reader))
        except csv.Error:
            return None
    # The library takes the end of the file for that of a quoted field.
    return rows if left == 0 else None


@pytest.mark.parametrize("escape", ["", "\\"])
@given(st.text('ab,,""\\\n\r', max_size=30))
def test_rows_are_those_of_the_library(escape: str, text: str) -> None:
    expected = rows_of_the_library(text, escape)
    found = rows_of(text, RowReader(",", escape, is_strict=not escape))
    if expected is not None and not any(row.fault for row in found):
        assert [row.fields for row in found] == expected
    elif not escape:
        assert expected is None
        assert any(row.fault for row in found)


# A short text with zeros is taken for UTF-16, and refused.
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), min_size=2, max_size=2),
        max_size=5,
    )
)
def test_what_is_written_is_read(rows: list[list[str]]) -> None:
    text = "".join(",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row) + "\r\n" for row in rows)
    assert [row.fields for row in rows_of(text, RowReader(","))] == rows


@given(st.text('ab,"\n', max_size=60))
def test_every_line_is_in_a_row(text: str) -> None:
    reader = RowReader(",")
    reader.columns = 2
    lines = [line for row in rows_of(text, reader) for line in row.lines]
    assert lines == lines_of(text)


def calls_of(read: Callable[[], object]) -> int:
    """The functions that are called while something is read."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        read()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("line", "escape"), [('x","\n', ""), ('",x","\n', ""), ("x\\\n", "\\"), ("1,C:\\temp\\\n", "\\")]
)
def test_the_work_of_reading_lines_anew_grows_with_the_lines_alone(line: str, escape: str) -> None:
    reader = RowReader(",", escape, is_strict=not escape)
    reader.columns = 2
    rows: list[Row] = []
    calls = calls_of(lambda: rows.extend(rows_of(line * 400, reader)))
    assert len(rows) == 400
    assert calls < 400 * 100


def test_rows_behind_a_bad_one_are_read_when_they_are_asked_for() -> None:
    reader = RowReader(",")
    reader.columns = 2
    lines = lines_of('1,"x\n' + "2,y\n" * 400 + 'z" \n')
    rows = [row for line in lines[:-1] for row in reader.take(line)]
    assert not rows
    found: list[Row] = []
    calls = calls_of(lambda: found.append(next(iter(reader.take(lines[-1])))))
    assert found[0].fault
    assert found[0].raw() == '1,"x\n'
    assert calls < 100


@pytest.mark.parametrize("filler", [" ", "\t"])
def test_a_line_that_nearly_says_the_delimiter_costs_no_more_than_another(filler: str) -> None:
    begun = time.process_time()
    items = CsvItems(CsvForm(has_names=False), TextDecoder())
    found = [*items.take(TextLine(1, f"sep={filler * 28}x\n"))]
    assert [entry.fault for entry in found] == [""]
    assert time.process_time() - begun < 5
