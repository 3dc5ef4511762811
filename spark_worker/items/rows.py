"""Rows of the items of msgpack and JSON: many at once if all fit, and an explanation of each that does not.

Arrow's parser of JSON costs a quarter of Spark's own, but is more lenient than ``rules``. So its word counts only where
it takes all of many items as they are. All else is decoded by Python, and read by the rules.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from spark_worker.items.columns import CORRUPT, DATA, INDEX, ROW
from spark_worker.items.explaining import article, explain_text, shown
from spark_worker.items.kinds import DOUBTS, DoesNotFit, ItemForm, Slot
from spark_worker.items.rules import column_of
from xbus.errors import ProtocolError
from xbus.rpc.codec import Key, unpack

RUN_ITEMS = 1_000
"""Fewer leave less to Python where one item is left to it, and cost Arrow more calls."""

MOST_SIGNS = 1_000
"""Python takes values so deep in others; Arrow takes more. Beyond so many digits Python may take no number."""

_NUMBERS = bytes(ord("0" if sign in b"0123456789.eE+-" else " ") for sign in range(256))

_NOT_A_NUMBER = re.compile(rb"[:,\[]\s*-?(?:Inf|NaN)\s*[,\]}]")
"""Texts that Arrow takes for a number and Python may not; they count also outside of the columns."""

TINY_ZEROS = 200
"""Zeros in a row from which on a number with an exponent of two digits may be too small for a double."""

_TINY = tuple(re.compile(sign + rb"-0*[1-9][0-9]{2,}\s*[,\]}]") for sign in (b"e", b"E"))
"""Numbers that may be too small for a double: Arrow makes zero of them. One letter each is found fast."""

EARLY_TYPES = frozenset({BooleanType(), DoubleType(), IntegerType(), LongType(), StringType()})
"""The types of columns that are made in the process that reads the items."""


def is_early(schema: StructType) -> bool:
    """Check whether rows of a schema are made in the process that reads the items."""
    return all(field.dataType in EARLY_TYPES for field in schema)


def row_type(schema: StructType) -> StructType:
    """Give the type of an item's row: all fields may be null, a VARIANT is its JSON, and ``_corrupt`` is added."""
    fields = [StructField(field.name, _read_type(field.dataType)) for field in schema]
    return StructType([*fields, StructField(CORRUPT, StringType())])


def _read_type(data_type: DataType) -> DataType:
    return StringType() if isinstance(data_type, VariantType) else data_type


def with_rows(batches: Iterable[pa.RecordBatch], reader: "RowMaker") -> Iterator[pa.RecordBatch]:
    """Add a column ``_row`` to batches of ``_index`` and ``data``; only faulty items keep ``data``."""
    for batch in batches:
        data = batch.column(DATA)
        rows = reader.rows(data)
        left = pc.if_else(rows.field(CORRUPT).is_valid(), data, pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays([batch.column(INDEX), left, rows], names=[INDEX, DATA, ROW])


class RowMaker(ABC):
    """Reads items as rows of a schema.

    Args:
        schema: of the items.
        form: the format of the items.

    Raises:
        ConfigurationError: no item of the format can fill a column of the schema.
    """

    def __init__(self, schema: StructType, form: ItemForm) -> None:
        self._slots = {field.name: Slot(column_of(field.dataType, form), not field.nullable) for field in schema}

    @abstractmethod
    def rows(self, data: pa.Array) -> pa.StructArray:
        """Make the row of each item: the fields, and ``_corrupt``, which is text for an item that does not fit."""

    @abstractmethod
    def decode(self, item: bytes) -> dict[Key, object]:
        """Decode an item.

        Raises:
            DoesNotFit: it is no map of the format.
        """

    def explain(self, item: bytes) -> str | None:
        """Explain why an item does not fit; None if it does."""
        _, causes = self._columns([item])
        return causes[0]

    def decode_all(self, items: Sequence[bytes]) -> list[dict[Key, object]] | None:
        """Decode items at once if each is a map of the format; None if each has to be decoded alone."""
        return None

    def _columns(self, items: Sequence[bytes]) -> tuple[list[pa.Array], list[str | None]]:
        maps = self.decode_all(items) or []
        causes: list[str | None] = [None] * len(maps)
        for item in items[len(maps) :]:
            try:
                maps.append(self.decode(item))
                causes.append(None)
            except DoesNotFit as misfit:
                maps.append({})
                causes.append(misfit.fault)
        return [self._column(name, slot, maps, causes) for name, slot in self._slots.items()], causes

    def _column(self, name: str, slot: Slot, maps: Sequence[dict[Any, Any]], causes: list[str | None]) -> pa.Array:
        """Make a column at once if all values fit, otherwise value by value to find those that don't."""
        values = [row.get(name) for row in maps]
        try:
            return slot.checked(slot.kind.take(values))
        except DOUBTS:
            pass
        made = []
        for place, value in enumerate(values):
            try:
                made.append(slot.read(value))
            except DoesNotFit as misfit:
                made.append(None)
                causes[place] = causes[place] or f"field {name}{misfit.place}{misfit.fault}"
        return pa.array(made, slot.kind.arrow)

    def _joined(self, columns: Sequence[pa.Array], corrupt: pa.Array) -> pa.StructArray:
        names = [*self._slots, CORRUPT]
        return pa.StructArray.from_arrays([*columns, corrupt], names)


class MsgpackRows(RowMaker):
    """Reads maps of msgpack; ``_corrupt`` says what is wrong."""

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, ItemForm.MSGPACK)

    def rows(self, data: pa.Array) -> pa.StructArray:
        columns, causes = self._columns(data.to_pylist())
        return self._joined(columns, pa.array(causes, pa.string()))

    def decode(self, item: bytes) -> dict[Key, object]:
        try:
            row: object = unpack(item)
        except ProtocolError as error:
            raise DoesNotFit(f"it is not msgpack: {error.cause}") from error
        if not isinstance(row, dict):
            raise DoesNotFit(f"it is {article(type(row).__name__)} of msgpack, not a map")
        return row

    def explain(self, item: bytes) -> str | None:
        return explain_text(item) or super().explain(item)


