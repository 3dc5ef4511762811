"""Files of CSV and of lines of JSON that need no descriptor."""

import encodings
import gzip
from pathlib import Path
from pkgutil import iter_modules

import pytest

from tests.support.item_files import entries_of, told, written
from xbus.admin.files.item_file import ItemFile
from xbus.errors import XbusError


def test_a_row_of_csv_is_a_dictionary(tmp_path: Path) -> None:
    path = written(tmp_path / "clients.csv", 'id,name\n1,"Doe, Jane"\n\n2,"two\nlines"\n')
    assert told(entries_of(path)) == [{"id": "1", "name": "Doe, Jane"}, {"id": "2", "name": "two\nlines"}]


def test_a_line_of_json_is_any_value(tmp_path: Path) -> None:
    path = written(tmp_path / "values.jsonl", '{"a": [1, null]}\n\n"text"\n3.5')
    assert told(entries_of(path)) == [{"a": [1, None]}, "text", 3.5]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    assert told(entries_of(written(tmp_path / "a.CSV", b"\xef\xbb\xbfid\r\n7\r\n"))) == [{"id": "7"}]


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl"])
def test_an_empty_file_has_no_items(tmp_path: Path, name: str) -> None:
    assert entries_of(written(tmp_path / name, "")) == []


def test_the_bytes_that_were_read_are_told(tmp_path: Path) -> None:
    counts: list[int] = []
    with ItemFile(written(tmp_path / "values.jsonl", "1\n" * 20_000)) as file:
        seen = next(iter(file.entries(counts.append)))
        assert (seen.item, file.size) == (1, 40_000)
        assert 0 < sum(counts) < 20_000, "the file is not read ahead"
        for _ in file.entries(counts.append):
            pass
    assert sum(counts) == 40_000


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-32-le", "cp500"])
def test_a_file_may_be_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    rows = written(tmp_path / "a.csv", "id,name\n1,Müller\n".encode(encoding))
    values = written(tmp_path / "a.jsonl", '"é"\n2\n'.encode(encoding))
    assert told(entries_of(rows, encoding=encoding)) == [{"id": "1", "name": "Müller"}]
    assert told(entries_of(values, encoding=encoding)) == ["é", 2]


@pytest.mark.parametrize(
    "encoding", ["klingon", "hex", "idna", "punycode", "undefined", "unicode_escape", "raw-unicode-escape"]
)
def test_an_encoding_that_is_none_is_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(XbusError, match=f'there is no encoding "{encoding}"') as refused:
        ItemFile(written(tmp_path / "a.csv", "id\n"), encoding=encoding)
    assert refused.value.code == "unknown_encoding"


def test_names_of_encodings_that_are_none_fill_no_memory(tmp_path: Path) -> None:
    kept = len("".join(vars(encodings)["_cache"]))
    for number in range(100):
        with pytest.raises(XbusError, match="there is no encoding"):
            ItemFile(written(tmp_path / "a.csv", "id\n"), encoding=f"{number}" + "x" * 60_000)
    assert len("".join(vars(encodings)["_cache"])) == kept


@pytest.mark.parametrize("encoding", sorted(module.name for module in iter_modules(encodings.__path__)))
def test_each_encoding_of_the_library_reads_any_bytes_or_is_refused(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path / "a.jsonl", b'"1"\n"\xff\xfe\\u0041"\n')
    try:
        with ItemFile(path, encoding=encoding) as file:
            list(file.entries(lambda _: None))
    except XbusError as refused:
        assert refused.code in ("unknown_encoding", "bad_line")


