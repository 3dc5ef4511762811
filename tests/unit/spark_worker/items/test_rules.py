"""Every type of Spark times every kind of value: a value is taken as it is, or refused by its index and field."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
    VariantVal,
    YearMonthIntervalType,
)

from spark_worker.items.packing import items_of
from spark_worker.items.rows import JsonRows, MsgpackRows, RowMaker
from xbus.errors import ConfigurationError

INTERVAL = "INTERVAL '1 02:03:04.5' DAY TO SECOND"
BYTES = b"\xffabc"
LARGE = 2**53 + 1
"""The first whole number that no double holds."""

VALUES: Mapping[str, Any] = {
    "true": True,
    "1": 1,
    "-1": -1,
    "300": 300,
    "40000": 40_000,
    "2**31": 2**31,
    "2**53+1": LARGE,
    "2**60": 2**60,
    "2**63": 2**63,
    "1.0": 1.0,
    "19.5": 19.5,
    "0.1": 0.1,
    "1e300": 1e300,
    "1e-300": 1e-300,
    "nan": math.nan,
    "inf": math.inf,
    "word": "abc",
    "empty": "",
    "digits": "7",
    "price": "12.50",
    "three places": "1.005",
    "large price": "99999.99",
    "underscore": "1_0",
    "infinity by name": "Infinity",
    "day": "2026-01-31",
    "no day": "2026-02-31",
    "hour": "08:30:00",
    "local": "2026-01-31T08:30:00",
    "moment": "2026-01-31T08:30:00.5+02:00",
    "nanoseconds": "2026-01-31T08:30:00.1234567Z",
    "interval": INTERVAL,
    "bytes": BYTES,
    "base64": base64.b64encode(BYTES).decode(),
    "surrogate": "\ud83d",
    "list": [1, 2],
    "list with a fraction": [1, 2.7],
    "list with null": [1, None],
    "no elements": [],
    "map": {"a": 1},
    "map with a fraction": {"a": 1.5},
    "map with null": {"a": None},
    "map of another": {"b": 1},
    "no entries": {},
    "epoch": 1_767_225_600,
    "timestamp": msgpack.Timestamp(1_767_225_600, 5_000),
    "timestamp of nanoseconds": msgpack.Timestamp(1_767_225_600, 5_001),
    "timestamp of the year 30000": msgpack.Timestamp(900_000_000_000),
}
"""One value of each kind, and those at which rules part. Null is in ``test_null_fits_where_it_may``."""

_DAY = date(2026, 1, 31)
_LOCAL = datetime(2026, 1, 31, 8, 30)  # noqa: DTZ001
_WHOLE = {"1": 1, "-1": -1, "1.0": 1}
_INT = {**_WHOLE, "300": 300, "40000": 40_000, "epoch": 1_767_225_600}
_TEXTS = {name: value for name, value in VALUES.items() if type(value) is str and name != "surrogate"}
_FRACTIONS = {"1": 1.0, "-1": -1.0, "300": 300.0, "40000": 40_000.0, "2**31": 2.0**31, "1.0": 1.0, "19.5": 19.5}
_FLOATS = {**_FRACTIONS, "2**60": 2.0**60, "2**63": 2.0**63, "nan": math.nan, "inf": math.inf}
_MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)

FITS: list[tuple[DataType, Mapping[str, object]]] = [
    (BooleanType(), {"true": True}),
    (ByteType(), _WHOLE),
    (ShortType(), {**_WHOLE, "300": 300}),
    (IntegerType(), _INT),
    (LongType(), {**_INT, "2**31": 2**31, "2**53+1": LARGE, "2**60": 2**60}),
    (FloatType(), {**_FLOATS, "0.1": pa.scalar(0.1, pa.float32()).as_py(), "epoch": 1_767_225_600.0}),
    (DoubleType(), {**_FLOATS, "0.1": 0.1, "1e300": 1e300, "1e-300": 1e-300, "epoch": 1_767_225_600.0}),
    (DecimalType(6, 2), {name: Decimal(text) for name, text in {"1": "1", "-1": "-1", "300": "300"}.items()}
        | {"digits": Decimal(7), "price": Decimal("12.50")}),
    (StringType(), _TEXTS),
    (BinaryType(), {"bytes": BYTES}),
    (DateType(), {"day": _DAY}),
    (TimestampType(), {
        "day": _MIDNIGHT, "local": _LOCAL.replace(tzinfo=UTC), "moment": datetime(2026, 1, 31, 6, 30, 0, 500_000, UTC),
        "timestamp": datetime(2026, 1, 1, 0, 0, 0, 5, UTC)}),
    (TimestampNTZType(), {"day": _MIDNIGHT.replace(tzinfo=None), "local": _LOCAL}),
    (TimeType(), {"hour": time(8, 30)}),
    (DayTimeIntervalType(), {"interval": timedelta(days=1, hours=2, minutes=3, seconds=4.5)}),
    (NullType(), {}),
    (ArrayType(IntegerType()), {"list": [1, 2], "list with null": [1, None], "no elements": []}),
    (ArrayType(IntegerType(), containsNull=False), {"list": [1, 2], "no elements": []}),
    (MapType(StringType(), IntegerType()), {
        "map": [("a", 1)], "map with null": [("a", None)], "map of another": [("b", 1)], "no entries": []}),
    (StructType([StructField("a", IntegerType(), nullable=False)]), {"map": {"a": 1}}),
    (StructType([StructField("a", IntegerType())]), {
        "map": {"a": 1}, "map with null": {"a": None}, "map of another": {"a": None}, "no entries": {"a": None}}),
]  # fmt: skip
"""The values that fit a type, as they come out of msgpack. All others are refused."""

OF_JSON: Mapping[type[DataType], Mapping[str, object]] = {
    FloatType: {"infinity by name": math.inf},
    DoubleType: {"infinity by name": math.inf},
    DecimalType: {"1.0": Decimal(1), "19.5": Decimal("19.5"), "0.1": Decimal("0.1")},
    BinaryType: {"base64": BYTES, "empty": b"", "infinity by name": base64.b64decode("Infinity")},
}
"""The values of JSON that fit beside those."""

NOT_IN_JSON = {name for name, value in VALUES.items() if isinstance(value, (bytes, msgpack.Timestamp))}


def packed(value: object) -> bytes:
    row: bytes = msgpack.packb({"x": value}, unicode_errors="surrogatepass")
    return row


def written(value: object) -> bytes:
    return json.dumps({"x": value}).encode()


def reader_of(name: str, kind: DataType, *, is_demanded: bool = False) -> RowMaker:
    schema = StructType([StructField("x", kind, not is_demanded)])
    return MsgpackRows(schema) if name == "msgpack" else JsonRows(schema)


def read(reader: RowMaker, *items: bytes) -> list[tuple[object, str | None]]:
    """The value of each item, with what is wrong with it."""
    rows = reader.rows(pa.array(items, pa.binary()))
    return [
        (value, reader.explain(item) if corrupt is not None else None)
        for item, value, corrupt in zip(
            items, rows.field("x").to_pylist(), rows.field("_corrupt").to_pylist(), strict=True
        )
    ]


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    return found == wanted and type(found) is type(wanted)


def cases(form: str, fits: Mapping[str, object], kind: DataType) -> tuple[dict[str, object], dict[str, object]]:
    """The values of a format, and those of them that fit."""
    if form == "msgpack":
        # msgpack itself has no half of a pair: such an item is none.
        return dict(VALUES), dict(fits)
    values = {name: value for name, value in VALUES.items() if name not in NOT_IN_JSON}
    fitting = {name: value for name, value in fits.items() if name not in NOT_IN_JSON}
    return values, fitting | dict(OF_JSON.get(type(kind), {}))


@pytest.mark.parametrize("form", ["msgpack", "json"])
@pytest.mark.parametrize(("kind", "fits"), FITS, ids=[str(kind) for kind, _ in FITS])
def test_a_value_is_taken_as_it_is_or_refused(form: str, kind: DataType, fits: Mapping[str, object]) -> None:
    values, fitting = cases(form, fits, kind)
    pack = packed if form == "msgpack" else written
    around: Mapping[str, tuple[DataType, Any, Any]] = {
        "": (kind, lambda value: value, lambda found: found),
        "[1]": (ArrayType(kind), lambda value: [None, value], lambda found: found[1]),
        '["k"]': (MapType(StringType(), kind), lambda value: {"k": value}, lambda found: dict(found)["k"]),
        ".f": (StructType([StructField("f", kind)]), lambda value: {"f": value}, lambda found: found["f"]),
    }
    for place, (outer, wrap, unwrap) in around.items():
        reader = reader_of(form, outer)
        alone = {name: read(reader, pack(wrap(value)))[0] for name, value in values.items()}
        together = read(reader, *[pack(wrap(value)) for value in values.values()])

        assert [repr(found) for found in together] == [repr(found) for found in alone.values()], place
        for name, (found, cause) in alone.items():
            if name in fitting:
                assert cause is None, (place, name, cause)
                assert same(unwrap(found), fitting[name]), (place, name, found)
            else:
                assert cause is not None, (place, name, found)
                assert found is None
                if name != "surrogate" or form == "json":
                    assert cause.startswith(f"field x{place}"), (place, name, cause)


@pytest.mark.parametrize("form", ["msgpack", "json"])
@pytest.mark.parametrize("kind", [kind for kind, _ in FITS] + [VariantType()], ids=str)
def test_null_fits_where_it_may(form: str, kind: DataType) -> None:
    pack = packed if form == "msgpack" else written
    assert read(reader_of(form, kind), pack(None)) == [(None, None)]
    if kind == NullType():
        return  # can't be demanded
    inner = StructType([StructField("f", kind, nullable=False)])
    assert read(reader_of(form, kind, is_demanded=True), pack(None)) == [(None, "field x is missing")]
    assert read(reader_of(form, inner), pack({"f": None}), pack({}), pack(None)) == [
        (None, "field x.f is missing"),
        (None, "field x.f is missing"),
        (None, None),
    ]
    assert read(reader_of(form, ArrayType(kind, containsNull=False)), pack([None])) == [(None, "field x[0] is missing")]
    assert read(reader_of(form, MapType(StringType(), kind, valueContainsNull=False)), pack({"k": None})) == [
        (None, 'field x["k"] is missing')
    ]


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_a_variant_takes_what_json_can_write(form: str) -> None:
    pack = packed if form == "msgpack" else written
    foreign = {*NOT_IN_JSON, "nan", "inf", "surrogate"}
    values = {name: value for name, value in VALUES.items() if name not in foreign}

    columns = read(reader_of(form, VariantType()), *map(pack, values.values()))
    lists = read(reader_of(form, ArrayType(VariantType())), *[pack([value]) for value in values.values()])

    for (name, value), (text, cause), (inner, _) in zip(values.items(), columns, lists, strict=True):
        assert cause is None, name
        assert json.loads(str(text)) == value, "Spark parses it"
        assert isinstance(inner, list)
        (variant,) = inner
        assert json.loads(VariantVal(variant["value"], variant["metadata"]).toJson()) == value, name
    if form == "msgpack":
        refused = read(reader_of(form, VariantType()), *[pack(VALUES[name]) for name in sorted(foreign)])
        assert all(cause is not None for _, cause in refused)


@pytest.mark.parametrize(
    "kind", [CharType(3), YearMonthIntervalType(), DayTimeIntervalType(1, 3), TimeType(3)], ids=str
)
@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_a_type_that_no_item_can_fill_is_refused_at_the_start(form: str, kind: DataType) -> None:
    for schema in (kind, ArrayType(kind), StructType([StructField("f", kind)])):
        with pytest.raises(ConfigurationError, match="which no item can fill"):
            reader_of(form, schema)


@pytest.mark.parametrize(
    ("number", "kind", "found"),
    [
        (b"12345678901234567.89", DoubleType(), None),
        (b"12345678901234567.89", DecimalType(19, 2), Decimal("12345678901234567.89")),
        (b"12345678901234567.89", DecimalType(18, 1), None),
        (b"1.2345678901234568e16", DoubleType(), 1.2345678901234568e16),
        (b"0.30000000000000000000000000001", DoubleType(), 0.3),
        (b"1e400", DoubleType(), None),
        (b"1e-400", DoubleType(), None),
        (b"-1E-00400", DoubleType(), None),
        (b"0." + b"0" * 400 + b"1", DoubleType(), None),
        (b"0." + b"0" * 230 + b"1e-99", DoubleType(), None),
        (b"1e-400", FloatType(), None),
        (b"1e-400", VariantType(), None),
        (b"1e400", VariantType(), None),
        (b"0e-400", DoubleType(), 0.0),
        (b"5e-324", DoubleType(), 5e-324),
        (b"-0", DoubleType(), 0.0),
        (b"1e2", IntegerType(), 100),
        (b"1e999999999", LongType(), None),
        (b"1.10", DecimalType(6, 2), Decimal("1.10")),
        (b"1" * 5_000, LongType(), None),
    ],
)
def test_no_digit_of_a_number_of_json_is_lost(number: bytes, kind: DataType, found: object) -> None:
    ((value, cause),) = read(reader_of("json", kind), b'{"x": %s}' % number)

    assert (value, cause is None) == (found, found is not None)


@pytest.mark.parametrize("number", [b"1e-400", b"1E-400", b"0." + b"0" * 400 + b"1", b"1e-400 "])
def test_a_number_that_becomes_zero_is_refused_among_others(number: bytes) -> None:
    others = [b'{"x": 1.5, "id": "1f6e-412e-1000"}', b'{"x": 0}']
    *good, (value, cause) = read(reader_of("json", DoubleType()), *others, b'{"x": %s}' % number)

    assert good == [(1.5, None), (0.0, None)]
    assert (value, cause is None) == (None, False)


def test_keys_of_a_map_have_rules_too() -> None:
    days = reader_of("msgpack", MapType(DateType(), IntegerType()))
    numbers = reader_of("msgpack", MapType(LongType(), IntegerType()))

    assert read(days, packed({"2026-01-31": 1, "20260131": 2})) == [(None, 'field x["20260131"] is a key twice')]
    assert read(days, packed({"2026-01-31": 1})) == [([(_DAY, 1)], None)]
    assert read(numbers, packed({1: 1}), packed({"1": 1}), packed({None: 1})) == [
        ([(1, 1)], None),
        (None, 'field x["1"]: "1" is not a bigint'),
        (None, "field x[None] is missing"),
    ]


def test_a_value_deep_inside_is_named_by_its_way() -> None:
    line = StructType([StructField("prices", MapType(StringType(), DecimalType(6, 2)))])
    reader = reader_of("msgpack", ArrayType(line))

    item = packed([{"prices": {"net": "1.00"}}, {"prices": {"gross": 1.19}}])

    assert read(reader, item) == [(None, 'field x[1].prices["gross"]: 1.19 is not a decimal(6,2)')]


@pytest.mark.parametrize(
    "text",
    ["2026-01-31x08:30:00", "2026-01-31T24:00", "2026-01-31T08:30:60Z", " 2026-01-31", "2026-01-31T08:30:00+25:00"],
)
def test_what_is_nearly_a_moment_is_none(text: str) -> None:
    for form in ("msgpack", "json"):
        ((value, cause),) = read(reader_of(form, TimestampType()), packed(text) if form == "msgpack" else written(text))
        assert (value, cause is None) == (None, False)


@pytest.mark.parametrize(
    "text", ["2026-01-31t08:30:00z", "20260131T083000Z", "2026-01-31 08:30+00", "2026-01-31T08:30:00.000000000Z"]
)
def test_forms_of_iso_8601_are_moments(text: str) -> None:
    assert read(reader_of("msgpack", TimestampType()), packed(text)) == [(_LOCAL.replace(tzinfo=UTC), None)]


NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1)
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    | st.dates().map(date.isoformat)
    | st.datetimes().map(datetime.isoformat)
    | st.decimals(-(10**5), 10**5, places=2).map(str)
)
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(ANY, min_size=1, max_size=6), st.sampled_from([kind for kind, _ in FITS]))
def test_values_together_are_read_as_each_alone(values: list[Any], kind: DataType) -> None:
    for form in ("msgpack", "json"):
        given = [value for value in values if form == "msgpack" or not _has_bytes(value)]
        reader = reader_of(form, kind)
        items = [packed(value) if form == "msgpack" else written(value) for value in given]
        if items:
            assert repr(read(reader, *items)) == repr([read(reader, item)[0] for item in items])


def _has_bytes(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_bytes, value))
    return any(map(_has_bytes, value.values())) if isinstance(value, dict) else isinstance(value, bytes)


@pytest.mark.parametrize(("kind", "fits"), FITS, ids=[str(kind) for kind, _ in FITS])
def test_what_is_written_is_read_again(kind: DataType, fits: Mapping[str, object]) -> None:
    reader = reader_of("msgpack", kind)
    given = reader.rows(pa.array([packed(VALUES[name]) for name in fits], pa.binary()))
    kept = pa.StructArray.from_arrays([given.field("x")], ["x"])

    again = reader.rows(items_of(kept))

    assert again.field("_corrupt").null_count == len(again)
    assert repr(again.field("x").to_pylist()) == repr(given.field("x").to_pylist())
