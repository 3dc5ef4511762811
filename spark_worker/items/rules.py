"""The rules by which a value of an item becomes a value of Spark: one table, for msgpack and JSON.

A ``Kind`` belongs to a type of Spark. ``Kind.read`` is the rule: it gives the value of one item, or refuses it. Nothing
is rounded, cut or guessed, but for the fraction of a FLOAT or DOUBLE. The other methods read many values at once, and
take only what ``read`` takes, too: they raise ``Unsure`` or an error of Arrow about everything else.

| type | msgpack | JSON |
|---|---|---|
| BOOLEAN | boolean | boolean |
| TINYINT to BIGINT | whole number in range | whole number in range |
| FLOAT, DOUBLE | float in range, integer that it holds exactly | number in range, "NaN" and infinities as text |
| DECIMAL | text, integer | text, number; no digit is lost |
| STRING | text | text |
| BINARY | bytes | text in Base64 |
| DATE, TIME, TIMESTAMP_NTZ | text in ISO 8601 without an offset | the same |
| TIMESTAMP | text in ISO 8601, timestamp of msgpack | text in ISO 8601 |
| INTERVAL DAY TO SECOND | text as Spark writes it | the same |
| VARIANT | all that JSON can write | any value |
| VOID | null | null |
| ARRAY, MAP, STRUCT | array, map, map | array, object, object |
"""

import base64
import json
import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from enum import Enum
from functools import partial
from itertools import accumulate, chain
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)
from pyspark.sql.variant_utils import VariantBuilder

from spark_worker.items.explaining import article, shown
from xbus.errors import ConfigurationError


class Form(Enum):
    """The format that a value comes in."""

    MSGPACK = "msgpack"
    JSON = "json"


