"""Items and columns: how the bytes of an item become the columns of a row, and a row the bytes of an item.

Python and Arrow read JSON and msgpack by the same ``rules``; columns of plain types are read in the process that reads
the items. Python writes msgpack. The Java side of Spark reads and writes CSV, and writes JSON.
An item that does not fit the schema gets a text in the column ``_corrupt``, and the job goes on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, VariantType

from spark_worker.items.columns import CORRUPT, DATA, INDEX, RAW, ROW, is_own
from spark_worker.items.failures import brief
from spark_worker.items.packing import packed, unpacked
from spark_worker.items.rows import JsonRows, MsgpackRows, RowMaker, is_early, row_type
from spark_worker.items.source import Early
from xbus.errors import ConfigurationError
from xbus.recipient import Refusal

NAMES = ("msgpack", "json", "csv", "bytes")
"""The names of the formats. The first is the default: the emitters of the bus make it of values."""


class Format(ABC):
    """A format of items.

    Args:
        schema: the columns of an item that comes in; empty for items that are not looked into.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = schema

    @abstractmethod
    def _bytes(self, made: DataFrame, columns: list[str]) -> Column:
        """Give the bytes of a row."""

    @property
    def early(self) -> Early:
        """The rows that are made of items where they are read; none where all is left to ``parse``."""
        return Early(StructType([]))

    @abstractmethod
    def parse(self, items: DataFrame) -> DataFrame:
        """Read items.

        Args:
            items: the columns of ``early``.

        Returns:
            Columns ``_index``, those of the schema, ``_corrupt`` (text; null where all is well) and ``data``.
        """

    def encode(self, made: DataFrame) -> DataFrame:
        """Write items: of a row its columns, those that begin with an underscore left out.

        Returns:
            Columns ``_index`` (null in all rows where it was not kept) and ``data``.

        Raises:
            Refusal: the rows can't be written in this format.
        """
        columns = [name for name in made.columns if not is_own(name)]
        if not columns:
            raise Refusal("the transform keeps no column, so it makes no items")
        if len(set(columns)) < len(columns):
            raise Refusal(f"the transform makes two columns of one name ({', '.join(columns)})")
        return made.select(_index_of(made), self._bytes(made, columns).alias(DATA))

    def explain(self, data: bytes, corrupt: str) -> str:
        """Explain why an item does not fit the schema, in a sentence.

        Args:
            data: its bytes.
            corrupt: the text in its ``_corrupt``.
        """
        return f"the item does not fit the schema {self.schema.simpleString()}"


class Rows(Format):
    """Items that are parsed: each has a row."""

    @abstractmethod
    def _row(self, data: Column, wanted: StructType) -> Column:
        """Parse the row in an item's bytes, ``_corrupt`` among its fields."""

    def parse(self, items: DataFrame) -> DataFrame:
        row = items.select(INDEX, DATA, self._row_in(items).alias(ROW))
        text = sf.col(DATA).cast("string")
        corrupt = sf.when(sf.col(ROW).isNull(), text).otherwise(sf.col(f"{ROW}.{CORRUPT}"))
        if demanded := [f.name for f in self.schema if not f.nullable]:
            lacking = reduce(Column.__or__, [_field(name).isNull() for name in demanded])
            corrupt = sf.coalesce(corrupt, sf.when(lacking, text))
        columns = [self._value(f).alias(f.name) for f in self.schema]
        return row.select(INDEX, *columns, corrupt.alias(CORRUPT), sf.col(DATA).alias(RAW))

    def _value(self, field: StructField) -> Column:
        """Give the value of a field in the row."""
        return _field(field.name)

    def _row_in(self, items: DataFrame) -> Column:
        """Give the row of each item."""
        return self._row(sf.col(DATA), row_type(self.schema))


class Ruled(Rows):
    """Items that are read by the rules.

    Args:
        schema: as of ``Format``.
        reader: makes their rows.
    """

    name: ClassVar[str]

    def __init__(self, schema: StructType, reader: RowMaker) -> None:
        super().__init__(schema)
        self._reader = reader

    @property
    def early(self) -> Early:
        return Early(self.schema, self.name) if is_early(self.schema) else super().early

    def _row_in(self, items: DataFrame) -> Column:
        # All or none are made early: a function of Python would be asked for each item, whether it is needed or not.
        return sf.col(ROW) if ROW in items.columns else super()._row_in(items)

    def _value(self, field: StructField) -> Column:
        found = super()._value(field)
        return sf.parse_json(found) if isinstance(field.dataType, VariantType) else found

    def _row(self, data: Column, wanted: StructType) -> Column:
        return unpacked(data, wanted, self._reader)

    def explain(self, data: bytes, corrupt: str) -> str:
        return self._reader.explain(data) or corrupt