@pytest.mark.parametrize(
    ("name", "content", "seen"),
    [
        (
            "a.csv",
            "id,name\n1,x\n2\n3,x,y\n4,z\n",
            [
                {"id": "1", "name": "x"},
                "3: 1 fields, but the first line names 2",
                "4: 3 fields, but the first line names 2",
                {"id": "4", "name": "z"},
            ],
        ),
        (
            "a.csv",
            'id\n"a"b\nc\n"two\nlines"!\nd\n',
            [
                "2: this is not CSV (',' expected after '\"')",
                {"id": "c"},
                "4: this is not CSV (',' expected after '\"')",
                "5: this is not CSV (a quote within a field, behind a quote that nobody closes)",
                {"id": "d"},
            ],
        ),
        (
            "a.csv",
            'id\nx\n"a\nb\n',
            [{"id": "x"}, "3: this is not CSV (a quoted field is still open where the file ends)", {"id": "b"}],
        ),
        ("a.csv", b"id\n1\n\xff\n2\n", [{"id": "1"}, "3: this is not text in UTF-8", {"id": "2"}]),
        ("a.jsonl", '1\n{"a": }\n2\n', [1, "2: this is not JSON (Expecting value: line 1 column 7 (char 6))", 2]),
        ("a.jsonl", "1\n\n[NaN]\n", [1, "3: this is not JSON (NaN is no value of JSON)"]),
        ("a.jsonl", '{"qty":1,"qty":-1}\n2\n', ['1: this is not JSON (a map has the name "qty" twice)', 2]),
        (
            "a.jsonl",
            '{"amount":12345678901234567.89}\n{"amount":1.10}\n',
            [
                "1: this is not JSON (the number 12345678901234567.89 has more digits than a double holds: "
                "write it as a text, in quotes)",
                {"amount": 1.1},
            ],
        ),
        ("a.jsonl", "[1e999]\n2\n", ["1: this is not JSON (the number 1e999 is too large)", 2]),
        ("a.jsonl", b'"\xff"\n2\n', ["1: this is not text in UTF-8", 2]),
        ("a.jsonl", "[" * 100_000 + "\n2\n", ["1: this is not JSON (it is nested too deeply)", 2]),
    ],
)
def test_behind_a_bad_line_it_goes_on(tmp_path: Path, name: str, content: str | bytes, seen: list[object]) -> None:
    assert told(entries_of(written(tmp_path / name, content))) == seen


def test_a_quote_that_nobody_closes_takes_one_line(tmp_path: Path) -> None:
    lines = [f"{number},n{number}\n" for number in range(1, 61)]
    lines[10] = '11,"unclosed\n'
    seen = told(entries_of(written(tmp_path / "a.csv", "id,name\n" + "".join(lines))))
    assert seen.pop(10) == "12: this is not CSV (a quoted field is still open where the file ends)"
    assert seen == [{"id": str(number), "name": f"n{number}"} for number in range(1, 61) if number != 11]


def test_a_quote_that_a_later_one_closes_takes_one_line(tmp_path: Path) -> None:
    content = 'id,name\n1,"open\n2,n2\n3,"n3"\n4,n4\n'
    assert told(entries_of(written(tmp_path / "a.csv", content))) == [
        "2: this is not CSV (',' expected after '\"')",
        *({"id": number, "name": f"n{number}"} for number in "234"),
    ]


def test_lines_of_a_row_with_another_number_of_fields_are_read_anew(tmp_path: Path) -> None:
    content = 'id,name,city\n1,"open,x\n2,n2,y\n3,",z\n4,n4,u\n'
    seen = told(entries_of(written(tmp_path / "a.csv", content.replace('3,",z', '3,n3,z"'))))
    assert seen == [
        "2: 2 fields, but the first line names 3",
        {"id": "2", "name": "n2", "city": "y"},
        "4: this is not CSV (a quote within a field, behind a quote that nobody closes)",
        {"id": "4", "name": "n4", "city": "u"},
    ]


def test_a_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    content = "id,note\n1," + "x" * 140_000 + '\n2,"' + "y\n" * 70_000 + '"\n'
    assert [len(entry.item["note"]) for entry in entries_of(written(tmp_path / "a.csv", content))] == [140_000] * 2


def test_a_quote_within_a_field_is_a_letter(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", 'id,size\n1,5" pipe\n2,ok\n')
    assert told(entries_of(path)) == [{"id": "1", "size": '5" pipe'}, {"id": "2", "size": "ok"}]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("named", [None, "latin-1", "utf-16-le"])
def test_a_mark_shows_the_encoding(tmp_path: Path, encoding: str, named: str | None) -> None:
    rows = written(tmp_path / "a.csv", "id,name\n1,Müller\n".encode(encoding))
    values = written(tmp_path / "a.jsonl", '"é"\n2\n'.encode(encoding))
    assert told(entries_of(rows, encoding=named)) == [{"id": "1", "name": "Müller"}]
    assert told(entries_of(values, encoding=named)) == ["é", 2]


@pytest.mark.parametrize("order", ["be", "le"])
@pytest.mark.parametrize("width", ["utf-16", "utf-32"])
def test_without_a_mark_the_order_of_bytes_shows(tmp_path: Path, width: str, order: str) -> None:
    path = written(tmp_path / "a.csv", "id,name\n1,Müller\n".encode(f"{width}-{order}"))
    assert told(entries_of(path, encoding=width)) == [{"id": "1", "name": "Müller"}]
    with pytest.raises(XbusError, match=f"--encoding {width}-{order}"):
        entries_of(path)


@pytest.mark.parametrize("encoding", ["utf-16-be", "utf-16-le", "utf-32-be", "utf-32-le"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "имя,вес\nАнна,5\n"),
        ("a.csv", "имя;вес\r\nАнна;5\r\n"),
        ("a.csv", "имя\nАнна\n"),
        ("a.csv", "名前,住所\n一郎,東京\u3000一\n"),
        ("a.jsonl", '"Анна"\n'),
    ],
)
def test_the_order_shows_whatever_the_script(tmp_path: Path, name: str, content: str, encoding: str) -> None:
    path = written(tmp_path / name, content.encode(encoding))
    with pytest.raises(XbusError, match=f"looks like {encoding.upper()} without a mark") as refused:
        entries_of(path)
    assert refused.value.next_step.endswith(f"--encoding {encoding}")
    assert told(entries_of(path, encoding=encoding[:6])) == told(entries_of(path, encoding=encoding))