class Misfit(Exception):
    """A value does not fit its type.

    Args:
        fault: the end of a sentence that begins with the name of the field.
        place: the way from the field to the value, such as ``[2].price``.
    """

    def __init__(self, fault: str, place: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.place = place

    def within(self, place: str) -> "Misfit":
        """Make the same error for the value around."""
        return Misfit(self.fault, place + self.place)


class Unsure(ValueError):
    """Many values can't be read at once: each needs its rule."""


DOUBTS = (Unsure, pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of reading many values at once."""


class Kind(ABC):
    """How values become those of a type of Spark.

    Args:
        name: of the type, as Spark writes it.
        arrow: the type of a column.
        by_arrow: the type as which Arrow's parser of JSON reads such values; None if it can't.
    """

    def __init__(self, name: str, arrow: pa.DataType, by_arrow: pa.DataType | None = None) -> None:
        self.name = name
        self.arrow = arrow
        self.by_arrow = by_arrow

    @abstractmethod
    def read(self, value: Any) -> object:
        """Give the value for a column.

        Args:
            value: as the format made it, and not None.

        Raises:
            Misfit: it does not fit.
        """

    @abstractmethod
    def take(self, values: list[Any]) -> pa.Array:
        """Make a column of many values at once.

        Raises:
            Exception: one of ``DOUBTS``; the column needs ``read`` value by value.
        """

    @abstractmethod
    def convert(self, found: pa.Array) -> pa.Array:
        """Make a column of values that Arrow has read, as those of ``take``."""


class Leaf(Kind):
    """A type without parts.

    Args:
        name: as of ``Kind``.
        arrow: as of ``Kind``.
        by_arrow: as of ``Kind``.
        rule: gives the value for a column, or None if it does not fit.
        sure: by a type that Arrow finds for many values, how these become a column.
        python: the only types of values that may be read at once, where Arrow's own finding is too lenient; a Decimal
            goes as a float, of which ``sure`` has to judge.
    """

    def __init__(
        self,
        name: str,
        arrow: pa.DataType,
        by_arrow: pa.DataType | None,
        rule: Callable[[Any], object],
        sure: Mapping[pa.DataType, Callable[[pa.Array], pa.Array]],
        python: frozenset[type] | None = None,
    ) -> None:
        super().__init__(name, arrow, by_arrow)
        self._rule = rule
        self._sure = sure
        self._python = python

    @property
    def is_found(self) -> bool:
        """Whether Arrow's own finding of a type is strict enough."""
        return self._python is None

    def read(self, value: Any) -> object:
        made = self._rule(value)
        if made is None:
            raise Misfit(f": {shown(value)} is not {article(self.name)}")
        return made

    def take(self, values: list[Any]) -> pa.Array:
        if self._python is not None:
            types = set(map(type, values))
            if Decimal in types:
                values = [float(value) if type(value) is Decimal else value for value in values]
                types.discard(Decimal)
            if not self._python.issuperset(types):
                raise Unsure
        return self.convert(pa.array(values))

    def convert(self, found: pa.Array) -> pa.Array:
        if found.null_count == len(found):
            return pa.nulls(len(found), self.arrow)
        if found.type not in self._sure:
            raise Unsure
        return self._sure[found.type](found)


class Slot:
    """A place for a value that may be missing: a field, or an element of an array or map.

    Args:
        kind: of its values.
        is_demanded: whether it can't be null.
    """

    def __init__(self, kind: Kind, is_demanded: bool) -> None:
        self.kind = kind
        self.is_demanded = is_demanded

    def read(self, value: Any) -> object:
        """Give the value for a column, which is None for None."""
        if value is not None:
            return self.kind.read(value)
        if self.is_demanded:
            raise Misfit(" is missing")
        return None

    def checked(self, column: pa.Array, around: pa.Array | None = None) -> pa.Array:
        """Let a column pass that lacks nothing; where ``around`` is null nothing is demanded."""
        if self.is_demanded and column.null_count:
            lacking = column.is_null() if around is None else pc.and_(column.is_null(), around.is_valid())
            if pc.any(lacking).as_py():
                raise Unsure
        return column


class Struct(Kind):
    """STRUCT: a map with text keys. Keys without a field are left out.

    Args:
        name: as of ``Kind``.
        arrow: as of ``Kind``.
        slots: the fields by name.
    """

    def __init__(self, name: str, arrow: pa.DataType, slots: Mapping[str, Slot]) -> None:
        read = [(field, slot.kind.by_arrow) for field, slot in slots.items()]
        super().__init__(name, arrow, pa.struct(read) if all(kind for _, kind in read) else None)
        self.slots = slots

    def read(self, value: Any) -> object:
        if type(value) is not dict:
            raise Misfit(f": {shown(value)} is not {article(self.name)}")
        made = {}
        for field, slot in self.slots.items():
            try:
                made[field] = slot.read(value.get(field))
            except Misfit as misfit:
                raise misfit.within(f".{field}") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        if not _has_null(values, dict):
            columns = [
                slot.checked(slot.kind.take([value.get(field) for value in values]))
                for field, slot in self.slots.items()
            ]
            return pa.StructArray.from_arrays(columns, fields=list(self.arrow))
        around = pa.array([value is not None or None for value in values], pa.bool_())
        columns = [
            slot.checked(slot.kind.take([None if value is None else value.get(field) for value in values]), around)
            for field, slot in self.slots.items()
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=around.is_null())

    def convert(self, found: pa.Array) -> pa.Array:
        columns = [
            slot.checked(slot.kind.convert(found.field(place)), found) for place, slot in enumerate(self.slots.values())
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.arrow), mask=found.is_null())


class Array(Kind):
    """ARRAY: an array, and nothing else that has a length."""

    def __init__(self, name: str, arrow: pa.DataType, element: Slot) -> None:
        super().__init__(name, arrow, element.kind.by_arrow and pa.list_(element.kind.by_arrow))
        self._element = element

    def read(self, value: Any) -> object:
        if type(value) is not list:
            raise Misfit(f": {shown(value)} is not {article(self.name)}")
        made: list[object] = []
        for each in value:
            try:
                made.append(self._element.read(each))
            except Misfit as misfit:
                raise misfit.within(f"[{len(made)}]") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        has_null = _has_null(values, list)
        if isinstance(self._element.kind, Leaf) and self._element.kind.is_found:
            found = pa.array(values)
            if not pa.types.is_list(found.type):
                raise Unsure  # all are null
            return self.convert(found)
        offsets = _offsets(values, has_null)
        elements = list(chain.from_iterable(filter(None, values)))
        column = self._element.checked(self._element.kind.take(elements))
        return pa.ListArray.from_arrays(offsets, column, type=self.arrow)

    def convert(self, found: pa.Array) -> pa.Array:
        column = self._element.checked(self._element.kind.convert(found.values))
        return pa.ListArray.from_arrays(found.offsets, column, type=self.arrow, mask=found.is_null())


class Map(Kind):
    """MAP: a map. Two keys that mean the same don't fit.

    Args:
        name: as of ``Kind``.
        arrow: as of ``Kind``.
        key: of the keys.
        value: of the values.
    """

    def __init__(self, name: str, arrow: pa.DataType, key: Kind, value: Slot) -> None:
        super().__init__(name, arrow)
        self._key = Slot(key, is_demanded=True)
        self._value = value
        self._are_keys_plain = pa.types.is_string(key.arrow) or pa.types.is_integer(key.arrow)

    def read(self, value: Any) -> object:
        if type(value) is not dict:
            raise Misfit(f": {shown(value)} is not {article(self.name)}")
        made: dict[object, object] = {}
        for name, each in value.items():
            try:
                key = self._key.read(name)
                if key in made:
                    raise Misfit(" is a key twice")
                made[key] = self._value.read(each)
            except Misfit as misfit:
                raise misfit.within(f"[{shown(name)}]") from None
        return made

    def take(self, values: list[Any]) -> pa.Array:
        offsets = _offsets(values, _has_null(values, dict))
        if not self._are_keys_plain:
            raise Unsure
        held = list(filter(None, values))
        keys = self._key.checked(self._key.kind.take(list(chain.from_iterable(held))))
        found = self._value.kind.take(list(chain.from_iterable(map(dict.values, held))))
        return pa.MapArray.from_arrays(offsets, keys, self._value.checked(found), self.arrow)

    def convert(self, found: pa.Array) -> pa.Array:
        raise Unsure


def _has_null(values: Sequence[object], wanted: type) -> bool:
    """Check whether some values are None, and all others of a type.

    Raises:
        Unsure: one is of another type.
    """
    types = set(map(type, values)) - {wanted}
    if types - {type(None)}:
        raise Unsure
    return bool(types)


def _offsets(values: Sequence[Any], has_null: bool) -> pa.Array:
    """Say where each list begins in the elements of all; null for one that is None."""
    if not has_null:
        return pa.array([0, *accumulate(map(len, values))], pa.int32())
    begins = [0, *accumulate(len(value) if value else 0 for value in values)]
    known = [None if value is None else begin for value, begin in zip(values, begins, strict=False)]
    return pa.array([*known, begins[-1]], pa.int32())


def kind_of(data_type: DataType, form: Form) -> Kind:
    """Find the rules of a type.

    Raises:
        ConfigurationError: no value of this format can become one of the type.
    """
    if isinstance(data_type, StructType):
        slots = {field.name: Slot(kind_of(field.dataType, form), not field.nullable) for field in data_type}
        return Struct(data_type.simpleString(), _arrow(data_type), slots)
    if isinstance(data_type, ArrayType):
        element = Slot(kind_of(data_type.elementType, form), not data_type.containsNull)
        return Array(data_type.simpleString(), _arrow(data_type), element)
    if isinstance(data_type, MapType):
        value = Slot(kind_of(data_type.valueType, form), not data_type.valueContainsNull)
        return Map(data_type.simpleString(), _arrow(data_type), kind_of(data_type.keyType, form), value)
    if make := _LEAVES.get(type(data_type)):
        return make(data_type, form)
    raise _unknown(data_type)


def column_of(data_type: DataType, form: Form) -> Kind:
    """Find the rules of a column, as ``kind_of`` does; of VARIANT it gets the JSON, which Spark parses faster."""
    if isinstance(data_type, VariantType):
        return Leaf(data_type.simpleString(), pa.string(), None, _variant_text, {})
    return kind_of(data_type, form)


def _unknown(data_type: DataType) -> ConfigurationError:
    return ConfigurationError(
        f"--schema has a column of the type {data_type.simpleString()}, which no item can fill",
        "declare it as STRING or VARIANT, and convert it in the transform",
    )


def _arrow(data_type: DataType) -> pa.DataType:
    try:
        return to_arrow_type(data_type, timezone="UTC")
    except PySparkException as error:
        raise _unknown(data_type) from error


# Whole numbers

_INT64 = pa.int64()


def _integer(data_type: DataType, form: Form) -> Kind:
    arrow = _arrow(data_type)
    most = 2 ** (arrow.bit_width - 1)
    return Leaf(data_type.simpleString(), arrow, arrow, partial(_whole, most), {_INT64: _cast(arrow), arrow: _same})


def _whole(most: int, value: Any) -> int | None:
    kind = type(value)
    if kind is int:
        return value if -most <= value < most else None
    if kind in (float, Decimal) and -most <= value < most and value == (whole := int(value)):
        return whole
    return None


# Floats

_FLOAT64 = pa.float64()
_EXACT = 2**53
"""A double holds all whole numbers up to it."""

_EXACT_FLOAT = 2**24
"""So does a float."""

_NUMBERS: frozenset[type] = frozenset({int, float, type(None)})
_BY_NAME = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _double(data_type: DataType, form: Form) -> Kind:
    sure = {_INT64: _cast(_FLOAT64), _FLOAT64: partial(_ordinary, _EXACT) if form is Form.JSON else _same}
    rule = partial(_floating, form)
    return Leaf(data_type.simpleString(), _FLOAT64, _FLOAT64, rule, sure, _NUMBERS)


def _float(data_type: DataType, form: Form) -> Kind:
    def rule(value: Any) -> float | None:
        found = _floating(form, value)
        if found is None or not math.isfinite(found):
            return found
        try:
            (narrow,) = struct.unpack("<f", struct.pack("<f", found))
        except OverflowError:
            return None
        is_kept = narrow == value if type(value) is int else bool(narrow) == bool(found)
        return found if is_kept else None

    def narrowed(found: pa.Array) -> pa.Array:
        narrow = (_ordinary(_EXACT_FLOAT, found) if form is Form.JSON else found).cast(pa.float32())
        are_kept = pc.and_(
            pc.equal(pc.is_finite(narrow), pc.is_finite(found)), pc.equal(pc.equal(narrow, 0), pc.equal(found, 0))
        )
        if pc.all(are_kept).as_py() is False:
            raise Unsure
        return narrow

    sure = {_INT64: _cast(pa.float32()), _FLOAT64: narrowed}
    return Leaf(data_type.simpleString(), pa.float32(), _FLOAT64, rule, sure, _NUMBERS)


def _floating(form: Form, value: Any) -> float | None:
    kind = type(value)
    if kind is float:
        found: float = value
        return found
    if kind is int:
        return _exactly(value)
    if kind is Decimal:
        return _nearest(value)
    return _BY_NAME.get(value) if form is Form.JSON and kind is str else None


def _exactly(value: int) -> float | None:
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if int(found) == value else None


def _nearest(value: Decimal) -> float | None:
    """Give the double of a number of JSON; above ``_EXACT`` only if it is one that programs write for this double."""
    found = float(value)
    if abs(value) <= _EXACT:
        return found
    if math.isinf(found):
        return None
    written = (repr(found), f"{found:.17g}", f"{found:.16g}")
    return found if found == value or any(Decimal(text) == value for text in written) else None


def _ordinary(most: int, found: pa.Array) -> pa.Array:
    """Let doubles of Arrow's parser pass that it has read as ``read`` would.

    Args:
        most: all whole numbers below it are exact: Arrow does not say which numbers had a fraction.
        found: the doubles.
    """
    ends = pc.min_max(pc.abs(found))
    if not 0 <= ends["min"].as_py() <= ends["max"].as_py() < most:  # nan compares as false
        raise Unsure
    if pc.any(pc.is_nan(found)).as_py() or pc.any(pc.equal(found.view(_INT64), _NEGATIVE_ZERO)).as_py():
        raise Unsure
    return found


_NEGATIVE_ZERO = -(2**63)
"""The bits of -0.0, read as an integer; ``-0`` is an integer of JSON."""


# Decimals

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _decimal(data_type: DataType, form: Form) -> Kind:
    assert isinstance(data_type, DecimalType)
    arrow = _arrow(data_type)
    unit = Decimal(1).scaleb(-data_type.scale)
    context = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])

    def rule(value: Any) -> Decimal | None:
        kind = type(value)
        if not (kind in (int, Decimal) or (kind is str and _DECIMAL.fullmatch(value))):
            return None
        try:
            return Decimal(value).quantize(unit, context=context)
        except DecimalException:
            return None

    def bounded(found: pa.Array) -> pa.Array:
        # Arrow gives an integer more digits than the type has.
        ends = pc.min_max(found)
        if not -most < ends["min"].as_py() <= ends["max"].as_py() < most:
            raise Unsure
        return found

    most = 10 ** (data_type.precision - data_type.scale)
    sure = {pa.string(): lambda found: bounded(found.cast(arrow)), arrow: bounded}
    return Leaf(data_type.simpleString(), arrow, arrow, rule, sure)


