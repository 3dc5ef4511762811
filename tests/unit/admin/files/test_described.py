"""Files of columns by a descriptor, where they are not as they should be; the good ones are in test_recorded."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.item_files import CSV, LINES, described, entries_of, field, told, written
from xbus.admin.files.item_file import ItemFile

INT, DECIMAL, DATE = "<type>int</type>", "<type>decimal</type>", '<type format="%d.%m.%Y">date</type>'


def test_a_bad_line_of_csv_is_told_with_line_and_field(tmp_path: Path) -> None:
    descriptor = described(
        tmp_path,
        CSV,
        field("number", "1", INT, mandatory="true"),
        field("net", "2", DECIMAL),
        field("day", "3", DATE, ' strict="true"'),
        field("code", "4", '<type>string</type><length min="2" max="3"/>'),
    )
    lines = [
        "a;b;c;d",
        "1;2;1.1.2020;abc",
        ";;;abc",
        "x;;;abc",
        '1;"a\nb";;abc',
        "1;;31.2.2020;abc",
        "1;;;abcd",
        "1;;;",
        "1;;",
        "",
        "1;;;abc;",
        "2;;;xy",
    ]
    assert told(entries_of(written(tmp_path / "a", "\n".join(lines)), descriptor)) == [
        {"number": 1, "net": 2.0, "day": "2020-01-01", "code": "abc"},
        "3: field number: it is mandatory, but empty",
        "4: field number: 'x' is no whole number",
        "5: field net: 'a\\nb' is no decimal number without groups and '.' before the decimals",
        "7: field day: '31.2.2020' is no date like %d.%m.%Y",
        "8: field code: 4 characters, at most 3 are allowed",
        "9: field code: 0 characters, at least 2 are wanted",
        "10: 3 fields, but the descriptor has 4",
        "11: 0 fields, but the descriptor has 4",
        "12: 5 fields, but the descriptor has 4",
        {"number": 2, "net": None, "day": None, "code": "xy"},
    ]


def test_an_open_quote_is_not_closed_by_the_end_of_the_file(tmp_path: Path) -> None:
    descriptor = described(tmp_path, CSV, field("a", "1"), field("b", "2"))
    assert told(entries_of(written(tmp_path / "a", 'a;b\n1;"2\n3;4\n'), descriptor)) == [
        "2: this is not CSV (a quoted field is still open where the file ends)",
        {"a": "3", "b": "4"},
    ]


def test_an_open_quote_is_not_closed_within_a_later_row(tmp_path: Path) -> None:
    descriptor = described(tmp_path, CSV, field("a", "1"), field("b", "2"))
    content = 'a;b\n1;"2\n3;4\n5;"6"\n"7"7;8\n'
    assert told(entries_of(written(tmp_path / "a", content), descriptor)) == [
        "2: this is not CSV (';' expected after '\"')",
        {"a": "3", "b": "4"},
        {"a": "5", "b": "6"},
        {"a": "77", "b": "8"},
    ]


def test_the_encoding_of_the_call_goes_before_that_of_the_descriptor(tmp_path: Path) -> None:
    descriptor = described(tmp_path, CSV + "<encoding>latin-1</encoding>", field("a", "1"))
    assert told(entries_of(written(tmp_path / "a", "a\né\n".encode("latin-1")), descriptor)) == [{"a": "é"}]
    assert told(entries_of(written(tmp_path / "a", "a\né\n"), descriptor, "utf-8")) == [{"a": "é"}]


def test_a_bad_line_of_fixed_length_is_told_with_line_and_field(tmp_path: Path) -> None:
    descriptor = described(
        tmp_path,
        LINES,
        field("name", "1", "<type>string</type><length>3</length>", mandatory="true"),
        field("count", "2", "<type>int</type><length>2</length>", ' strict="true"'),
    )
    content = b"Ada 1\nBob12345\nBob\n\n   12\nBobxx\n" + b"B\xffb12\nEve 2"
    assert told(entries_of(written(tmp_path / "a", content), descriptor)) == [
        {"name": "Ada", "count": 1},
        "2: 8 characters, but the descriptor has 5",
        "3: 3 characters, but the descriptor has 5",
        "4: 0 characters, but the descriptor has 5",
        "5: field name: it is mandatory, but empty",
        "6: field count: 'xx' is no whole number",
        "7: this is not text in UTF-8",
        {"name": "Eve", "count": 2},
    ]


def test_a_bad_record_is_told_with_number_and_place(tmp_path: Path) -> None:
    form = LINES.replace("</format>", "<splitlength>4</splitlength></format>")
    descriptor = described(tmp_path, form, field("count", "1", "<type>int</type><length>4</length>", mandatory="true"))
    assert told(entries_of(written(tmp_path / "a", "   1x  \n   2  3"), descriptor)) == [
        {"count": 1},
        "1: record 2 at character 4: 3 characters, but the descriptor has 4",
        {"count": 2},
        "2: record 4 at character 12: the file ends after 3 of 4 characters",
    ]
    assert told(entries_of(written(tmp_path / "a", "   1   x   2\n\n"), descriptor)) == [
        {"count": 1},
        "1: record 2 at character 4: field count: 'x' is no whole number",
        {"count": 2},
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


_WORDS = st.text(st.characters(codec="utf-16", exclude_characters="\r\n\0"), max_size=6)


@given(st.lists(st.tuples(_WORDS, _WORDS), max_size=20), st.booleans())
def test_what_is_padded_comes_back(folder: Path, rows: list[tuple[str, str]], has_lines: bool) -> None:
    split = "" if has_lines else "<splitlength>12</splitlength>"
    descriptor = described(
        folder,
        LINES.replace("</format>", f"{split}</format>"),
        *(
            field(name, str(n), "<type>string</type><length>6</length>", ' strip="no"')
            for n, name in ((1, "a"), (2, "b"))
        ),
    )
    padded = [(first.ljust(6), second.ljust(6)) for first, second in rows]
    content = ("\n" if has_lines else "").join(first + second for first, second in padded)
    # utf-8-sig keeps a leading U+FEFF from being taken for a byte order mark of the file.
    with ItemFile(written(folder / "a", content.encode("utf-8-sig")), descriptor) as file:
        items = [entry.item for entry in file.entries(lambda _: None)]
    assert items == [
        {"a": first if first.strip() else None, "b": second if second.strip() else None} for first, second in padded
    ]
