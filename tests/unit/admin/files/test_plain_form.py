"""The form of files without a descriptor: by their name, by their first line, or by what is said."""

import gzip
import io
from pathlib import Path

import pytest

from tests.support.item_files import CSV, described, entries_of, field, told, written
from xbus.admin.files.item_file import CollectBadLines, ItemFile
from xbus.admin.files.text import AS_NAMED, PlainForm
from xbus.errors import XbusError
from xbus.files import CsvForm
from xbus.files.csv_items import delimiter_in

ADA = [{"id": "1", "name": "Doe, Jane"}]


def read(path: Path, form: PlainForm = AS_NAMED) -> tuple[list[object], list[str]]:
    """The items of a file, and what was found out about it."""
    found: list[str] = []
    with ItemFile(path, form=form, tell=found.append) as file:
        return told([*file.entries(lambda _: None)]), found


@pytest.mark.parametrize(
    ("line", "delimiter"),
    [
        ("id,name\n", ","),
        ("id;name\n", ";"),
        ("id\tname\n", "\t"),
        ("name\n", ","),
        ("", ","),
        ('"a;b;c",d\n', ","),
        ("name;address, city;zip\n", ";"),
        ("a;b,c\n", ","),
        ('id;"name\n', ";"),
        ("id|name\n", "|"),
        ("id^name\n", "^"),
        ("id~name\n", "~"),
    ],
)
def test_the_first_line_shows_the_delimiter(line: str, delimiter: str) -> None:
    assert delimiter_in(line) == delimiter


@pytest.mark.parametrize(
    ("delimiter", "word"),
    [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars"), ("^", "carets"), ("~", "tildes")],
)
def test_a_delimiter_that_is_no_comma_is_told(tmp_path: Path, delimiter: str, word: str) -> None:
    path = written(tmp_path / "a.csv", f"id{delimiter}name\n1{delimiter}Doe, Jane\n")
    told = f"{path}: its fields are separated by {word}; --delimiter says otherwise"
    assert read(path) == (ADA, [told])
    assert read(path, PlainForm(csv=CsvForm(delimiter))) == (ADA, [])


@pytest.mark.parametrize("has_names", [True, False])
@pytest.mark.parametrize("mark", [":", "#", "§", "/", "\x01", "\x1f", "·"])
def test_a_delimiter_that_nobody_looks_for_is_told(tmp_path: Path, mark: str, has_names: bool) -> None:
    path = written(tmp_path / "a.csv", f"id{mark}name\n1{mark}Ada\n\n2{mark}Bob")
    items, found = read(path, PlainForm(csv=CsvForm(has_names=has_names)))
    assert len(items) == (2 if has_names else 3)
    told = f"{path}: its rows have one field, and each has {mark!r} as often; --delimiter says otherwise"
    assert found == [told]
    assert read(path, PlainForm(csv=CsvForm(",", has_names=has_names)))[1] == []


@pytest.mark.parametrize(
    "content",
    [
        "name\nAda\nBob\n",
        "full name\nAda Lovelace\n",
        "a:b\n1:2\n3\n",
        "a:b\n1:2:3\n",
        "a:b\n",
        '"a:b"\n"1:2"\n',
        '"a:b\nc"\n"1:2\n3"\n',
        "time\n10:30\n",
        "a:b,c\n1:2,3\n",
        "sep=,\na:b\n1:2\n",
    ],
)
def test_a_column_that_shows_no_delimiter_is_not_told(tmp_path: Path, content: str) -> None:
    assert read(written(tmp_path / "a.csv", content))[1] == []


@pytest.mark.parametrize(
    ("first", "delimiter"),
    [
        ("sep=,", ","),
        ("sep=;\r", ";"),
        ('"SEP=|"', "|"),
        ("sep=\t", "\t"),
        ("\n\nsep=#", "#"),
        ("sep=; ", ";"),
        ("sep=;\t ", ";"),
        ("sep=;;;", ";"),
        ("sep=,,,\r", ","),
        ('"sep=;";;', ";"),
        ("sep=\t\t\t", "\t"),
        (" sep=;", ";"),
        ("sep=;,", ","),
        ("sep=;,,\r", ","),
        ("sep=,;;;", ";"),
        ('"sep=,";;', ";"),
        ("sep=;,,", ";"),
    ],
)
def test_a_line_of_a_spreadsheet_says_the_delimiter(tmp_path: Path, first: str, delimiter: str) -> None:
    path = written(
        tmp_path / "a.csv", f"{first}\nid{delimiter}name\n1{delimiter}Doe, Jane\n".replace("Doe, Jane", '"Doe, Jane"')
    )
    assert read(path)[0] == ADA
    assert read(path, PlainForm(csv=CsvForm(delimiter))) == (ADA, [])


def test_rows_without_names_are_lists(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "1;Ada\n2;Bob\n3\n")
    without_names = PlainForm(csv=CsvForm(has_names=False))
    assert read(path, without_names)[0] == [["1", "Ada"], ["2", "Bob"], "3: 1 fields, but the first row has 2"]


def test_what_is_said_counts_more_than_the_first_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "a;b,c;d\n1;2,3;4\n")
    assert read(path, PlainForm(csv=CsvForm(","))) == ([{"a;b": "1;2", "c;d": "3;4"}], [])
    path = written(tmp_path / "b.csv", "id|name\n1|Doe, Jane\n")
    assert read(path, PlainForm(csv=CsvForm("|"))) == (ADA, [])


