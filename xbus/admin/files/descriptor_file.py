"""Reads descriptors, the XML files of xbus.file_emitter 0.1.2 in which pyjon.descriptors 1.7.7 says how files are read.

::

    <descriptor>
      <header>
        <name>invoices</name>
        <eventtype>new_invoice</eventtype>
        <format name="csv">
          <delimiter>;</delimiter>
          <startline>2</startline>
        </format>
      </header>
      <fields>
        <field name="amount" mandatory="true"><source>1</source><type decimaldelimiter=",">decimal</type></field>
      </fields>
    </descriptor>

Several of them may stand in a root element of any name.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from xbus.admin.files.descriptor import (
    NAME,
    Cast,
    Column,
    CsvLayout,
    DateCast,
    DecimalCast,
    Descriptor,
    ElementField,
    ElementPath,
    FixedLayout,
    Layout,
    XmlLayout,
    cast_int,
    cast_string,
)
from xbus.admin.files.xml_records import malformed, paired, qualified, safe_parser
from xbus.errors import XbusError
from xbus.files.text_lines import Unreadable

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")

_SOME_TIME = datetime(2000, 12, 25, tzinfo=UTC)

NO_CODE = "is code, and a descriptor only describes here: do this in a worker or in a program with xbus.emitter"


def read_descriptor(path: Path, name: str = "") -> Descriptor:
    """Read one descriptor of a file.

    Args:
        path: the file.
        name: its name; "" means the first one.

    Raises:
        XbusError: the file can't be read (``unreadable_file``), has no such descriptor (``unknown_descriptor``), or the
            descriptor is invalid (``bad_descriptor``).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise XbusError(
            f"{path} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
        ) from error
    return parse_descriptor(data, str(path), name)


def parse_descriptor(data: bytes, source: str, name: str = "") -> Descriptor:
    """Read one descriptor of the content of a file.

    Args:
        data: the content.
        source: its name, for people.
        name: the name of the descriptor; "" means the first one.

    Raises:
        XbusError: it has no such descriptor (``unknown_descriptor``), or the descriptor is invalid
            (``bad_descriptor``).
    """
    try:
        return _descriptor(_chosen(_parsed(data), source, name))
    except Unreadable as error:
        raise XbusError(
            f"{source}:{error.line}: {error.reason}", "correct the descriptor", code="bad_descriptor"
        ) from error


class _Element(Element):
    """An element that knows the line where it begins."""

    line = 1


def _parsed(data: bytes) -> _Element:
    parser = safe_parser()

    def located(name: str, attributes: dict[str, str]) -> _Element:
        element = _Element(name, attributes)
        element.line = parser.CurrentLineNumber
        return element

    builder = TreeBuilder(element_factory=located)
    parser.StartElementHandler = lambda name, attributes: builder.start(qualified(name), paired(attributes))
    parser.EndElementHandler = lambda name: builder.end(qualified(name))
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise malformed(error) from error
    root = builder.close()
    assert isinstance(root, _Element)
    return root


def _chosen(root: _Element, source: str, name: str) -> _Element:
    found = [root] if root.tag == "descriptor" else root.findall("descriptor")
    if not found:
        _refuse(root, "there is no <descriptor>")
    names = [_text(element, "header/name") for element in found]
    if len(set(names)) < len(names):
        _refuse(found[-1], "two descriptors have the same name")
    if not name:
        return _lined(found[0])
    if name not in names:
        raise XbusError(
            f'{source} has no descriptor "{name}"', f"name one of {', '.join(names)}", code="unknown_descriptor"
        )
    return _lined(found[names.index(name)])


def _descriptor(root: _Element) -> Descriptor:
    _refuse_code(root)
    form = _needed(root, "header/format")
    kind = form.get("name", "")
    if kind not in _LAYOUTS:
        _refuse(form, f'the format "{kind}" is not one of {", ".join(_LAYOUTS)}')
    if form.get("mode", "safe") not in ("safe", "fast"):
        _refuse(form, "the mode must be safe or fast; both mean the same here")
    return Descriptor(
        name=_text(root, "header/name"),
        event_type=_text(root, "header/eventtype"),
        encoding=_text(root, "header/encoding") or _text(form, "encoding"),
        layout=_LAYOUTS[kind](root, form),
    )


