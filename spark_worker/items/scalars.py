"""The rules of types without parts: numbers, text, bytes, moments, and VARIANT."""

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import partial
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
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
    NullType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
)
from pyspark.sql.variant_utils import VariantBuilder

from spark_worker.items.kinds import ItemForm, Leaf, TypeRule, Unsure, arrow_of, unknown_type

# Whole numbers

_INT64 = pa.int64()


def _integer(data_type: DataType, form: ItemForm) -> TypeRule:
    arrow = arrow_of(data_type)
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


def _double(data_type: DataType, form: ItemForm) -> TypeRule:
    sure = {_INT64: _cast(_FLOAT64), _FLOAT64: partial(_ordinary, _EXACT) if form is ItemForm.JSON else _same}
    rule = partial(_floating, form)
    return Leaf(data_type.simpleString(), _FLOAT64, _FLOAT64, rule, sure, _NUMBERS)


def _float(data_type: DataType, form: ItemForm) -> TypeRule:
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
        narrow = (_ordinary(_EXACT_FLOAT, found) if form is ItemForm.JSON else found).cast(pa.float32())
        are_kept = pc.and_(
            pc.equal(pc.is_finite(narrow), pc.is_finite(found)), pc.equal(pc.equal(narrow, 0), pc.equal(found, 0))
        )
        if pc.all(are_kept).as_py() is False:
            raise Unsure
        return narrow

    sure = {_INT64: _cast(pa.float32()), _FLOAT64: narrowed}
    return Leaf(data_type.simpleString(), pa.float32(), _FLOAT64, rule, sure, _NUMBERS)


def _floating(form: ItemForm, value: Any) -> float | None:
    kind = type(value)
    if kind is float:
        found: float = value
        return found
    if kind is int:
        return _exactly(value)
    if kind is Decimal:
        return _nearest(value)
    return _BY_NAME.get(value) if form is ItemForm.JSON and kind is str else None


def _exactly(value: int) -> float | None:
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if int(found) == value else None


def _nearest(value: Decimal) -> float | None:
    """Give the double of a number of JSON; above ``_EXACT`` only in the form in which programs write it."""
    found = float(value)
    if abs(value) <= _EXACT:
        return found if found or not value else None
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


def _decimal(data_type: DataType, form: ItemForm) -> TypeRule:
    assert isinstance(data_type, DecimalType)
    arrow = arrow_of(data_type)
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


def _text(data_type: DataType, form: ItemForm) -> TypeRule:
    def rule(value: Any) -> str | None:
        return value if type(value) is str and _is_sound(value) else None

    return Leaf(data_type.simpleString(), pa.string(), pa.string(), rule, {pa.string(): _same})


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair, as JSON can write it
        return False
    return True


def _binary(data_type: DataType, form: ItemForm) -> TypeRule:
    def rule(value: Any) -> bytes | None:
        return value if type(value) is bytes else None

    if form is ItemForm.JSON:
        return _of_text(data_type, _from_base64)
    sure = {pa.binary(): _same}
    return Leaf(data_type.simpleString(), pa.binary(), None, rule, sure, frozenset({bytes, type(None)}))


def _from_base64(text: str) -> bytes | None:
    found = base64.b64decode(text, validate=True)
    return found if base64.b64encode(found).decode() == text else None


def _boolean(data_type: DataType, form: ItemForm) -> TypeRule:
    def rule(value: Any) -> bool | None:
        return value if type(value) is bool else None

    return Leaf(data_type.simpleString(), pa.bool_(), pa.bool_(), rule, {pa.bool_(): _same})


def _nothing(data_type: DataType, form: ItemForm) -> TypeRule:
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


def _date(data_type: DataType, form: ItemForm) -> TypeRule:
    days = pa.date32()
    bounds = ((_FIRST - _EPOCH).days, (_LAST - _EPOCH).days)
    sure = {pa.string(): lambda found: _within(found.cast(days), pa.int32(), bounds)}
    return Leaf(data_type.simpleString(), days, pa.string(), _with(date.fromisoformat), sure)