def test_fields_of_tsv_are_separated_by_tabs(tmp_path: Path) -> None:
    path = written(tmp_path / "a.TSV", 'id\tname\n1\t"Doe, Jane"\n')
    assert read(path) == (ADA, [])
    assert read(written(tmp_path / "one.tsv", "a;b\n1;2\n")) == ([{"a;b": "1;2"}], [])


@pytest.mark.parametrize("name", ["a.csv.gz", "a.CSV.GZ"])
def test_a_packed_file_is_unpacked(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, gzip.compress(b'id,name\n1,"Doe, Jane"\n'))
    assert read(path) == (ADA, [])
    path = written(tmp_path / "values.jsonl.gz", gzip.compress(b"1\n2\n"))
    assert read(path) == ([1, 2], [])


def test_a_file_that_is_packed_is_unpacked_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b'id,name\n1,"Doe, Jane"\n')
    path = written(tmp_path / "a.csv", packed)
    assert read(path) == (ADA, [])
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        assert read(Path("-"), PlainForm("csv")) == (ADA, [])


def test_a_packed_file_may_have_a_descriptor(tmp_path: Path) -> None:
    descriptor = described(tmp_path, CSV, field("name", "1"))
    path = written(tmp_path / "clients.gz", gzip.compress(b"NAME\nAda\n"))
    assert told(entries_of(path, descriptor)) == [{"name": "Ada"}]


def test_the_bytes_of_a_packed_file_are_told_as_they_are_on_the_disk(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl.gz", gzip.compress(b"1\n" * 50_000))
    counts: list[int] = []
    with ItemFile(path) as file:
        assert sum(1 for _ in file.entries(counts.append)) == 50_000
    assert sum(counts) == file.size == path.stat().st_size


@pytest.mark.parametrize(
    "content", [b"id\n1\n", gzip.compress(b"id\n" + b"1\n" * 100_000)[:100], b""], ids=["plain", "cut", "empty"]
)
def test_a_packed_file_that_is_damaged_is_refused(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path / "a.csv.gz", content)
    if not content:
        assert read(path) == ([], [])
        return
    with pytest.raises(XbusError) as refused:
        read(path)
    assert refused.value.code == "unreadable_file"
    assert refused.value.cause.startswith(f"{path} can't be unpacked (")


def test_bad_lines_of_a_packed_file_are_collected_as_text(tmp_path: Path) -> None:
    path, to = written(tmp_path / "a.csv.gz", gzip.compress(b"id;name\n1;x;y\n")), tmp_path / "bad.csv"
    with ItemFile(path) as file, CollectBadLines(lambda _: None, to) as bad:
        for entry in file.entries(lambda _: None):
            bad.meet(file, entry, entry.fault)
        bad.finish()
    assert to.read_text().splitlines()[1] == "id;name"
    assert to.read_text().splitlines()[-1] == "1;x;y"


def test_what_is_said_of_a_file_counts_more_than_its_name(tmp_path: Path) -> None:
    assert read(written(tmp_path / "export.txt", "1\n"), PlainForm("jsonl")) == ([1], [])
    assert read(written(tmp_path / "export", "id\tname\n1\tDoe, Jane\n"), PlainForm("tsv")) == (ADA, [])
