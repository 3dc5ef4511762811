"""A descriptor: how to read files of one kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from xml.etree.ElementTree import Element

from xbus.admin.files.casting import Cast, Misfit
from xbus.admin.files.paths import ElementPath

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
    found = _text_at(field.source, record)
    if field.is_mandatory and not found:
        raise Misfit("it is mandatory, but missing" if found is None else "it is mandatory, but empty")
    text = (found or "").strip()
    return field.cast(text) if text else None


def _text_at(path: ElementPath, record: Element) -> str | None:
    """Find the text of the element or attribute at a path; None without any."""
    if path.attribute is not None:
        return path.attribute_in(record)
    element = path.first_in(record)
    if element is None:
        return None
    if not element.text and len(element):
        raise Misfit("it begins with an element, not with a text")
    return element.text or ""