@pytest.mark.parametrize(
    ("name", "content", "seen"),
    [
        ("a.csv", b"id,n\n1,a\0b\n2,c\n", ["2: this is not text in UTF-8: it has a NUL", {"id": "2", "n": "c"}]),
        ("a.csv", b'id\n"a\n\0"\n2\n', ["2: this is not text in UTF-8: it has a NUL", {"id": "2"}]),
        ("a.jsonl", b'"a\0b"\n2\n', ["1: this is not text in UTF-8: it has a NUL", 2]),
    ],
)
def test_a_nul_is_no_text(tmp_path: Path, name: str, content: bytes, seen: list[object]) -> None:
    assert told(entries_of(written(tmp_path / name, content))) == seen
    assert told(entries_of(written(tmp_path / name, content), encoding="ascii"))[-1] == seen[-1]


def test_a_nul_in_a_name_ends_the_reading(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match="1: this is not text in UTF-8: it has a NUL"):
        entries_of(written(tmp_path / "a.csv", b"i\0d,name\n1,x\n2,y\n"))


def test_a_bad_entry_gives_back_the_file_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b'id,name\r\n\xff,"two\r\nlines"\r\n7')
    assert [entry.raw().encode("utf-8", "surrogateescape") for entry in entries_of(path)] == [
        b'\xff,"two\r\nlines"\r\n',
        b"7\n",
    ]


@pytest.mark.parametrize("content", [b"n\xe9\n1\n", b"n\0\n1\n", b"\xe9\n1\n"])
def test_names_in_another_encoding_have_a_way_out(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(XbusError) as refused:
        entries_of(written(tmp_path / "a.csv", content))
    assert refused.value.next_step.endswith("or name its encoding with --encoding")


@pytest.mark.parametrize(
    ("content", "encoding", "where"),
    [
        ("id,id\n", None, ':1: a column is named twice: "id"'),
        ("id,,\n", None, ":1: the columns 2 and 3 have no name"),
        ("x" * 300_000, None, ":1: the names of the columns have more than 262,144 characters"),
        ("," * 20_000, None, ":1: more than 16,384 fields"),
        (
            "id\n1\n".encode("utf-16-be"),
            None,
            ":1: this is not text in UTF-8: it looks like UTF-16-BE without a mark",
        ),
        (
            "\u4e00\n".encode("utf-16-le"),
            "utf-16",
            ":1: this is not text in UTF-16 with a mark, and nothing shows the order of its bytes",
        ),
        (b"\xff\n", None, ":1: this is not text in UTF-8"),
        ("id\n1\n".encode("utf-16-le") + b"\x00\xdc", "utf-16-le", ":3: the rest is not text in UTF-16-LE"),
        ("x" * 20_000_000, None, ":1: the line is longer than 16,777,216 characters"),
    ],
    ids=["names", "empty", "letters", "columns", "no-mark", "no-order", "text", "encoding", "long"],
)
def test_what_can_not_be_told_apart_ends_the_reading(
    tmp_path: Path, content: str | bytes, encoding: str | None, where: str
) -> None:
    path = written(tmp_path / "a.csv", content)
    with pytest.raises(XbusError) as refused:
        entries_of(path, encoding=encoding)
    assert refused.value.code == "bad_line"
    assert refused.value.cause == f"{path}{where}"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match=r"neither \.csv, \.tsv nor \.jsonl"):
        ItemFile(tmp_path / "a.xlsx")


@pytest.mark.parametrize(("name", "why"), [("a.csv", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path, name: str, why: str) -> None:
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(XbusError, match=rf"can't be read \({why}\)"):
        ItemFile(folder / name)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl"])
def test_a_packed_file_unpacks_to_a_bounded_size(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, gzip.compress(b"1\n" * 50_000))
    with ItemFile(path, most_bytes=100_000) as file:
        assert sum(1 for _ in file.entries(lambda _: None)) == 50_000
    with ItemFile(path, most_bytes=99_999) as file, pytest.raises(XbusError) as refused:
        list(file.entries(lambda _: None))
    assert refused.value.code == "file_too_large"
