"""What is done about bad lines: those that are collected can be corrected in their file, and read from it."""

from pathlib import Path

import pytest

from tests.support.item_files import CSV, LINES, XML, described, entries_of, field, told, written
from xbus.admin.files.descriptor import Descriptor
from xbus.admin.files.item_file import CollectBadLines, ItemFile, SkipBadLines, StopAtBadLine
from xbus.errors import XbusError

INT = "<type>int</type>"
FIXED = (
    field("a", "1", "<type>int</type><length>2</length>", ' strict="1"'),
    field("b", "2", "<type>string</type><length>3</length>"),
)


def go_through(file: ItemFile, bad: StopAtBadLine) -> list[object]:
    good = []
    for entry in file.entries(lambda _: None):
        if entry.fault:
            bad.meet(file, entry, entry.fault)
        else:
            good.append(entry.item)
    bad.finish()
    return good


def collect(
    path: Path, descriptor: Descriptor | None, encoding: str | None, to: Path
) -> tuple[list[object], list[str]]:
    said: list[str] = []
    with ItemFile(path, descriptor, encoding) as file, CollectBadLines(said.append, to) as bad:
        good = go_through(file, bad)
    assert bad.count == len(said)
    return good, said


def test_stop_refuses_the_first_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", "1\n{\n")
    with ItemFile(path) as file, StopAtBadLine() as bad:
        with pytest.raises(XbusError, match=r"a\.jsonl:2: this is not JSON .*: correct the line and send") as refused:
            go_through(file, bad)
    assert refused.value.code == "bad_line"


def test_skip_tells_each_and_counts(tmp_path: Path) -> None:
    said: list[str] = []
    path = written(tmp_path / "a.csv", "id\n1\n2,3\n4,5\n")
    with ItemFile(path) as file, SkipBadLines(said.append) as bad:
        assert go_through(file, bad) == [{"id": "1"}]
    assert bad.count == 2
    assert said == [f"{path}:{line}: 2 fields, but the first line names 1" for line in (3, 4)]


@pytest.mark.parametrize("encoding", [None, "utf-16", "latin-1"])
@pytest.mark.parametrize(
    ("name", "form", "fields", "content", "wrong", "right", "corrected"),
    [
        (
            "a.csv",
            "",
            (),
            'id,é\n1,x\n2\n3,y\n"4"é,z\n',
            '"4"é',
            '"4é"',
            [{"id": "2", "é": "w"}, {"id": "4é", "é": "z"}],
        ),
        ("a.jsonl", "", (), '1\n{"é":\n2\n[é', "[é", '["é"]', [{"é": 1}, ["é"]]),
        (
            "a",
            CSV.replace(">2<", ">3<"),
            (field("a", "1", INT, ' strict="yes"'), field("b", "2")),
            'first\n"sec\nond"\n1;é\nx;"é\n"\n2;e',
            "x;",
            "3;",
            [{"a": 3, "b": "é"}],
        ),
        ("a", LINES.replace(">1<", ">2<"), FIXED, "head\n 1 é \nx  é \n 2  e", "x  é ", " 3 é ", [{"a": 3, "b": "é"}]),
        (
            "a",
            LINES.replace("</format>", "<splitlength>5</splitlength></format>").replace(">1<", ">2<"),
            FIXED,
            "head  1 é x  é  2  e",
            "x  é ",
            " 3 é ",
            [{"a": 3, "b": "é"}],
        ),
    ],
    ids=["csv", "jsonl", "described-csv", "fixed", "split"],
)
def test_what_is_collected_can_be_corrected_and_read(
    tmp_path: Path,
    encoding: str | None,
    name: str,
    form: str,
    fields: tuple[str, ...],
    content: str,
    wrong: str,
    right: str,
    corrected: list[object],
) -> None:
    descriptor = described(tmp_path, form, *fields) if form else None
    path = written(tmp_path / name, content.encode(encoding or "utf-8"))
    to = tmp_path / f"bad{path.suffix}"
    all_of_it = told(entries_of(path, descriptor, encoding))

    good, said = collect(path, descriptor, encoding, to)

    assert good == [entry for entry in all_of_it if not isinstance(entry, str)]
    text = to.read_text(encoding or "utf-8")
    for sentence in said:
        assert f"#xbus# {sentence}\n" in text
    still_bad = told(entries_of(to, descriptor, encoding))
    assert [str(entry).partition(": ")[2][-20:] for entry in still_bad] == [sentence[-20:] for sentence in said]

    # The other line of CSV and of JSON wants its end only.
    mended = text.replace(wrong, right).replace("\n2\n", "\n2,w\n").replace('{"é":\n', '{"é":1}\n')
    to.write_bytes(mended.encode(encoding or "utf-8"))
    assert told(entries_of(to, descriptor, encoding)) == corrected


@pytest.mark.parametrize("encoding", [None, "iso-8859-1"])
def test_records_of_xml_are_collected_with_what_is_around_them(tmp_path: Path, encoding: str | None) -> None:
    form = XML.replace("export/party", "{urn:x}all/parties/{urn:x}party")
    descriptor = described(tmp_path, form, field("é", "{urn:x}é"), field("age", "{urn:x}age", INT))
    records = "<x:party><x:é>ü</x:é><x:age>{}</x:age></x:party>"
    content = f'<x:all xmlns:x="urn:x">\n<parties>\n{records.format(1)}\n{records.format("--x")}\n</parties></x:all>'
    path = written(tmp_path / "a.xml", content.encode(encoding or "utf-8"))

    good, said = collect(path, descriptor, encoding, tmp_path / "bad.xml")

    assert good == [{"é": "ü", "age": 1}]
    assert said == [f"{path}:4: field age: '--x' is no whole number"]
    text = (tmp_path / "bad.xml").read_text(encoding or "utf-8")
    assert f"<!-- {path}:4: field age: '- -x' is no whole number -->\n" in text
    (tmp_path / "bad.xml").write_bytes(text.replace(">--x<", ">7<").encode(encoding or "utf-8"))
    assert told(entries_of(tmp_path / "bad.xml", descriptor, encoding)) == [{"é": "ü", "age": 7}]


def test_bytes_that_are_no_text_are_collected_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", b"id\n\xff\xfe\n")
    collect(path, None, None, tmp_path / "bad.csv")
    assert (tmp_path / "bad.csv").read_bytes().endswith(b"this is not text in UTF-8\n\xff\xfe\n")


def test_a_remark_is_one_only_in_a_file_that_begins_with_one(tmp_path: Path) -> None:
    assert told(entries_of(written(tmp_path / "a.csv", "id\n#xbus# x\n"))) == [{"id": "#xbus# x"}]
    assert told(entries_of(written(tmp_path / "b.csv", "#xbus# id\n#xbus# x\n"))) == [{"#xbus# id": "#xbus# x"}]


def test_without_a_bad_line_there_is_no_file(tmp_path: Path) -> None:
    assert collect(written(tmp_path / "a.jsonl", "1\n"), None, None, tmp_path / "bad") == ([1], [])
    assert not (tmp_path / "bad").exists()


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match="a exists already: name a new file") as refused:
        CollectBadLines(print, written(tmp_path / "a", "1\n"))
    assert refused.value.code == "file_exists"
    bad = CollectBadLines(print, tmp_path / "b")
    written(tmp_path / "b", "mine")
    with (
        ItemFile(written(tmp_path / "a.jsonl", "{\n")) as file,
        bad,
        pytest.raises(XbusError, match="exists already"),
    ):
        go_through(file, bad)
    assert (tmp_path / "b").read_text() == "mine"


