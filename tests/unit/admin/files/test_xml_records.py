"""Files of XML by a descriptor, where they are not as they should be, and unsafe ones."""

import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.item_files import XML, described, entries_of, field, told, written
from xbus.admin.files.descriptor import Descriptor, ElementPath, XmlLayout
from xbus.admin.files.item_file import ItemFile
from xbus.admin.files.xml_records import XmlBounds, XmlReader
from xbus.errors import XbusError
from xbus.files.text_lines import Unreadable

INT = "<type>int</type>"


@pytest.fixture
def descriptor(tmp_path: Path) -> Descriptor:
    return described(tmp_path, XML, field("name", "name", mandatory="true"), field("age", "age", INT))


def test_a_bad_record_is_told_with_line_and_field(tmp_path: Path, descriptor: Descriptor) -> None:
    records = [
        "<party><name>Ada</name><age> 36 </age></party>",
        "<party>\n<age>1</age></party>",
        "<party><name/></party>",
        "<party><name>Bob</name><age/></party>",
        "<party><name>Eve</name><age>old</age></party>",
        "<party><name><b>Eve</b></name></party>",
        "<party><name>G<!-- no h -->race</name></party>",
    ]
    path = written(tmp_path / "a", "<export>\n" + "\n".join(records) + "</export>")
    assert told(entries_of(path, descriptor)) == [
        {"name": "Ada", "age": 36},
        "3: field name: it is mandatory, but missing",
        "5: field name: it is mandatory, but empty",
        {"name": "Bob", "age": None},
        "7: field age: 'old' is no whole number",
        "8: field name: it begins with an element, not with a text",
        {"name": "Grace", "age": None},
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<export>\n<party>", ":2: this is not XML (no element found)"),
        ("<export>\n<party>\n</export>", ":3: this is not XML (mismatched tag)"),
        ("<export>&nbsp;</export>", ":1: this is not XML (undefined entity)"),
        (b"<?xml version='1.0' encoding='utf-8'?><export>\xff</export>", ":1: this is not XML (not well-formed"),
        ("<?xml version='1.0' encoding='klingon'?><export/>", ":1: "),
        ('<!DOCTYPE e [<!ENTITY a "b">]><export/>', ":1: the DOCTYPE holds declarations, which is refused for safety"),
        ('<!DOCTYPE e [<!ENTITY % a SYSTEM "b">%a;]><export/>', ":1: the DOCTYPE holds declarations"),
        ('<!DOCTYPE e SYSTEM "e.dtd">\n<export>&a;</export>', ":2: the entity &a; is declared elsewhere"),
        ("<export>" * 300, ":1: more than 200 elements within each other"),
    ],
)
def test_what_is_not_well_formed_or_not_safe_ends_the_reading(
    tmp_path: Path, descriptor: Descriptor, content: str | bytes, why: str
) -> None:
    path = written(tmp_path / "a", content)
    with pytest.raises(XbusError) as refused:
        entries_of(path, descriptor)
    assert refused.value.code == "bad_line"
    assert refused.value.cause.startswith(f"{path}{why}")


def test_a_document_type_that_declares_nothing_here_is_no_harm(tmp_path: Path, descriptor: Descriptor) -> None:
    path = written(tmp_path / "a", '<!DOCTYPE e SYSTEM "/etc/passwd"><export><party><name>x</name></party></export>')
    assert told(entries_of(path, descriptor)) == [{"name": "x", "age": None}]


def test_records_and_what_is_around_them_are_not_kept(tmp_path: Path, descriptor: Descriptor) -> None:
    party = "<party><name>Ada</name><more>" + "x" * 1000 + "</more></party><log>" + "y" * 1000 + "</log>"
    path = written(tmp_path / "a", f"<export>{party * 1_000}</export>")
    with ItemFile(path, descriptor) as file:
        tracemalloc.start()
        try:
            count = sum(1 for _ in file.entries(lambda _: None))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert count == 1_000
    assert peak < (file.size or 0) / 5


def test_a_record_without_an_end_is_not_kept(descriptor: Descriptor) -> None:
    assert isinstance(descriptor.layout, XmlLayout)
    fits = "<party><name>Ada</name><more>" + "x" * 100_000 + "</more></party>\n"
    many = BytesIO(f"<export>\n{fits * 20}</export>".encode())
    assert len(list(XmlReader(descriptor.layout, many, bounds=XmlBounds(200_000)))) == 20
    endless = BytesIO(f"<export>\n{fits}<party>{'x' * 400_000}</party></export>".encode())
    with pytest.raises(Unreadable) as refused:
        list(XmlReader(descriptor.layout, endless, bounds=XmlBounds(200_000)))
    assert (refused.value.line, refused.value.reason) == (3, "the record is larger than 200,000 bytes")


