"""The columns of the source."""

from collections.abc import Iterable, Mapping

from spark_worker.spark.options import bad_option

COLUMNS: Mapping[str, str] = {
    "envelope_id": "string",
    "event_id": "string",
    "position": "bigint",
    "index": "bigint",
    "emitter": "string",
    "sealed_at": "timestamp",
    "data": "binary",
    "headers": "map<string,string>",
    "partition_key": "string",
}
"""All columns and their types in Spark, in the order in which they come."""


def parse_columns(text: str) -> tuple[str, ...]:
    """Read the names of the wanted columns.

    Args:
        text: their names, with commas between.

    Raises:
        ConfigurationError: no column has this name, or the text names one twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise bad_option("columns", text, f"names {name!r}, and the columns are {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise bad_option("columns", text, f"names {name} twice")
    return names


def ddl(columns: Iterable[str]) -> str:
    """Write the schema of some columns for Spark's SQL."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in columns)
