"""A descriptor: how to read files of one kind, from the path to a field to the value that is sent for its text. Pure.

The values are those that xbus.file_emitter 0.1.2 sends with pyjon.descriptors 1.7.7: what is blank is None, a date is
a text, a decimal is a float.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar
from xml.etree.ElementTree import Element

from xbus.json_text import exact_float

SMALLEST_INT, LARGEST_INT = -(2**63), 2**64 - 1
"""The whole numbers that msgpack can write."""


_WHOLE = re.compile(r"[+-]?[0-9]+")
"""A whole number. Python's own reader takes digits of any script, and underscores between them."""

_MOST_DIGITS = 1_000
"""Digits of a number that is read at all. More cost time, and are too large with hardly an exception."""


class Misfit(Exception):
    """A text that is not what its field must hold.

    Args:
        reason: the fault, to follow the field's name.
        is_lenient: a field that is neither mandatory nor strict sends None for it.
    """

    def __init__(self, reason: str, *, is_lenient: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_lenient = is_lenient


Cast: TypeAlias = Callable[[str], Any]
"""Makes the value of a text that is not blank; raises Misfit."""


def cast_string(text: str) -> str:
    """Take the text itself."""
    return text


def cast_int(text: str) -> int:
    """Read a whole number.

    Raises:
        Misfit: the text is not a whole number, or one that msgpack can't write.
    """
    plain = text.strip()
    if not _WHOLE.fullmatch(plain):
        raise Misfit(f"{text!r} is no whole number", is_lenient=True)
    if len(plain) > _MOST_DIGITS:
        raise Misfit(f"{text!r:.80} is a number of more than 64 bits")
    number = int(plain)
    if not SMALLEST_INT <= number <= LARGEST_INT:
        raise Misfit(f"{text!r} is a number of more than 64 bits")
    return number


@dataclass(frozen=True)
class DateCast:
    """A date, sent as year, month and day joined by hyphens.

    Args:
        format: how it is written, for ``strptime``.
    """

    format: str

    def __call__(self, text: str) -> str:
        try:
            date = datetime.strptime(text, self.format)  # noqa: DTZ007 - only its day is wanted
        except ValueError as error:
            raise Misfit(f"{text!r} is no date like {self.format}", is_lenient=True) from error
        # As strftime of the C library: it writes the year 1 as "1".
        return f"{date.year}-{date.month:02}-{date.day:02}"


@dataclass(frozen=True)
class DecimalCast:
    """Reads a decimal number, to be sent as a float.

    A number that does not fit exactly is refused, as its amount would be read 10 to 1000 times too large. Thousands are
    in groups of three, and the first group does not begin with 0. Digits are those of ASCII.

    Args:
        places: so many of its last digits are decimals; None if the text has a point. With it the delimiters mean
            nothing.
        thousands: the delimiter of thousands, "" for none.
        point: the delimiter before the decimals.
    """

    places: int | None = None
    thousands: str = ""
    point: str = "."

    def __call__(self, text: str) -> float:
        found = self._form.fullmatch(text.strip())
        if found is None:
            raise Misfit(f"{text!r:.80} is no decimal number{self._as_written}")
        sign, whole, decimals, exponent = found.group("sign", "whole", "decimals", "exponent")
        if self.places is None:
            whole = whole.replace(self.thousands, "") if self.thousands else whole
        else:
            whole = whole.zfill(self.places)
            whole, decimals = whole[: -self.places], whole[-self.places :]
        try:
            return exact_float(f"{sign or ''}{whole or '0'}.{decimals or '0'}{exponent or ''}")
        except ValueError as error:
            raise Misfit(f"{text!r:.80} is no decimal number that a float holds: {error}") from error

    @cached_property
    def _form(self) -> re.Pattern[str]:
        sign = "(?P<sign>[+-]?)"
        if self.places is not None:
            return re.compile(f"{sign}(?P<whole>[0-9]+)(?P<decimals>)(?P<exponent>)")
        whole = "[0-9]*"
        if self.thousands:
            whole = f"[1-9][0-9]{{0,2}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|{whole}"
        # Where both delimiters are the same, only thousands are meant.
        point = re.escape(self.point) if self.point != self.thousands else "(?!)"
        number = rf"(?=[0-9]|{point}[0-9])(?P<whole>{whole})(?:{point}(?P<decimals>[0-9]*))?"
        return re.compile(f"{sign}{number}(?P<exponent>[eE][+-]?[0-9]+)?")

    @property
    def _as_written(self) -> str:
        """The delimiters, for people."""
        if self.places is not None:
            return f" of digits alone, of which the last {self.places} are decimals"
        thousands = f"with {self.thousands!r} between groups of three digits" if self.thousands else "without groups"
        return f" {thousands} and {self.point!r} before the decimals"


_NAME = r"(?:\{[^}]*\})?[^\W\d][\w.-]*"
_TEXT = r"""(?:"[^"]*"|'[^']*')"""
# A number counts among all of a name, so it comes first; behind * it would count something else than XPath does.
_STEP = (
    rf"(?:{_NAME}(?:\[(?:[1-9]\d*|last\(\)(?:-[1-9]\d*)?)\])?|\*)"
    rf"(?:\[(?:@{_NAME}(?:={_TEXT})?|{_NAME}(?:={_TEXT})?|\.={_TEXT})\])*"
)
NAME = re.compile(_NAME)
"""The name of an element, with its namespace in braces where it has one."""

_PATH = re.compile(rf"\.|(?:\.//?)?{_STEP}(?://?{_STEP})*")


ANY_NAMESPACE = "{*}"
"""Stands before a name that counts in any namespace, and in none."""

_ATTRIBUTE = re.compile(rf"(?:(?P<path>.+)/)?@(?P<name>{_NAME})")


def is_called(tag: str, name: str) -> bool:
    """Check whether a tag, ``{namespace}name`` or ``name``, has the name that a descriptor says."""
    return tag == name or (name.startswith(ANY_NAMESPACE) and tag.rpartition("}")[2] == name[len(ANY_NAMESPACE) :])


class ElementPath:
    """A path such as ``address/city``, ``.//line[2]``, ``contact[@kind='mail']/address`` or ``amount/@currency``.

    Args:
        path: as in the descriptor.

    Raises:
        ValueError: the path has steps that this class can't follow.
    """

    def __init__(self, path: str) -> None:
        found = _ATTRIBUTE.fullmatch(path)
        self._attribute = found["name"] if found else None
        self._elements = (found["path"] or ".") if found else path
        if not _PATH.fullmatch(self._elements):
            raise ValueError(f'the path "{path}" is none that xbus emit can follow')
        self.path = path

    def __repr__(self) -> str:
        return f"ElementPath({self.path!r})"

    def text_in(self, record: Element) -> str | None:
        """Find the first text at the path, in the order of the file; None without any.

        Raises:
            Misfit: the element begins with another one.
        """
        if (name := self._attribute) is not None:
            found = (each for element in self._found_in(record) for each in element.attrib.items())
            return next((value for key, value in found if is_called(key, name)), None)
        element = next(self._found_in(record), None)
        if element is None:
            return None
        if not element.text and len(element):
            raise Misfit("it begins with an element, not with a text")
        return element.text or ""

    def _found_in(self, record: Element) -> Iterator[Element]:
        if "//" not in self._elements:
            return record.iterfind(self._elements)
        found = set(record.iterfind(self._elements))
        return (element for element in record.iter() if element in found)


Source = TypeVar("Source", int, ElementPath)


@dataclass(frozen=True)
class Field(Generic[Source]):
    """A field of the items, and where its value comes from.

    Args:
        name: its key in the item.
        source: the index of the column, from 0, or the path of the element.
        cast: makes the value.
        is_mandatory: whether it must be there.
        is_strict: whether a value that does not fit is wrong also where the field is not mandatory.
        is_stripped: whether blanks around it are dropped.
        shortest: characters; 0 where that is all the same.
        longest: characters; None where that is all the same.
    """

    name: str
    source: Source
    cast: Cast
    is_mandatory: bool
    is_strict: bool = False
    is_stripped: bool = True
    shortest: int = 0
    longest: int | None = None

    @property
    def is_sent(self) -> bool:
        """Names that begin with two underscores, and ``data_row__``, are those of fields that are only checked."""
        return not self.name.startswith("__") and self.name != "data_row__"


Column: TypeAlias = Field[int]
ElementField: TypeAlias = Field[ElementPath]


@dataclass(frozen=True)
class CsvLayout:
    """A file of CSV.

    Args:
        delimiter: the character between two fields.
        first_row: where the items begin, from 1.
        columns: as many as each row has.
    """

    delimiter: str
    first_row: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class FixedLayout:
    """A file of records of one length.

    Args:
        widths: of the fields as they stand one behind the other, in characters.
        first_row: where the items begin, from 1.
        piece: characters of a record with its line's end; None where each line is one.
        columns: what the fields become.
    """

    widths: tuple[int, ...]
    first_row: int
    piece: int | None
    columns: tuple[Column, ...]

    @property
    def length(self) -> int:
        """Of a record without its line's end, in characters."""
        return sum(self.widths)


@dataclass(frozen=True)
class XmlLayout:
    """A file of XML.

    Args:
        zone: the names of elements in one of which a record must be.
        record: the name of the elements that become items.
        fields: what is sent of them.
    """

    zone: tuple[str, ...]
    record: str
    fields: tuple[ElementField, ...]


Layout: TypeAlias = CsvLayout | FixedLayout | XmlLayout


@dataclass(frozen=True)
class Descriptor:
    """The description of one kind of files.

    Args:
        name: its name, "" for none.
        event_type: what the items are sent as, "" where it does not say.
        encoding: of the files, "" where it does not say.
        layout: their form.
    """

    name: str
    event_type: str
    encoding: str
    layout: Layout


def item_of_columns(columns: tuple[Column, ...], row: list[str]) -> dict[str, object]:
    """Make the item of a row.

    Raises:
        Misfit: a field is not what it must be; the reason names it.
    """
    return _item(columns, lambda field: _value(field, row[field.source]))


def item_of_element(fields: tuple[ElementField, ...], record: Element) -> dict[str, object]:
    """Make the item of an element.

    Raises:
        Misfit: a field is not what it must be; the reason names it.
    """
    return _item(fields, lambda field: _element_value(field, record))


def _item(fields: tuple[Field[Source], ...], value_of: Callable[[Field[Source]], object]) -> dict[str, object]:
    item = {}
    for field in fields:
        try:
            value = value_of(field)
        except Misfit as misfit:
            raise Misfit(f"field {field.name}: {misfit.reason}") from misfit
        if field.is_sent:
            item[field.name] = value
    return item


def _value(field: Column, text: str) -> object:
    text = text.strip() if field.is_stripped else text
    if field.longest is not None and len(text) > field.longest:
        raise Misfit(f"{len(text)} characters, at most {field.longest} are allowed")
    if len(text) < field.shortest:
        raise Misfit(f"{len(text)} characters, at least {field.shortest} are wanted")
    if not text and field.is_mandatory:
        raise Misfit("it is mandatory, but empty")
    if not text.strip():
        return None
    try:
        return field.cast(text)
    except Misfit as misfit:
        if misfit.is_lenient and not (field.is_mandatory or field.is_strict):
            return None
        raise


def _element_value(field: ElementField, record: Element) -> object:
    found = field.source.text_in(record)
    if field.is_mandatory and not found:
        raise Misfit("it is mandatory, but missing" if found is None else "it is mandatory, but empty")
    text = (found or "").strip()
    return field.cast(text) if text else None