@pytest.mark.parametrize(
    ("text", "bounds", "reason"),
    [
        ("<party>" + "<a/>" * 999 + "x" * 100_000 + "</party>", XmlBounds(record_parts=1_000), ""),
        (
            "<party>" + "<a/>" * 1_000 + "x" * 100_000 + "</party>",
            XmlBounds(record_parts=1_000),
            "more than 1,000 elements",
        ),
        (
            "<party>" + "<a b='' c=''/>" * 334 + "x" * 100_000 + "</party>",
            XmlBounds(record_parts=1_000),
            "more than 1,000 elements",
        ),
        ("<a/>" * 2_000 + "<party/><party/>", XmlBounds(record_parts=1), ""),
        ("<!--" + "x" * 200_000 + "-->", XmlBounds(markup_bytes=100_000), "a tag or a comment is larger than 100,000"),
        (
            "<a b='" + "x" * 200_000 + "'/>",
            XmlBounds(markup_bytes=100_000),
            "a tag or a comment is larger than 100,000",
        ),
        ("<party>" + "x" * 400_000 + "</party>", XmlBounds(markup_bytes=100_000), ""),
        ("<party><![CDATA[" + "x\n" * 200_000 + "]]></party>", XmlBounds(markup_bytes=100_000), ""),
    ],
)
def test_what_is_kept_of_a_file_is_bounded(descriptor: Descriptor, text: str, bounds: XmlBounds, reason: str) -> None:
    assert isinstance(descriptor.layout, XmlLayout)
    # The bounds are looked at between chunks.
    file = BytesIO(f"<export>{text}{'<log/>' * 20_000}</export>".encode())
    found = ""
    try:
        list(XmlReader(descriptor.layout, file, bounds=bounds))
    except Unreadable as error:
        found = error.reason
    assert reason in found
    assert bool(found) == bool(reason)


def test_names_may_be_those_of_a_namespace(tmp_path: Path) -> None:
    form = XML.replace("export/party", "{http://x/y}export/{http://x/y}party")
    descriptor = described(tmp_path, form, field("name", "{http://x/y}name"), field("any", "{*}name"))
    path = written(tmp_path / "a", '<export xmlns="http://x/y"><party><name>Ada</name></party></export>')
    assert told(entries_of(path, descriptor)) == [{"name": "Ada", "any": "Ada"}]


INVOICE = (
    '<Invoice xmlns="urn:inv" xmlns:c="urn:c" n="7"><c:Line><c:ID>1</c:ID>'
    '<c:Amount/><c:Amount c:unit="x" currencyID="EUR">10.50</c:Amount></c:Line></Invoice>'
)


def test_names_of_any_namespace_lead_to_records_and_attributes(tmp_path: Path) -> None:
    form = XML.replace("export/party", "{*}Invoice/{*}Line")
    descriptor = described(
        tmp_path,
        form,
        field("id", "{*}ID"),
        field("currency", "{*}Amount/@currencyID", mandatory="true"),
        field("unit", ".//{*}Amount/@{*}unit"),
        field("rate", "@rate", INT),
    )
    path = written(tmp_path / "a", INVOICE)
    assert told(entries_of(path, descriptor)) == [{"id": "1", "currency": "EUR", "unit": "x", "rate": None}]
    bad = written(tmp_path / "b", INVOICE.replace("currencyID", "currency"))
    assert told(entries_of(bad, descriptor)) == ["1: field currency: it is mandatory, but missing"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-32-be", "utf-16-be"])
@pytest.mark.parametrize("declared", ["ISO-8859-1", "UTF-8"])
def test_a_mark_counts_more_than_what_is_declared(
    tmp_path: Path, descriptor: Descriptor, encoding: str, declared: str
) -> None:
    text = f'<?xml version="1.0" encoding="{declared}"?><export><party><name>é</name></party></export>'
    path = written(tmp_path / "a", text.encode(encoding))
    assert told(entries_of(path, descriptor)) == [{"name": "é", "age": None}]


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "cp1252"])
def test_the_declared_encoding_may_be_any(tmp_path: Path, descriptor: Descriptor, encoding: str) -> None:
    name = "é" if encoding == "cp1252" else "日本"
    text = f'<?xml version="1.0" encoding="{encoding}"?><export><party><name>{name}</name></party></export>'
    path = written(tmp_path / "a", text.encode(encoding))
    assert told(entries_of(path, descriptor)) == [{"name": name, "age": None}]


@pytest.mark.parametrize(
    "path",
    ["@", "name/@", "@id/name", "name[@a]@b", "@*", ".//@id", "name/text()",
     "text()", "/export/name", "//name", "..", "name/..", "count(name)", "x:name",
     "*[2]", "name[@a][2]", "*[local-name()='name']", "child::name", "a|b", "name[1", "", "a//", "a/.", ".//."],
)  # fmt: skip
def test_a_path_that_can_not_be_followed_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is none that xbus emit can follow"):
        ElementPath(path)
    with pytest.raises(XbusError, match=r":1: field a: the path .* it must lead to an element"):
        described(tmp_path, XML, field("a", path))