class JsonRows(RowMaker):
    """Reads objects of JSON; ``_corrupt`` is the text of the item.

    Args:
        schema: of the items.
        run_items: where one item of many is left to Python, so many go with it.
    """

    def __init__(self, schema: StructType, run_items: int = RUN_ITEMS) -> None:
        super().__init__(schema, ItemForm.JSON)
        read = [(name, slot.kind.by_arrow) for name, slot in self._slots.items()]
        self._by_arrow = pa.schema(read) if all(kind for _, kind in read) else None
        self._run_items = run_items

    def rows(self, data: pa.Array) -> pa.StructArray:
        size = self._run_items
        if len(data) <= size:
            return self._of_run(data)
        if (rows := self._taken(data)) is not None:
            return rows
        return pa.concat_arrays([self._of_run(data.slice(start, size)) for start in range(0, len(data), size)])

    def _of_run(self, data: pa.Array) -> pa.StructArray:
        if (rows := self._taken(data)) is not None:
            return rows
        items = data.to_pylist()
        columns, causes = self._columns(items)
        corrupt = [
            None if cause is None else item.decode("utf-8", "replace")
            for cause, item in zip(causes, items, strict=True)
        ]
        return self._joined(columns, pa.array(corrupt, pa.string()))

    def decode(self, item: bytes) -> dict[Key, object]:
        try:
            value = _DECODER.decode(item.decode())
        except UnicodeDecodeError:
            hint = "values are msgpack on the bus: leave --format out"
            raise DoesNotFit(f"the item is not JSON: it is not text in UTF-8 ({hint})") from None
        except _NamedTwice as twice:
            raise DoesNotFit(f"the item names {shown(twice.name)} twice") from None
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise DoesNotFit(f"the item is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise DoesNotFit(f"the item is {_json_kind(value)}, not an object")
        return value

    def decode_all(self, items: Sequence[bytes]) -> list[dict[Key, object]] | None:
        try:
            texts = [item.decode() for item in items]
            found = [_SCAN(text, 0) for text in texts]
        except (_NamedTwice, ValueError, ArithmeticError, RecursionError, StopIteration):
            return None
        maps = [value for (value, end), text in zip(found, texts, strict=True) if end == len(text)]
        return maps if set(map(type, maps)) == {dict} and len(maps) == len(items) else None

    def _taken(self, data: pa.Array) -> pa.StructArray | None:
        """Make the rows of items by Arrow; None if one of them might differ from the rules."""
        wanted = self._by_arrow
        if wanted is None or len(data) == 0 or not (_are_objects(data) and _within_limits(data)):
            return None
        everything = pa.ListArray.from_arrays(pa.array([0, len(data)], pa.int32()), data)
        text = pc.binary_join(everything, b"\n")[0].as_buffer()
        if _has_odd_numbers(text.to_pybytes()):
            return None
        parsing = pyarrow.json.ParseOptions(
            explicit_schema=wanted, newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        try:
            table = pyarrow.json.read_json(pa.BufferReader(text), _in_one(text.size), parsing)
            if table.num_rows != len(data):
                return None  # an item has two objects
            columns = [
                slot.checked(slot.kind.convert(found.combine_chunks()))
                for slot, found in zip(self._slots.values(), table.columns, strict=True)
            ]
        except DOUBTS:
            return None
        return self._joined(columns, pa.nulls(len(data), pa.string()))


class _NamedTwice(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise _NamedTwice(next(name for name, count in times.items() if count > 1))
    return found


_DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_once_each)
_SCAN: Callable[[str, int], tuple[Any, int]] = vars(_DECODER)["scan_once"]
"""Decodes the value at a place of a text, and says where it ends. Blanks around a value are left to the decoder."""


def _json_kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _in_one(size: int) -> pyarrow.json.ReadOptions:
    return pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1)


def _are_objects(data: pa.Array) -> bool:
    """Check whether items begin and end like objects, in sound UTF-8.

    Then no object reaches from one item into the next: between ``}`` and ``{`` JSON allows a line's end only outside of
    all objects. So with as many objects as items, each item is one object.
    """
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _has_odd_numbers(text: bytes) -> bool:
    """Check whether a text has something like a number that Arrow takes and Python may not, also in a string."""
    if (b"Inf" in text or b"NaN" in text) and _NOT_A_NUMBER.search(text) is not None:
        return True
    return b"0" * TINY_ZEROS in text or any(tiny.search(text) is not None for tiny in _TINY)


def _within_limits(data: pa.Array) -> bool:
    """Check whether all items are within Python's limits."""
    lengths = pc.binary_length(data)
    if pc.max(lengths).as_py() <= MOST_SIGNS:
        return True
    return all(map(_is_plain, data.filter(pc.greater(lengths, MOST_SIGNS)).to_pylist()))


def _is_plain(item: bytes) -> bool:
    depth = item.count(b"{") + item.count(b"[")
    return depth < MOST_SIGNS and b"0" * MOST_SIGNS not in item.translate(_NUMBERS)