def _timestamp(data_type: DataType, form: ItemForm) -> TypeRule:
    arrow, local = pa.timestamp("us", "UTC"), pa.timestamp("us")

    def convert(found: pa.Array) -> pa.Array:
        try:
            moments = found.cast(arrow)
        except pa.ArrowInvalid:
            moments = found.cast(local).view(arrow)  # none has an offset
        return _within(moments, _INT64, _MOMENTS)

    def rule(value: object) -> object:
        return _of_timestamp(value) if type(value) is msgpack.Timestamp else of_text(value)

    of_text = _with(_moment)
    return Leaf(data_type.simpleString(), arrow, pa.string(), rule, {pa.string(): convert})


def _local_timestamp(data_type: DataType, form: ItemForm) -> TypeRule:
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


def _time(data_type: DataType, form: ItemForm) -> TypeRule:
    assert isinstance(data_type, TimeType)
    if data_type != TimeType():
        raise unknown_type(data_type)  # Spark takes no other precision from Arrow
    return _of_text(data_type, _time_of_day)


def _time_of_day(text: str) -> time | None:
    return time.fromisoformat(text) if _TIME.fullmatch(text) and not _LOST.search(text) else None


def _interval(data_type: DataType, form: ItemForm) -> TypeRule:
    if data_type != DayTimeIntervalType():
        raise unknown_type(data_type)
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


def _of_text(data_type: DataType, parse: Callable[[str], object]) -> TypeRule:
    """Make the rules of a type whose values are text, each parsed alone."""
    arrow = arrow_of(data_type)
    rule = _with(parse)

    def convert(found: pa.Array) -> pa.Array:
        made = [None if text is None else rule(text) for text in found.to_pylist()]
        column = pa.array(made, arrow)
        if column.null_count != found.null_count:
            raise Unsure
        return column

    return Leaf(data_type.simpleString(), arrow, pa.string(), rule, {pa.string(): convert})


def _with(parse: Callable[[str], object]) -> Callable[[object], object]:
    """Make a rule: text that can be parsed fits."""

    def rule(value: object) -> object:
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


def _variant(data_type: DataType, form: ItemForm) -> TypeRule:
    def rule(value: Any) -> dict[str, bytes] | None:
        text = variant_text(value)
        if text is None:
            return None
        found, metadata = VariantBuilder().build(text)
        return {"value": found, "metadata": metadata}

    return Leaf(data_type.simpleString(), arrow_of(data_type), None, rule, {})


def variant_text(value: Any) -> str | None:
    """Write a value as the JSON of a VARIANT; None if it has none."""
    try:
        text = _as_json(value)
        return text if len(text.encode()) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None


def json_variant_text(value: Any) -> str | None:
    """Write a value of JSON as ``variant_text`` does, at once where its numbers allow that."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return variant_text(value)
    if len(text) > MOST_DIGITS and (len(text) > MOST_BYTES or _LONG_NUMBER.search(text)):
        return variant_text(value)
    if text.count("[") + text.count("{") > MOST_PARTS:
        # It may be nested too deep for Spark.
        return variant_text(value)
    return text


def _shortest(value: object) -> float:
    """Give a number that is written the same as a float.

    Raises:
        TypeError: it is not.
    """
    if type(value) is not Decimal or repr(number := float(value)) != str(value):
        raise TypeError("a float would be written otherwise")
    return number


# A tree of JSON has no circle.
_ENCODER = json.JSONEncoder(allow_nan=False, check_circular=False, default=_shortest)

MOST_PARTS = 400
"""Arrays and objects of a value that is written at once. More could be nested deeper than is written part by part."""

_LONG_NUMBER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")
"""Digits that a VARIANT may have no room for, also within a text."""


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
        if kind is Decimal and (math.isinf(float(value)) or (value and not float(value))):
            raise ValueError("a number is too large or too small")
        return str(value)
    if value is None or kind in (bool, float, str):
        return json.dumps(value, allow_nan=False)
    raise ValueError("JSON has no such value")


def _same(found: pa.Array) -> pa.Array:
    return found


def _cast(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Make a conversion that raises an error rather than change a value."""
    return lambda found: found.cast(arrow)


SCALARS: Mapping[type[DataType], Callable[[DataType, ItemForm], TypeRule]] = {
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
"""The rules of each type without parts."""