def _refuse_code(root: _Element) -> None:
    for element in map(_lined, root.iter()):
        if element.tag == "prerenderer":
            _refuse(element, f"<prerenderer> {NO_CODE}")
        if "condition" in element.attrib:
            _refuse(element, f"the condition of a descriptor {NO_CODE}")
        is_conditional = element.tag == "type" and (element.text or "").strip().lower() == "descriptor"
        if is_conditional or (element.tag == "descriptor" and element is not root):
            _refuse(element, "a descriptor within a field needs a condition, which is code, and is not followed here")


# -- layouts -----------------------------------------------------------------------------------------------------------


def _csv_layout(root: _Element, form: _Element) -> CsvLayout:
    delimiter = _needed(form, "delimiter")
    character = delimiter.text or ""
    if len(character) != 1 or character in '\r\n"\\':
        _refuse(delimiter, "<delimiter> must be one character; write a tabulator as &#9;")
    fields = _fields(root)
    return CsvLayout(character, _first_row(form), _columns(fields))


def _fixed_layout(root: _Element, form: _Element) -> FixedLayout:
    piece = form.find("splitlength")
    fields = _fields(root)
    return FixedLayout(
        widths=tuple(_number(_needed(field, "length"), 0) for field in fields),
        first_row=_first_row(form),
        piece=None if piece is None else _number(_lined(piece), 1),
        columns=_columns(fields),
    )


def _xml_layout(root: _Element, form: _Element) -> XmlLayout:
    node = _needed(root, "header/datanode")
    steps = [*_steps((node.text or "").strip().removeprefix("/"))]
    if len(steps) < 2 or not all(map(NAME.fullmatch, steps)):
        _refuse(node, "<datanode> must be the names of elements with / between them, as invoices/invoice")
    return XmlLayout(tuple(steps[:-1]), steps[-1], tuple(map(_element_field, _fields(root))))


_LAYOUTS: dict[str, Callable[[_Element, _Element], Layout]] = {
    "csv": _csv_layout,
    "fixedlength": _fixed_layout,
    "xml": _xml_layout,
}


def _steps(path: str) -> Iterator[str]:
    """Split a path into names; a slash in a namespace divides nothing."""
    step = ""
    for part in path.split("/"):
        step = f"{step}/{part}" if step else part
        if step.count("{") == step.count("}"):
            yield step
            step = ""
    if step:
        yield step


def _first_row(form: _Element) -> int:
    return max(1, _number(_needed(form, "startline"), 0))


# -- fields ------------------------------------------------------------------------------------------------------------


def _fields(root: _Element) -> list[_Element]:
    fields = [_lined(field) for field in root.findall("fields/field")]
    if not fields:
        _refuse(root, "there is no <field> in <fields>")
    for field in fields:
        if not field.get("name"):
            _refuse(field, "a <field> without a name")
        if field.get("mandatory") is None:
            _refuse(field, f'field {field.get("name")}: say mandatory="true" or mandatory="false"')
    return fields


def _columns(fields: Sequence[_Element]) -> tuple[Column, ...]:
    return tuple(_column(field, len(fields)) for field in fields)


def _column(field: _Element, columns: int) -> Column:
    source = _needed(field, "source")
    number = _number(source, 1)
    if number > columns:
        _refuse(source, f"field {field.get('name')}: there is no column {number}, as there are {columns} fields")
    length = field.find("length")
    return Column(
        name=field.get("name", ""),
        source=number - 1,
        cast=_cast(field),
        is_mandatory=_switch(field, "mandatory", "false"),
        is_strict=_switch(field, "strict", "false"),
        is_stripped=_switch(field, "strip", "true"),
        shortest=0 if length is None else _limit(_lined(length), "min"),
        longest=None if length is None else _limit(_lined(length), "max") or None,
    )


