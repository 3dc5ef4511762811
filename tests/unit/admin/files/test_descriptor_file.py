"""Descriptors, and what is refused of them."""

from pathlib import Path

import pytest

from tests.support.item_files import CSV, LINES, XML, described, field, written
from xbus.admin.files.descriptor_file import read_descriptor
from xbus.errors import XbusError

ONE = field("a", "1")
WIDE = field("a", "1", "<type>string</type><length>3</length>")


def refusal(folder: Path, form: str, *fields: str) -> str:
    with pytest.raises(XbusError) as refused:
        described(folder, form, *fields)
    assert refused.value.code == "bad_descriptor"
    return refused.value.cause


def test_one_of_several_is_chosen_by_its_name_the_first_without(tmp_path: Path) -> None:
    def one(name: str) -> str:
        header = f"<header><name>{name}</name><eventtype> {name}_event\n</eventtype>{CSV}</header>"
        return f"<descriptor>{header}<fields>{ONE}</fields></descriptor>"

    path = written(tmp_path / "d.xml", f"<all>{one('x')}{one('y')}</all>")
    assert read_descriptor(path).event_type == "x_event"
    assert read_descriptor(path, "y").event_type == "y_event"
    with pytest.raises(XbusError, match='has no descriptor "z": name one of x, y'):
        read_descriptor(path, "z")
    with pytest.raises(XbusError, match="two descriptors have the same name"):
        read_descriptor(written(path, f"<all>{one('x')}{one('x')}</all>"))
    with pytest.raises(XbusError, match="there is no <descriptor>"):
        read_descriptor(written(path, "<all/>"))


@pytest.mark.parametrize("form", ["%d.%m.%y", "%Y%j", "%d %b %Y %H:%M:%S %z %p", "%G-W%V-%u", "%x %X", "the %%%d"])
def test_all_formats_of_dates_are_taken(tmp_path: Path, form: str) -> None:
    described(tmp_path, CSV, field("a", "1", f'<type format="{form}">date</type>'))


def test_only_the_chosen_one_must_be_right(tmp_path: Path) -> None:
    right = f"<descriptor><header><name>right</name>{CSV}</header><fields>{ONE}</fields></descriptor>"
    path = written(tmp_path / "d.xml", f"<all><descriptor/>{right}</all>")
    assert read_descriptor(path, "right").event_type == ""


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("<prerenderer>raw_value.upper()</prerenderer>", "<prerenderer> is code"),
        ('<descriptor condition="item.a"/>', "the condition of a descriptor is code"),
        ("<descriptor/>", "a descriptor within a field needs a condition, which is code"),
        ("<type>descriptor</type>", "a descriptor within a field needs a condition, which is code"),
    ],
)
@pytest.mark.parametrize("form", [CSV, XML])
def test_code_is_refused_and_why(tmp_path: Path, form: str, inside: str, why: str) -> None:
    kind = inside if inside.startswith("<type") else f"<type>string</type>{inside}"
    said = refusal(tmp_path, form, f"\n<field name='a' mandatory='no'>\n<source>1</source>{kind}</field>")
    assert said.startswith(f"{tmp_path / 'descriptor.xml'}:3: {why}")


@pytest.mark.parametrize(
    ("form", "fields", "why"),
    [
        ('<format name="csv"/>', ONE, "<delimiter> is missing"),
        ("", ONE, "<format> is missing"),
        ('<format name="edifact"/>', ONE, 'the format "edifact" is not one of csv, fixedlength, xml'),
        (CSV.replace("csv", "csv' mode='slow").replace('"', "'"), ONE, "the mode must be safe or fast"),
        (CSV.replace(";", r"\t"), ONE, "<delimiter> must be one character; write a tabulator as &#9;"),
        (CSV.replace(">2<", ">two<"), ONE, '<startline> must be a whole number from 0 on, not "two"'),
        (CSV.replace("<startline>2</startline>", ""), ONE, "<startline> is missing"),
        (CSV, "", "there is no <field> in <fields>"),
        (CSV, ONE.replace('name="a"', ""), "a <field> without a name"),
        (CSV, ONE.replace('mandatory="false"', ""), 'field a: say mandatory="true" or mandatory="false"'),
        (CSV, ONE.replace('"false"', '"maybe"'), "field a: mandatory must be true or false"),
        (CSV, field("a", "1", more=' strict="often"'), "field a: strict must be true or false"),
        (CSV, field("a", "1", more=' strip=""'), "field a: strip must be true or false"),
        (CSV, field("a", "0"), '<source> must be a whole number from 1 on, not "0"'),
        (CSV, field("a", "2"), "field a: there is no column 2, as there are 1 fields"),
        (CSV, field("a", "1", ""), "<type> is missing"),
        (CSV, field("a", "1", "<type>float</type>"), 'field a: the type "float" is not one of string, int, date'),
        (CSV, field("a", "1", "<type>date</type>"), "field a: a date needs its format"),
        (CSV, field("a", "1", '<type format="%Q">date</type>'), "field a: no date can be read by the format"),
        (CSV, field("a", "1", '<type format="%d%d">date</type>'), "field a: no date can be read by the format"),
        (CSV, field("a", "1", '<type decimalplaces="0">decimal</type>'), "field a: decimalplaces must be"),
        (CSV, field("a", "1", '<type decimaldelimiter="">decimal</type>'), "field a: decimaldelimiter is empty"),
        (CSV, field("a", "1", '<type>int</type><length max="x"/>'), "<length>: max must be a number of characters"),
        (LINES, ONE, "<length> is missing"),
        (LINES, field("a", "1", "<type>int</type><length/>"), "<length> must be a whole number from 0 on"),
        (LINES.replace("</format>", "<splitlength>0</splitlength></format>"), WIDE, "<splitlength> must be"),
        ('<format name="xml"/>', ONE, "<datanode> is missing"),
        (XML.replace("export/", ""), field("a", "a"), "<datanode> must be the names of elements with / between"),
        (XML.replace("export/", "//"), field("a", "a"), "<datanode> must be the names of elements with / between"),
        (XML, ONE.replace('"false"', '"yes"'), 'field a: in the format xml mandatory must be "true" or "false"'),
    ],
)
def test_what_can_not_be_followed_is_refused(tmp_path: Path, form: str, fields: str, why: str) -> None:
    assert refusal(tmp_path, form, fields).startswith(f"{tmp_path / 'descriptor.xml'}:1: {why}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<descriptor>\n<header>", ":2: this is not XML (no element found)"),
        ("not XML", ":1: this is not XML (syntax error)"),
        ('<!DOCTYPE a [\n<!ENTITY b "c">]><a>&b;</a>', ":1: the DOCTYPE holds declarations"),
    ],
)
def test_a_file_that_is_no_xml_is_refused(tmp_path: Path, content: str, why: str) -> None:
    path = written(tmp_path / "d.xml", content)
    with pytest.raises(XbusError) as refused:
        read_descriptor(path)
    assert refused.value.cause.startswith(f"{path}{why}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XbusError, match="No such file"):
        read_descriptor(tmp_path / "d.xml")
