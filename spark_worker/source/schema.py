"""Between Spark's schema of a read and ours."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_worker.source.columns import COLUMNS
from spark_worker.spark.options import BAD_OPTION
from xbus.errors import ConfigurationError


def columns_of(schema: StructType) -> tuple[str, ...]:
    """List the columns that a schema names: ours, or fewer if the user gave one.

    Raises:
        ConfigurationError: it names others, or as other types.
    """
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind != field.dataType.simpleString():
            described = "no such column" if kind is None else f"{field.name} is of type {kind}"
            raise ConfigurationError(
                f"the schema has {field.name} as {field.dataType.simpleString()}, and the source has {described}",
                "leave the schema out, and name columns by option columns",
                code=BAD_OPTION,
            )
    return tuple(schema.fieldNames())


def to_arrow(schema: StructType) -> pa.Schema:
    """Make the schema that Spark expects of each batch, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")
