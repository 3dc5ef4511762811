"""The transform that is measured: parse JSON, keep some of it, add to it, and write it as JSON again."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from spark_worker.transform.transforms import Context

SCHEMA = "invoice long, client string, amount double, currency string, note string"
LEAST_AMOUNT = 1_000.0
"""About nine of ten items have more."""


def transform(items: DataFrame, context: "Context") -> DataFrame:
    """Invoices above a sum, with their tax and a class that is found in a table."""
    classes = context.cached("classes", lambda: make_classes(context.spark))
    return enriched(items, classes)


def enriched(items: DataFrame, classes: DataFrame) -> DataFrame:
    """Columns of items, filtered and enriched; those of the schema without the note, and all others."""
    kept = items.where(sf.col("amount") >= LEAST_AMOUNT).withColumn("class", sf.substring("client", 1, 1))
    return (
        kept.join(sf.broadcast(classes), "class", "left")
        .withColumn("tax", sf.round(sf.col("amount") * sf.col("rate"), 2))
        .drop("note", "rate")
    )


def make_classes(session: Any) -> DataFrame:
    """What is known of each class of clients: its name, and its tax rate."""
    names = [(f"{number:x}", f"class {number:x}", number / 100) for number in range(16)]
    rows: DataFrame = session.createDataFrame(names, "class string, class_name string, rate double")
    return rows


def parsed(data: Column) -> Column:
    """An item's bytes as a row of the schema."""
    return sf.from_json(data.cast("string"), SCHEMA)