# Text and bytes


def _text(data_type: DataType, form: Form) -> Kind:
    def rule(value: Any) -> str | None:
        return value if type(value) is str and _is_sound(value) else None

    return Leaf(data_type.simpleString(), pa.string(), pa.string(), rule, {pa.string(): _same})


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair, as JSON can write it
        return False
    return True


def _binary(data_type: DataType, form: Form) -> Kind:
    def rule(value: Any) -> bytes | None:
        return value if type(value) is bytes else None

    if form is Form.JSON:
        return _of_text(data_type, _from_base64)
    sure = {pa.binary(): _same}
    return Leaf(data_type.simpleString(), pa.binary(), None, rule, sure, frozenset({bytes, type(None)}))


def _from_base64(text: str) -> bytes | None:
    found = base64.b64decode(text, validate=True)
    return found if base64.b64encode(found).decode() == text else None


def _boolean(data_type: DataType, form: Form) -> Kind:
    def rule(value: Any) -> bool | None:
        return value if type(value) is bool else None

    return Leaf(data_type.simpleString(), pa.bool_(), pa.bool_(), rule, {pa.bool_(): _same})


def _nothing(data_type: DataType, form: Form) -> Kind:
    return Leaf(data_type.simpleString(), pa.null(), None, lambda value: None, {})