def _element_field(field: _Element) -> ElementField:
    source = _needed(field, "source")
    mandatory = field.get("mandatory", "")
    if mandatory not in ("true", "True") and mandatory.lower() not in FALSE:
        # The original takes "yes", "1" and "TRUE" for false in this format, and for true in the others.
        _refuse(field, f'field {field.get("name")}: in the format xml mandatory must be "true" or "false"')
    try:
        path = ElementPath((source.text or "").strip())
    except ValueError as error:
        _refuse(
            source,
            f"field {field.get('name')}: {error}: it must lead to an element or @attribute by names, *, . and //, "
            "with conditions like [2], [last()], [name], [name='text'] or [@name='text']",
        )
    return ElementField(field.get("name", ""), path, _cast(field), mandatory in ("true", "True"))


def _cast(field: _Element) -> Cast:
    kind = _needed(field, "type")
    name = (kind.text or "").strip().lower()
    if name not in _CASTS:
        _refuse(kind, f'field {field.get("name")}: the type "{name}" is not one of {", ".join(_CASTS)}')
    return _CASTS[name](kind, field.get("name", ""))


def _date_cast(kind: _Element, name: str) -> Cast:
    form = kind.get("format")
    if not form:
        _refuse(kind, f'field {name}: a date needs its format, as format="%d/%m/%Y"; without one it is never sent')
    try:
        # A format without a year, as it is the user's own, is nothing to warn of.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            datetime.strptime(_SOME_TIME.strftime(form), form)  # noqa: DTZ007 - thrown away
    except (ValueError, re.error) as error:
        _refuse(kind, f'field {name}: no date can be read by the format "{form}" ({error})')
    return DateCast(form)


def _decimal_cast(kind: _Element, name: str) -> Cast:
    places = kind.get("decimalplaces")
    if places is not None and not (places.strip().isdecimal() and int(places) > 0):
        _refuse(kind, f"field {name}: decimalplaces must be a number from 1 on; for none leave it out")
    point = kind.get("decimaldelimiter", ".")
    if not point:
        _refuse(kind, f"field {name}: decimaldelimiter is empty; leave it out where it is a point")
    return DecimalCast(None if places is None else int(places), kind.get("thousanddelimiter", ""), point)


_CASTS: dict[str, Callable[[_Element, str], Cast]] = {
    "string": lambda kind, name: cast_string,
    "int": lambda kind, name: cast_int,
    "date": _date_cast,
    "decimal": _decimal_cast,
}


# -- values ------------------------------------------------------------------------------------------------------------


def _switch(field: _Element, key: str, default: str) -> bool:
    value = field.get(key, default).lower()
    if value not in TRUE + FALSE:
        _refuse(field, f"field {field.get('name')}: {key} must be true or false")
    return value in TRUE


def _limit(length: _Element, key: str) -> int:
    value = length.get(key) or "0"
    if not value.strip().isdecimal():
        _refuse(length, f'<length>: {key} must be a number of characters, not "{value}"')
    return int(value)


def _number(element: _Element, least: int) -> int:
    text = (element.text or "").strip()
    if not text.isdecimal() or int(text) < least:
        _refuse(element, f'<{element.tag}> must be a whole number from {least} on, not "{text}"')
    return int(text)


def _needed(parent: _Element, path: str) -> _Element:
    element = parent.find(path)
    if element is None:
        _refuse(parent, f"<{path.rpartition('/')[2]}> is missing")
    return _lined(element)


def _text(parent: Element, path: str) -> str:
    return (parent.findtext(path) or "").strip()


def _lined(element: Element) -> _Element:
    assert isinstance(element, _Element)
    return element


def _refuse(element: Element, sentence: str) -> NoReturn:
    raise Unreadable(_lined(element).line, sentence)
