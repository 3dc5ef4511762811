"""Items out of files."""

from pathlib import Path
from typing import Any

import pytest

from xbus.admin.items import ItemFile
from xbus.errors import XbusError


def items_of(path: Path) -> list[Any]:
    with ItemFile(path) as items:
        return [*items.read(lambda _: None)]


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_row_of_csv_is_a_dictionary(tmp_path: Path) -> None:
    path = file(tmp_path, "clients.csv", 'id,name\n1,"Doe, Jane"\n2,"two\nlines"\n')
    assert items_of(path) == [{"id": "1", "name": "Doe, Jane"}, {"id": "2", "name": "two\nlines"}]


def test_a_line_of_json_is_any_value(tmp_path: Path) -> None:
    path = file(tmp_path, "values.jsonl", '{"a": [1, null]}\n\n"text"\n3.5')
    assert items_of(path) == [{"a": [1, None]}, "text", 3.5]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert items_of(file(tmp_path, "a.CSV", b"\xef\xbb\xbfid\r\n7\r\n")) == [{"id": "7"}]


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl"])
def test_an_empty_file_has_no_items(tmp_path: Path, name: str) -> None:
    assert items_of(file(tmp_path, name, "")) == []


def test_the_bytes_that_were_read_are_told(tmp_path: Path) -> None:
    told: list[int] = []
    with ItemFile(file(tmp_path, "values.jsonl", '1\n"é"\n')) as items:
        assert [*items.read(told.append)] == [1, "é"]
        assert told == [2, 5]
        assert items.size == 7


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a.csv", "id,name\n1,x\n2\n", ":3: 1 fields, but the first line names 2"),
        ("a.csv", "id,name\n1,x,y\n", ":2: 3 fields, but the first line names 2"),
        ("a.csv", "id,id\n", ":1: a column is named twice"),
        ("a.csv", 'id\n"a"b\n', ":2: this is not CSV"),
        ("a.csv", 'id\n"a\n', ":2: this is not CSV"),
        ("a.csv", b"id\n1\n\xff\n", ":3: this is not text in UTF-8"),
        ("a.jsonl", '1\n{"a": }\n', ":2: this is not JSON"),
        ("a.jsonl", "1\n\n[NaN]\n", ":3: this is not JSON (NaN is no value of JSON)"),
        ("a.jsonl", b'"\xff"\n', ":1: this is not text in UTF-8"),
    ],
)
def test_a_wrong_line_is_told_with_file_and_line(tmp_path: Path, name: str, content: str | bytes, where: str) -> None:
    path = file(tmp_path, name, content)
    with pytest.raises(XbusError) as refused:
        items_of(path)
    assert refused.value.code == "bad_line"
    assert refused.value.cause.startswith(f"{path}{where}")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match=r"neither \.csv nor \.jsonl"):
        ItemFile(tmp_path / "a.xlsx")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match=r"can't be read \(No such file or directory\)"):
        ItemFile(tmp_path / "a.csv")