# Dates and times

_LOST = re.compile(r"[.,][0-9]{6}0*[1-9]")
"""A fraction of a second beyond microseconds, which Spark can't hold."""

_MOMENT = re.compile(r"[0-9W-]{7,10}(?:[T ].+)?")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?")
_INTERVAL = re.compile(
    r"INTERVAL '([+-]?)([0-9]{1,9}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?' DAY TO SECOND"
)
_NANOSECONDS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _date(data_type: DataType, form: Form) -> Kind:
    days = pa.date32()
    bounds = ((_FIRST - _EPOCH).days, (_LAST - _EPOCH).days)
    sure = {pa.string(): lambda found: _within(found.cast(days), pa.int32(), bounds)}
    return Leaf(data_type.simpleString(), days, pa.string(), _with(date.fromisoformat), sure)


def _timestamp(data_type: DataType, form: Form) -> Kind:
    arrow, local = pa.timestamp("us", "UTC"), pa.timestamp("us")

    def convert(found: pa.Array) -> pa.Array:
        try:
            moments = found.cast(arrow)
        except pa.ArrowInvalid:
            moments = found.cast(local).view(arrow)  # none has an offset
        return _within(moments, _INT64, _MOMENTS)

    def rule(value: Any) -> datetime | None:
        return _of_timestamp(value) if type(value) is msgpack.Timestamp else of_text(value)

    of_text = _with(_moment)
    return Leaf(data_type.simpleString(), arrow, pa.string(), rule, {pa.string(): convert})