def test_a_file_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    with ItemFile(written(tmp_path / "a.jsonl", "{\n")) as file:
        with CollectBadLines(lambda _: None, tmp_path / "no" / "b") as bad, pytest.raises(XbusError) as refused:
            go_through(file, bad)
    assert (refused.value.code, refused.value.cause.rpartition("(")[2]) == (
        "unwritable_file",
        "No such file or directory)",
    )


@pytest.mark.parametrize("is_finished", [True, False])
def test_it_stays_only_when_all_was_gone_through(tmp_path: Path, is_finished: bool) -> None:
    with ItemFile(written(tmp_path / "a.jsonl", "{\n")) as file:
        with pytest.raises(ZeroDivisionError):
            with CollectBadLines(lambda _: None, tmp_path / "bad") as bad:
                bad.meet(file, next(iter(file.entries(lambda _: None))), "wrong")
                if is_finished:
                    bad.finish()
                raise ZeroDivisionError
    assert (tmp_path / "bad").exists() == is_finished


@pytest.mark.parametrize("name", ["a---b.csv", "preise ž €.csv", "\udcff.csv"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16", None])
def test_a_name_that_the_encoding_lacks_keeps_no_line_from_being_collected(
    tmp_path: Path, encoding: str | None, name: str
) -> None:
    path = written(tmp_path / name, "id\n1\n2,3\n".encode(encoding or "utf-8"))
    good, said = collect(path, None, encoding, tmp_path / "bad.csv")
    assert (good, len(said)) == ([{"id": "1"}], 1)
    assert told(entries_of(tmp_path / "bad.csv", None, encoding)) == ["4: 2 fields, but the first line names 1"]


@pytest.mark.parametrize("name", ["a---b.xml", "preise ž €.xml"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", None])
def test_a_record_of_xml_is_collected_with_characters_that_the_encoding_lacks(
    tmp_path: Path, encoding: str | None, name: str
) -> None:
    descriptor = described(tmp_path, XML, field("age", "age", INT, mandatory="true"), field("name", "name"))
    record = "<party><age>---1</age><name>&#8364;</name></party>"
    path = written(tmp_path / name, f"<export>{record}</export>")
    good, said = collect(path, descriptor, encoding, tmp_path / "bad.xml")
    assert (good, len(said)) == ([], 1)
    text = (tmp_path / "bad.xml").read_text(encoding or "utf-8")
    (tmp_path / "bad.xml").write_bytes(text.replace(">---1<", ">7<").encode(encoding or "utf-8"))
    assert told(entries_of(tmp_path / "bad.xml", descriptor, encoding)) == [{"age": 7, "name": "€"}]