class Json(Ruled):
    """An object of JSON each."""

    name: ClassVar[str] = "json"

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, JsonRows(schema))

    def _bytes(self, made: DataFrame, columns: list[str]) -> Column:
        # Null is written, so that all items of an event have the same fields.
        return sf.to_json(sf.struct(*map(_quoted, columns)), {"ignoreNullFields": "false"}).cast("binary")


class Csv(Rows):
    """A line of CSV each, without a header."""

    def _row(self, data: Column, wanted: StructType) -> Column:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        columns = ", ".join(f"{_name(field.name)} {field.dataType.simpleString()}" for field in wanted)
        return sf.from_csv(data.cast("string"), columns, options)

    def _bytes(self, made: DataFrame, columns: list[str]) -> Column:
        return sf.to_csv(sf.struct(*map(_quoted, columns))).cast("binary")


class Msgpack(Ruled):
    """A map of msgpack each."""

    name: ClassVar[str] = "msgpack"

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, MsgpackRows(schema))

    def _bytes(self, made: DataFrame, columns: list[str]) -> Column:
        return packed(sf.struct(*map(_quoted, columns)))


class Bytes(Format):
    """Bytes that nobody looks into: one column, ``data``."""

    def parse(self, items: DataFrame) -> DataFrame:
        return items.select(INDEX, DATA, sf.lit(None).cast("string").alias(CORRUPT), sf.col(DATA).alias(RAW))

    def _bytes(self, made: DataFrame, columns: list[str]) -> Column:
        kind = dict(zip(made.columns, (f.dataType for f in made.schema), strict=True)).get(DATA)
        if not isinstance(kind, (BinaryType, StringType)):
            raise Refusal("items in the format bytes need a column named data, of bytes or text")
        return _quoted(DATA).cast("binary")


def make_format(name: str, schema: str) -> Format:
    """Make the format of that name.

    Args:
        name: one of ``NAMES``.
        schema: the columns in DDL, such as ``id INT NOT NULL, name STRING``; empty for bytes.

    Raises:
        ConfigurationError: name and schema don't fit, or the schema is invalid.
    """
    check_schema(name, schema)
    if name == "bytes":
        return Bytes(StructType([]))
    kinds: dict[str, Callable[[StructType], Format]] = {"json": Json, "csv": Csv, "msgpack": Msgpack}
    return kinds[name](parsed_schema(schema))


def check_schema(name: str, schema: str) -> None:
    """Check, without Spark, that a schema has columns if it must.

    Raises:
        ConfigurationError: it lacks columns, or has some and must not.
    """
    if name == "bytes":
        if schema:
            raise ConfigurationError("items in the format bytes have no columns", "leave --schema out")
    elif not schema.strip():
        raise ConfigurationError(
            f"items in the format {name} need a schema", "give --schema, such as 'id INT NOT NULL, name STRING'"
        )


def parsed_schema(schema: str) -> StructType:
    """Parse the columns in a line of DDL; this needs a Spark session.

    Raises:
        ConfigurationError: it is invalid, takes a reserved name, or takes one twice.
    """
    try:
        parsed: DataType = StructType.fromDDL(schema)
    except PySparkException as error:
        raise ConfigurationError(
            f"--schema is not a list of columns in DDL ({brief(error)})",
            "write it as: id INT NOT NULL, name STRING",
        ) from error
    assert isinstance(parsed, StructType)
    if taken := [f.name for f in parsed if is_own(f.name)]:
        raise ConfigurationError(f"--schema names {taken[0]}", "names that begin with an underscore are the worker's")
    names = [f.name.lower() for f in parsed]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigurationError(
            f"--schema names {twice[0]} twice",
            "give each column a name of its own; Spark ignores the case of names",
        )
    return parsed


def _index_of(made: DataFrame) -> Column:
    if INDEX not in made.columns:
        return sf.lit(None).cast("bigint").alias(INDEX)
    return sf.col(INDEX).cast("bigint").alias(INDEX)


def _field(name: str) -> Column:
    return sf.col(ROW).getField(name)


def _quoted(name: str) -> Column:
    return sf.col(_name(name))


def _name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