def _local_timestamp(data_type: DataType, form: Form) -> Kind:
    arrow = pa.timestamp("us")
    sure = {pa.string(): lambda found: _within(found.cast(arrow), _INT64, _MOMENTS)}
    return Leaf(data_type.simpleString(), arrow, pa.string(), _with(_local_moment), sure)


_MOMENTS = tuple((moment - _EPOCH) // timedelta(microseconds=1) for moment in (_FIRST, _LAST))
"""The first and the last moment that Python and Spark share, in microseconds since 1970."""


def _within(found: pa.Array, integers: pa.DataType, bounds: Sequence[int]) -> pa.Array:
    ends = pc.min_max(found.view(integers))
    if not bounds[0] <= ends["min"].as_py() <= ends["max"].as_py() <= bounds[1]:
        raise Unsure
    return found


def _of_timestamp(value: Any) -> datetime | None:
    if value.nanoseconds % _NANOSECONDS:
        return None
    try:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanoseconds // _NANOSECONDS)
    except OverflowError:
        return None


def _moment(text: str) -> datetime | None:
    found = _parsed_moment(text)
    if found is None:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _local_moment(text: str) -> datetime | None:
    found = _parsed_moment(text)
    return None if found is None or found.tzinfo else found


def _parsed_moment(text: str) -> datetime | None:
    text = text.upper()
    return datetime.fromisoformat(text) if _MOMENT.fullmatch(text) and not _LOST.search(text) else None


def _time(data_type: DataType, form: Form) -> Kind:
    assert isinstance(data_type, TimeType)
    if data_type != TimeType():
        raise _unknown(data_type)  # Spark takes no other precision from Arrow
    return _of_text(data_type, _time_of_day)


def _time_of_day(text: str) -> time | None:
    return time.fromisoformat(text) if _TIME.fullmatch(text) and not _LOST.search(text) else None


def _interval(data_type: DataType, form: Form) -> Kind:
    if data_type != DayTimeIntervalType():
        raise _unknown(data_type)
    return _of_text(data_type, _parsed_interval)


def _parsed_interval(text: str) -> timedelta | None:
    if not (found := _INTERVAL.fullmatch(text)):
        return None
    sign, days, hours, minutes, seconds, fraction = found.groups()
    if not (int(hours) < 24 and int(minutes) < 60 and int(seconds) < 60):
        return None
    length = timedelta(int(days), int(seconds), int((fraction or "0").ljust(6, "0")), 0, int(minutes), int(hours))
    return -length if sign == "-" else length


def as_interval(length: timedelta) -> str:
    """Write an interval as Spark does, and as it is read here."""
    sign, length = ("-", -length) if length < timedelta(0) else ("", length)
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{length.microseconds:06}".rstrip("0") if length.microseconds else ""
    return f"INTERVAL '{sign}{length.days} {hours:02}:{minutes:02}:{seconds:02}{fraction}' DAY TO SECOND"


def _of_text(data_type: DataType, parse: Callable[[str], Any]) -> Kind:
    """Make the rules of a type whose values are text, each parsed alone."""
    arrow = _arrow(data_type)
    rule = _with(parse)

    def convert(found: pa.Array) -> pa.Array:
        made = [None if text is None else rule(text) for text in found.to_pylist()]
        column = pa.array(made, arrow)
        if column.null_count != found.null_count:
            raise Unsure
        return column

    return Leaf(data_type.simpleString(), arrow, pa.string(), rule, {pa.string(): convert})


def _with(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Make a rule: text that can be parsed fits."""

    def rule(value: Any) -> Any:
        if type(value) is not str:
            return None
        try:
            return parse(value)
        except (ValueError, OverflowError):
            return None

    return rule


# Anything

MOST_DIGITS = 38
"""The most digits of a number that a VARIANT keeps."""

MOST_BYTES = 8 * 1024 * 1024
"""The longest JSON of a VARIANT. Spark refuses a VARIANT of more than 16 MiB, which can be larger than its JSON."""


def _variant(data_type: DataType, form: Form) -> Kind:
    def rule(value: Any) -> dict[str, bytes] | None:
        text = _variant_text(value)
        if text is None:
            return None
        found, metadata = VariantBuilder().build(text)
        return {"value": found, "metadata": metadata}

    return Leaf(data_type.simpleString(), _arrow(data_type), None, rule, {})


def _variant_text(value: Any) -> str | None:
    try:
        text = _as_json(value)
        return text if len(text.encode()) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None


def _as_json(value: Any) -> str:
    """Write a value as JSON, its numbers digit by digit.

    Raises:
        ValueError: JSON can't, or a VARIANT has no room for the digits of a number.
    """
    kind = type(value)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise ValueError("a key is no text")
        return f"{{{', '.join(f'{json.dumps(key)}: {_as_json(each)}' for key, each in value.items())}}}"
    if kind is list:
        return f"[{', '.join(map(_as_json, value))}]"
    if kind in (int, Decimal):
        if len(Decimal(value).as_tuple().digits) > MOST_DIGITS:
            raise ValueError("a number has too many digits")
        return str(value)
    if value is None or kind in (bool, float, str):
        return json.dumps(value, allow_nan=False)
    raise ValueError("JSON has no such value")


def _same(found: pa.Array) -> pa.Array:
    return found


def _cast(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Make a conversion that raises an error rather than change a value."""
    return lambda found: found.cast(arrow)


_LEAVES: Mapping[type[DataType], Callable[[DataType, Form], Kind]] = {
    BinaryType: _binary,
    BooleanType: _boolean,
    ByteType: _integer,
    DateType: _date,
    DayTimeIntervalType: _interval,
    DecimalType: _decimal,
    DoubleType: _double,
    FloatType: _float,
    IntegerType: _integer,
    LongType: _integer,
    NullType: _nothing,
    ShortType: _integer,
    StringType: _text,
    TimestampNTZType: _local_timestamp,
    TimestampType: _timestamp,
    TimeType: _time,
    VariantType: _variant,
}
